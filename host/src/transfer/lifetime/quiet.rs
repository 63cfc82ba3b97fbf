//! The agreement of a group on which requests none of its ranks sends any more.

use std::collections::BTreeSet;

use crate::deadline::Deadline;
use crate::group::{Bootstrap, BootstrapError, MAX_BLOB_BYTES};
use crate::transfer::RequestId;
use crate::units::Rank;

/// What the exchanges are called.
const CALL: &str = "agree on quiet requests";
/// Bytes of a request id, and of the number of ids that precedes them.
const ID_BYTES: usize = size_of::<u64>();
/// Bytes that one rank gives in one exchange, at most.
const PART_BYTES: usize = MAX_BLOB_BYTES - MAX_BLOB_BYTES % ID_BYTES;

/// The requests that every rank reports in `quiet`, ascending: the same answer on every rank. Collective.
///
/// `quiet` holds the requests that this rank has released nothing of, and whose transfers here have ended or are confirmed
/// quiet. Order does not matter. A request that one rank leaves out stays held by all.
///
/// A rank's ids are exchanged in parts of at most [`MAX_BLOB_BYTES`]. The first part says how many there are; all ranks then
/// take part in as many exchanges as the longest list needs.
///
/// # Errors
/// [`BootstrapError`]: nobody may release anything then. [`BootstrapError::BadBlob`] for a list that is not whole.
pub fn agree_quiet(
    bootstrap: &dyn Bootstrap,
    quiet: &[RequestId],
    deadline: Deadline,
) -> Result<Vec<RequestId>, BootstrapError> {
    agree_in_parts(bootstrap, quiet, deadline, PART_BYTES)
}

/// [`agree_quiet`] in parts of `part_bytes`, a multiple of [`ID_BYTES`].
fn agree_in_parts(
    bootstrap: &dyn Bootstrap,
    quiet: &[RequestId],
    deadline: Deadline,
    part_bytes: usize,
) -> Result<Vec<RequestId>, BootstrapError> {
    let mine = encode(quiet);
    let mut parts = mine.chunks(part_bytes);
    let mut lists = bootstrap.all_gather(CALL, parts.next().unwrap_or_default(), deadline)?;
    let num_parts = lists.iter().map(|list| num_parts(list, part_bytes)).max().unwrap_or(1);
    for _ in 1..num_parts {
        let more = bootstrap.all_gather(CALL, parts.next().unwrap_or_default(), deadline)?;
        for (list, more) in lists.iter_mut().zip(more) {
            list.extend(more);
        }
    }
    let mut agreed: Option<BTreeSet<RequestId>> = None;
    for (peer, list) in (0..).map(Rank).zip(&lists) {
        let bad = BootstrapError::BadBlob { call: CALL, rank: bootstrap.rank(), peer };
        let ids = decode(list).ok_or(bad)?;
        agreed = Some(match agreed {
            None => ids,
            Some(agreed) => agreed.intersection(&ids).copied().collect(),
        });
    }
    Ok(agreed.unwrap_or_default().into_iter().collect())
}

/// `[num_ids: u64][id: u64]...`, little-endian.
fn encode(ids: &[RequestId]) -> Vec<u8> {
    let words = std::iter::once(ids.len() as u64).chain(ids.iter().map(|id| id.0));
    words.flat_map(u64::to_le_bytes).collect()
}

/// How many parts the list takes that `first` is the first part of.
fn num_parts(first: &[u8], part_bytes: usize) -> u64 {
    let num_ids = first.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let ids_a_part = (part_bytes / ID_BYTES) as u64;
    num_ids.saturating_add(1).div_ceil(ids_a_part)
}

/// The ids of a list; `None` where it is not whole.
fn decode(list: &[u8]) -> Option<BTreeSet<RequestId>> {
    let (words, rest) = list.as_chunks::<ID_BYTES>();
    let (num_ids, ids) = words.split_first()?;
    let whole = rest.is_empty() && u64::from_le_bytes(*num_ids) == ids.len() as u64;
    whole.then(|| ids.iter().map(|id| RequestId(u64::from_le_bytes(*id))).collect())
}

#[cfg(test)]
#[path = "quiet_tests.rs"]
mod tests;
