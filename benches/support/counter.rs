//! The baseline of ranks that are processes: one counter in memory that all of them map.
//!
//! | word | who writes | who reads | value at rest | who resets |
//! |---|---|---|---|---|
//! | counter | every rank adds 1 a barrier | every rank | a multiple of the group size | nobody |
//!
//! A rank leaves when the counter has reached the multiple of the group size that its own add belongs to. No rank can add
//! for the next barrier before that.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use cpkv::deadline::Deadline;
use cpkv::device::DeviceError;
use cpkv::group::Bootstrap;
use cpkv::symm::{Mapping, MemfdBackend, SymmBackend};
use cpkv::units::{Rank, RankSet};
use rustix::thread::sched_yield;

use crate::rounds::{BARRIER_TIMEOUT, EXCHANGE_TIMEOUT, Failure};

/// Memory of the counter.
const COUNTER_BYTES: u64 = size_of::<AtomicU64>() as u64;
/// Polls before the processor is given away, where every rank has a core; as many as the group's barrier has.
const NUM_SPINS: u32 = 4096;
/// Polls between two looks at the clock.
const POLLS_PER_CLOCK: u32 = 32;

/// A counting barrier without a pad a rank, a poison word or a report.
pub(crate) struct Counter {
    memory: Mapping,
    rank: Rank,
    num_ranks: u64,
    num_spins: u32,
}

impl Counter {
    /// Maps the counter, which rank 0 allocates. Collective.
    pub(crate) fn share(bootstrap: &dyn Bootstrap) -> Result<Self, Failure> {
        let deadline = Deadline::after(EXCHANGE_TIMEOUT);
        let rank = bootstrap.rank();
        let memory = if rank == Rank(0) {
            let memory = MemfdBackend.allocate(COUNTER_BYTES)?;
            let export = MemfdBackend.export(&memory, deadline)?;
            bootstrap.all_gather("counter", &export.handle, deadline)?;
            // It is served until everyone has it.
            bootstrap.barrier("counter is open", deadline)?;
            memory
        } else {
            let handles = bootstrap.all_gather("counter", &[], deadline)?;
            let memory = MemfdBackend.open(Rank(0), &handles[0], COUNTER_BYTES, deadline)?;
            bootstrap.barrier("counter is open", deadline)?;
            memory
        };
        let num_ranks = bootstrap.group_size().len();
        let num_cores = std::thread::available_parallelism().map_or(1, usize::from);
        let num_spins = if num_ranks > num_cores { 0 } else { NUM_SPINS };
        Ok(Self { memory, rank, num_ranks: num_ranks as u64, num_spins })
    }

    /// Passes one barrier.
    pub(crate) fn pass(&self) -> Result<(), DeviceError> {
        let counter = self.counter();
        // Release: pairs with the acquire below, of every rank. Acquire: where this add is the last one.
        let arrived = counter.fetch_add(1, Ordering::AcqRel) + 1;
        let wanted = arrived.next_multiple_of(self.num_ranks);
        let mut deadline = None;
        let mut num_polls: u32 = 0;
        // Acquire: pairs with the release in every rank's add.
        while counter.load(Ordering::Acquire) < wanted {
            num_polls = num_polls.wrapping_add(1);
            if num_polls.is_multiple_of(POLLS_PER_CLOCK) {
                let deadline = *deadline.get_or_insert_with(|| Deadline::after(BARRIER_TIMEOUT));
                if deadline.expired() {
                    return Err(DeviceError::CollectiveTimeout {
                        call: "the counter's barrier",
                        rank: self.rank.0,
                        waited_ms: deadline.waited_ms(),
                        missing: RankSet::default(),
                    });
                }
            }
            if num_polls < self.num_spins {
                std::hint::spin_loop();
            } else {
                sched_yield();
            }
        }
        Ok(())
    }

    fn counter(&self) -> &AtomicU64 {
        let word = ptr::with_exposed_provenance_mut(self.memory.addr as usize);
        // SAFETY: the first word of a page that `memory` keeps mapped; every rank accesses it atomically only.
        unsafe { AtomicU64::from_ptr(word) }
    }
}
