//! When this rank entered and left its barriers: blocks of them for benchmarks, and those of a batch's layers for the
//! statistics. The barrier kernel writes both times to device memory; the host reads them where it waits anyway.

use std::sync::Arc;

use cpkv_kernels::abi::BarrierTiming;

use super::error::GroupError;
use super::handle::Group;
use super::signals::BarrierCall;
use super::together::Together;
use crate::deadline::Deadline;
use crate::device::{DeviceBuffer, DeviceError, Keep};
use crate::symm::RegisterError;
use crate::units::Epoch;

/// Bytes of one record.
pub(super) const TIMING_BYTES: u64 = size_of::<BarrierTiming>() as u64;

/// A barrier this rank passed, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedBarrier {
    /// Its number: what the ranks' records are matched by.
    pub(crate) epoch: Epoch,
    /// When this rank entered and left it.
    pub(crate) timing: BarrierTiming,
}

/// The records of barriers since they were last taken.
pub(super) struct Timings {
    /// `[capacity]` of [`BarrierTiming`].
    records: DeviceBuffer,
    /// The records and what every barrier keeps.
    keep: Keep,
    /// The barriers that were given a record, in order. Room for all is made at once, so a barrier allocates nothing.
    epochs: Vec<Epoch>,
    /// Barriers that were given none: the records were full, or the barrier is part of a graph.
    num_untimed: u64,
}

impl Timings {
    /// The address of the next record, for the barrier of `epoch`; `None` where there is none left.
    fn next(&mut self, epoch: Epoch) -> Option<u64> {
        let offset = self.epochs.len() as u64 * TIMING_BYTES;
        if offset + TIMING_BYTES > self.records.bytes() {
            self.num_untimed += 1;
            return None;
        }
        self.epochs.push(epoch);
        Some(self.records.addr() + offset)
    }

    /// Barriers were queued that write no record.
    pub(super) const fn skip(&mut self, num_barriers: u64) {
        self.num_untimed += num_barriers;
    }
}

impl Group {
    /// Passes `num_barriers` barriers, launched one behind the other, and returns when this rank entered and left
    /// each: for benchmarks.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn time_barriers(&mut self, num_barriers: u32) -> Result<Vec<BarrierTiming>, GroupError> {
        self.check()?;
        let call = BarrierCall { tag: 0, ..self.barrier_call() };
        let queued = self.signals("time barriers")?.time_barriers(
            self.stream(),
            self.group_size(),
            call,
            num_barriers,
        );
        let timings = self.surface(queued)?;
        self.epoch = Epoch(self.epoch.0 + u64::from(num_barriers));
        self.synchronize()?;
        let read = read_timings(self, &timings);
        self.surface(read)
    }

    /// From now on keeps the times of up to `capacity` barriers of layers, until they are taken. Needs peer access.
    /// Collective.
    ///
    /// # Errors
    /// [`RegisterError`], on every rank, where one has no memory for them.
    pub(crate) fn keep_timings(&mut self, capacity: u32) -> Result<(), RegisterError> {
        let deadline = Deadline::after(self.options().bootstrap_timeout);
        let together = Together { name: "barrier times", bootstrap: self.bootstrap(), deadline };
        let records = self.device().alloc(u64::from(capacity) * TIMING_BYTES);
        let records = together.made("register: barrier times", records)?;
        let keep: Keep = Arc::new((self.keep(), records.clone()));
        let epochs = Vec::with_capacity(capacity as usize);
        self.timings = Some(Timings { records, keep, epochs, num_untimed: 0 });
        Ok(())
    }

    /// As [`Group::barrier`], for a layer: its times are kept, where times are.
    ///
    /// # Errors
    /// [`GroupError`].
    pub(crate) fn layer_barrier(&mut self, tag: u32) -> Result<(), GroupError> {
        // A graph's barrier would write the same record at every replay.
        let timings = if self.capturing { None } else { self.timings.as_mut() };
        let Some(timings) = timings else { return self.barrier(tag) };
        let record = timings.next(self.epoch).map(|timing| (timing, Arc::clone(&timings.keep)));
        let Some((timing, keep)) = record else { return self.barrier(tag) };
        self.check()?;
        let call = BarrierCall { tag, ..self.barrier_call() };
        let signals = self.signals("barrier")?;
        // SAFETY: `keep` holds the record.
        let launched =
            unsafe { signals.timed_barrier(self.stream(), self.group_size(), call, timing, &keep) };
        self.surface(launched)?;
        self.epoch = Epoch(self.epoch.0 + 1);
        Ok(())
    }

    /// The barriers of layers since the last call that this rank timed, and how many it did not. The stream is idle.
    ///
    /// # Errors
    /// [`GroupError`].
    pub(crate) fn take_timings(&mut self) -> Result<(Vec<TimedBarrier>, u64), GroupError> {
        let Some(timings) = &mut self.timings else { return Ok((Vec::new(), 0)) };
        let num_untimed = std::mem::take(&mut timings.num_untimed);
        let epochs = timings.epochs.clone();
        timings.epochs.clear();
        let written = timings.records.slice(0..epochs.len() as u64 * TIMING_BYTES);
        let read = written.and_then(|written| read_timings(self, &written));
        let times = self.surface(read)?;
        let timed = epochs.into_iter().zip(times).map(|(epoch, timing)| TimedBarrier { epoch, timing });
        Ok((timed.collect(), num_untimed))
    }

    /// Forgets the times of a batch that did not end.
    pub(crate) fn drop_timings(&mut self) {
        if let Some(timings) = &mut self.timings {
            timings.epochs.clear();
            timings.num_untimed = 0;
        }
    }
}

/// The records in `memory`, whose barriers were passed.
fn read_timings(group: &Group, memory: &DeviceBuffer) -> Result<Vec<BarrierTiming>, DeviceError> {
    let mut bytes = vec![0; memory.bytes() as usize];
    group.device().read(memory, &mut bytes)?;
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let timings = words.as_chunks().0.iter();
    Ok(timings.map(|&[entered_ns, left_ns]| BarrierTiming { entered_ns, left_ns }).collect())
}
