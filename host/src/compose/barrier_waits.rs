//! Who was late to the barriers of layers, and how long that made the others wait.
//!
//! Each rank's barriers write when it entered and left. When a batch ends the ranks exchange these times, and each finds
//! the same late ranks: the last one to enter, where the ranks read one clock (CPU). GPUs have a clock each, and only
//! durations can be compared: there it is the one that waited least, for it found all others there.

use serde::Serialize;

use super::ComposeError;
use super::error::explain;
use crate::deadline::Deadline;
use crate::device::MemoryKind;
use crate::group::{Group, TimedBarrier};
use crate::units::{Epoch, Rank};
use cpkv_kernels::abi::BarrierTiming;

/// What waiting in the barriers of layers came to, since the composer was registered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BarrierWaits {
    /// Barriers that all ranks timed.
    pub num_barriers: u64,
    /// Barriers of this rank that are in no count: replayed in a graph, past the room of a batch, or not timed by all.
    pub num_untimed: u64,
    /// `[group_size]` by the rank that was last.
    pub late_ranks: Vec<LateRank>,
}

/// What one rank's being last came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LateRank {
    /// The rank.
    pub rank: Rank,
    /// Barriers that it was the last to enter. In a barrier somebody always is: the waits say whether it mattered.
    pub num_last: u64,
    /// How long this rank was in these barriers, together.
    pub waited_ns: u64,
    /// The longest that any rank was in one of them.
    pub longest_wait_ns: u64,
}

/// Which times may be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clocks {
    /// All ranks read one clock.
    Shared,
    /// Each rank has its own: only durations compare.
    Own,
}

impl BarrierWaits {
    /// Nothing yet, of `num_ranks` ranks.
    pub(super) fn nothing(num_ranks: usize) -> Self {
        let late = |rank| LateRank { rank, num_last: 0, waited_ns: 0, longest_wait_ns: 0 };
        let late_ranks = (0..).map(Rank).take(num_ranks).map(late).collect();
        Self { num_barriers: 0, num_untimed: 0, late_ranks }
    }

    /// Adds the barriers of a batch. `records`: every rank's, ascending by epoch; `me` is one of them. Pure.
    fn add(&mut self, clocks: Clocks, me: Rank, records: &[Vec<TimedBarrier>]) {
        let Some(mine) = records.get(me.idx()) else { return };
        for barrier in mine {
            let times: Option<Vec<BarrierTiming>> =
                records.iter().map(|theirs| timing_of(theirs, barrier.epoch)).collect();
            let Some((rank, times)) = times.and_then(|times| Some((last(clocks, &times)?, times))) else {
                self.num_untimed += 1;
                continue;
            };
            self.num_barriers += 1;
            if let Some(late) = self.late_ranks.get_mut(rank) {
                late.num_last += 1;
                late.waited_ns += waited_ns(barrier.timing);
                let longest = times.into_iter().map(waited_ns).max().unwrap_or(0);
                late.longest_wait_ns = late.longest_wait_ns.max(longest);
            }
        }
    }
}

/// Which rank was last.
fn last(clocks: Clocks, times: &[BarrierTiming]) -> Option<usize> {
    let ranks = times.iter().enumerate();
    let found = match clocks {
        Clocks::Shared => ranks.max_by_key(|(_, timing)| timing.entered_ns),
        Clocks::Own => ranks.min_by_key(|(_, timing)| waited_ns(**timing)),
    };
    found.map(|(rank, _)| rank)
}

const fn waited_ns(timing: BarrierTiming) -> u64 {
    timing.left_ns.saturating_sub(timing.entered_ns)
}

fn timing_of(records: &[TimedBarrier], epoch: Epoch) -> Option<BarrierTiming> {
    let at = records.binary_search_by_key(&epoch, |record| record.epoch).ok()?;
    records.get(at).map(|record| record.timing)
}

/// Exchanges the times of the batch that has just ended, and adds them to `waits`. Collective; the stream is idle.
pub(super) fn collect(group: &mut Group, waits: &mut BarrierWaits) -> Result<(), ComposeError> {
    let (mine, num_untimed) = group.take_timings()?;
    waits.num_untimed += num_untimed;
    let deadline = Deadline::after(group.options().bootstrap_timeout);
    let blobs = group
        .bootstrap()
        .all_gather("barrier times", &encode(&mine), deadline)
        .map_err(|error| explain(group, error.into()))?;
    let records: Vec<_> = blobs.iter().map(|blob| decode(blob)).collect();
    let clocks = match group.device().memory() {
        MemoryKind::Host => Clocks::Shared,
        MemoryKind::Cuda => Clocks::Own,
    };
    waits.add(clocks, group.rank(), &records);
    Ok(())
}

/// Epoch, entry and exit of each barrier, little-endian.
fn encode(records: &[TimedBarrier]) -> Vec<u8> {
    let words = records.iter().flat_map(|record| {
        let BarrierTiming { entered_ns, left_ns } = record.timing;
        [record.epoch.0, entered_ns, left_ns]
    });
    words.flat_map(u64::to_le_bytes).collect()
}

fn decode(blob: &[u8]) -> Vec<TimedBarrier> {
    let words: Vec<u64> = blob.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let records = words.as_chunks().0.iter();
    records
        .map(|&[epoch, entered_ns, left_ns]| TimedBarrier {
            epoch: Epoch(epoch),
            timing: BarrierTiming { entered_ns, left_ns },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn barrier(epoch: u64, entered_ns: u64, left_ns: u64) -> TimedBarrier {
        TimedBarrier { epoch: Epoch(epoch), timing: BarrierTiming { entered_ns, left_ns } }
    }

    /// Two barriers of three ranks: rank 1 is late to the first by 500, rank 2 to the second by 70.
    fn two_barriers() -> Vec<Vec<TimedBarrier>> {
        vec![
            vec![barrier(4, 100, 610), barrier(5, 700, 780)],
            vec![barrier(4, 600, 605), barrier(5, 690, 775)],
            vec![barrier(4, 90, 640), barrier(5, 770, 790)],
        ]
    }

    fn late(rank: u32, num_last: u64, waited_ns: u64, longest_wait_ns: u64) -> LateRank {
        LateRank { rank: Rank(rank), num_last, waited_ns, longest_wait_ns }
    }

    fn waits(clocks: Clocks, me: u32, records: &[Vec<TimedBarrier>]) -> BarrierWaits {
        let mut waits = BarrierWaits::nothing(records.len());
        waits.add(clocks, Rank(me), records);
        waits
    }

    #[test]
    fn the_last_to_enter_is_named_with_what_this_rank_and_the_worst_one_waited() {
        let waits_of = |me| waits(Clocks::Shared, me, &two_barriers());
        let rank_0 = waits_of(0);
        assert_eq!((rank_0.num_barriers, rank_0.num_untimed), (2, 0));
        assert_eq!(rank_0.late_ranks, [late(0, 0, 0, 0), late(1, 1, 510, 550), late(2, 1, 80, 85)]);
        // The late rank itself hardly waited.
        assert_eq!(waits_of(1).late_ranks[1], late(1, 1, 5, 550));
    }

    #[test]
    fn with_a_clock_each_the_one_that_waited_least_was_last() {
        let mut records = two_barriers();
        for (rank, barriers) in records.iter_mut().enumerate() {
            for barrier in barriers {
                barrier.timing.entered_ns += 1_000_000 * rank as u64;
                barrier.timing.left_ns += 1_000_000 * rank as u64;
            }
        }
        let own = waits(Clocks::Own, 0, &records);
        assert_eq!(own, waits(Clocks::Shared, 0, &two_barriers()));
        assert_ne!(own, waits(Clocks::Shared, 0, &records));
    }

    #[test]
    fn a_barrier_that_not_all_ranks_timed_is_not_judged() {
        let mut records = two_barriers();
        records[2].remove(0);
        let waits = waits(Clocks::Shared, 0, &records);
        assert_eq!((waits.num_barriers, waits.num_untimed), (1, 1));
        assert_eq!(waits.late_ranks, [late(0, 0, 0, 0), late(1, 0, 0, 0), late(2, 1, 80, 85)]);
    }

    #[test]
    fn batches_add_up() {
        let mut waits = waits(Clocks::Shared, 0, &two_barriers());
        waits.add(Clocks::Shared, Rank(0), &two_barriers());
        assert_eq!(waits.late_ranks[1], late(1, 2, 1020, 550));
    }

    #[test]
    fn what_a_rank_sends_is_what_the_others_read() {
        for records in two_barriers() {
            assert_eq!(decode(&encode(&records)), records);
        }
        assert_eq!(decode(b"short"), []);
    }
}
