//! The agreement of a group on which requests none of its ranks sends any more.

use std::collections::BTreeSet;

use crate::deadline::Deadline;
use crate::group::{Bootstrap, BootstrapError, all_gather_whole};
use crate::transfer::RequestId;
use crate::units::Rank;

/// What the exchange is called.
const CALL: &str = "agree on quiet requests";

/// The requests that every rank reports in `quiet`, ascending: the same answer on every rank. Collective.
///
/// `quiet` holds the requests that this rank has released nothing of, and whose transfers here have ended or are confirmed
/// quiet. Order does not matter. A request that one rank leaves out stays held by all.
///
/// # Errors
/// [`BootstrapError`]: nobody may release anything then. [`BootstrapError::BadBlob`] for a list that is not whole.
pub fn agree_quiet(
    bootstrap: &dyn Bootstrap,
    quiet: &[RequestId],
    deadline: Deadline,
) -> Result<Vec<RequestId>, BootstrapError> {
    let lists = all_gather_whole(bootstrap, CALL, &encode(quiet), deadline)?;
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

/// `[id: u64]...`, little-endian.
fn encode(ids: &[RequestId]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.0.to_le_bytes()).collect()
}

/// The ids of a list; `None` where it is none.
fn decode(list: &[u8]) -> Option<BTreeSet<RequestId>> {
    let (ids, rest) = list.as_chunks();
    rest.is_empty().then(|| ids.iter().map(|id| RequestId(u64::from_le_bytes(*id))).collect())
}

#[cfg(test)]
#[path = "quiet_tests.rs"]
mod tests;
