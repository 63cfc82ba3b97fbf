//! An all-gather of bytes of any length, over a bootstrap whose blobs are small.

use super::{Bootstrap, BootstrapError, MAX_BLOB_BYTES};
use crate::deadline::Deadline;
use crate::units::Rank;

/// Bytes of the length that precedes a rank's bytes.
const LENGTH_BYTES: usize = size_of::<u64>();
/// More than any rank has to say: a length beyond it is damaged.
const MAX_BYTES: u64 = 1 << 30;

/// Everyone's bytes, by rank; up to 1 GiB each. Collective.
///
/// They go in parts of at most [`MAX_BLOB_BYTES`]. The first part says how many bytes there are; all ranks then take part in as many
/// exchanges as the longest needs: one, where all are short.
///
/// # Errors
/// [`BootstrapError`]; [`BootstrapError::BadBlob`] for bytes of a peer that are not as many as it said.
pub fn all_gather_whole(
    bootstrap: &dyn Bootstrap,
    call: &'static str,
    mine: &[u8],
    deadline: Deadline,
) -> Result<Vec<Vec<u8>>, BootstrapError> {
    gather_in_parts(bootstrap, call, mine, deadline, MAX_BLOB_BYTES)
}

/// [`all_gather_whole`] in parts of `part_bytes`, at least [`LENGTH_BYTES`].
fn gather_in_parts(
    bootstrap: &dyn Bootstrap,
    call: &'static str,
    mine: &[u8],
    deadline: Deadline,
    part_bytes: usize,
) -> Result<Vec<Vec<u8>>, BootstrapError> {
    let bad = |peer| BootstrapError::BadBlob { call, rank: bootstrap.rank(), peer };
    let framed = [&(mine.len() as u64).to_le_bytes(), mine].concat();
    let mut parts = framed.chunks(part_bytes);
    let mut all = bootstrap.all_gather(call, parts.next().unwrap_or_default(), deadline)?;
    let mut num_parts = 1;
    for (peer, first) in (0..).map(Rank).zip(&all) {
        let bytes = announced(first).filter(|&bytes| bytes <= MAX_BYTES).ok_or_else(|| bad(peer))?;
        num_parts = num_parts.max((bytes + LENGTH_BYTES as u64).div_ceil(part_bytes as u64));
    }
    for _ in 1..num_parts {
        let more = bootstrap.all_gather(call, parts.next().unwrap_or_default(), deadline)?;
        all.iter_mut().zip(more).for_each(|(whole, part)| whole.extend(part));
    }
    for (peer, whole) in (0..).map(Rank).zip(&mut all) {
        if announced(whole) != Some((whole.len() - LENGTH_BYTES) as u64) {
            return Err(bad(peer));
        }
        whole.drain(..LENGTH_BYTES);
    }
    Ok(all)
}

/// The length that a rank's first part begins with; `None` where it is too short to say.
fn announced(first: &[u8]) -> Option<u64> {
    first.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::group::ThreadBootstrap;
    use crate::group::parrot::Parrot;
    use crate::units::GroupSize;

    const LONG: Duration = Duration::from_secs(60);

    /// What every rank of a group of threads gets, where rank `i` gives `lengths[i]` bytes.
    fn gathered(lengths: &[usize], part_bytes: usize) -> Vec<Vec<Vec<u8>>> {
        std::thread::scope(|scope| {
            let ranks = ThreadBootstrap::group(GroupSize::new(lengths.len() as u32).unwrap());
            let threads: Vec<_> = ranks
                .into_iter()
                .zip(lengths)
                .map(|(bootstrap, &length)| {
                    scope.spawn(move || {
                        let mine = bytes_of(bootstrap.rank().idx(), length);
                        let deadline = Deadline::after(LONG);
                        gather_in_parts(&bootstrap, "test", &mine, deadline, part_bytes).unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn bytes_of(rank: usize, length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 7 + rank) as u8).collect()
    }

    #[test]
    fn bytes_of_unequal_length_come_whole_to_every_rank() {
        for lengths in [[0, 0, 0], [5, 0, 1], [16, 17, 15], [8, 24, 300], [40, 40, 40]] {
            for part_bytes in [8, 24, 1024] {
                let expected: Vec<_> =
                    (0..).zip(lengths).map(|(rank, length)| bytes_of(rank, length)).collect();
                assert_eq!(gathered(&lengths, part_bytes), vec![expected; 3], "{lengths:?}, {part_bytes}");
            }
        }
    }

    #[test]
    fn more_bytes_than_one_exchange_carries_come_whole() {
        let lengths = [2 * MAX_BLOB_BYTES + 5, 3];
        let expected: Vec<_> = (0..).zip(lengths).map(|(rank, length)| bytes_of(rank, length)).collect();
        assert_eq!(gathered(&lengths, MAX_BLOB_BYTES), vec![expected; 2]);
    }

    #[test]
    fn bytes_that_are_not_as_many_as_announced_are_refused_by_rank() {
        let framed = |length: u64, bytes: &[u8]| [&length.to_le_bytes(), bytes].concat();
        for blob in [vec![], vec![0; 7], framed(3, &[1, 2]), framed(1, &[1, 2]), framed(u64::MAX, &[1])] {
            let peer = Parrot::new(blob);
            let error = all_gather_whole(&peer, "test", &[9], Deadline::after(LONG)).unwrap_err();
            assert!(matches!(error, BootstrapError::BadBlob { rank: Rank(0), peer: Rank(1), .. }), "{error}");
        }
        let peer = Parrot::new(framed(2, &[1, 2]));
        let all = all_gather_whole(&peer, "test", &[9], Deadline::after(LONG)).unwrap();
        assert_eq!((all, peer.num_exchanges()), (vec![vec![9], vec![1, 2]], 1), "short bytes go at once");
    }
}
