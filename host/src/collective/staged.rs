//! A sum-all-reduce that the host carries out, over device memory that it cannot address: through host memory.
//!
//! What is queued, in stream order: a look at the poison; the copy to host memory; the sum, on the host, which leaves a
//! verdict; the raising of a bad verdict on all ranks, so that nothing behind it trusts the bytes; the copy back. Every
//! byte crosses the bus twice: the fallback of last resort.

use std::sync::{Arc, Mutex, PoisonError};

use cpkv_kernels::signal::{self, CAUSE_STREAM, FAULT_RECORDED, FaultRecord};

use super::{Collective, CollectiveError};
use crate::device::{Device, DeviceBuffer, DeviceError, Stream};
use crate::group::PoisonGate;
use crate::units::Rank;

/// A sum-all-reduce that the host carries out, over memory that it can address.
pub trait HostReduce: Send + Sync {
    /// Its name, for reports.
    fn name(&self) -> &'static str;

    /// What the queued work is called.
    fn call(&self) -> &'static str;

    /// This rank.
    fn rank(&self) -> Rank;

    /// Sums `buffer` over the ranks, in place; returns when it is done.
    ///
    /// # Safety
    /// `buffer` is memory that the host can address, and nobody else touches it during the call.
    ///
    /// # Errors
    /// [`DeviceError`].
    unsafe fn sum(&self, buffer: &DeviceBuffer) -> Result<(), DeviceError>;
}

/// A [`HostReduce`] for devices whose memory the host cannot address.
pub struct StagedCollective {
    reduce: Arc<dyn HostReduce>,
    device: Arc<dyn Device>,
    /// Host memory, as large as the largest buffer so far; a verdict lies behind it.
    staging: Mutex<Option<Staging>>,
}

#[derive(Clone)]
struct Staging {
    bytes: DeviceBuffer,
    verdict: DeviceBuffer,
}

impl StagedCollective {
    /// The collective that copies to host memory of `device` and lets `reduce` sum there.
    pub fn new(reduce: Arc<dyn HostReduce>, device: Arc<dyn Device>) -> Self {
        Self { reduce, device, staging: Mutex::new(None) }
    }

    /// Host memory of `bytes` bytes. Sums on one stream run one after the other, so one is enough.
    fn staging(&self, bytes: u64) -> Result<Staging, DeviceError> {
        const VERDICT_BYTES: u64 = size_of::<FaultRecord>() as u64;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let staging = match &mut *staging {
            Some(staging) if staging.bytes.bytes() >= bytes => staging,
            staging => {
                let room = bytes.next_multiple_of(VERDICT_BYTES);
                let block = self.device.alloc_host(room + VERDICT_BYTES)?;
                let verdict = block.slice(room..room + VERDICT_BYTES)?;
                staging.insert(Staging { bytes: block.slice(0..room)?, verdict })
            }
        };
        Ok(Staging { bytes: staging.bytes.slice(0..bytes)?, verdict: staging.verdict.clone() })
    }

    fn queue(
        &self,
        stream: &dyn Stream,
        buffer: &DeviceBuffer,
        gate: &PoisonGate,
    ) -> Result<(), DeviceError> {
        let Staging { bytes, verdict } = self.staging(buffer.bytes())?;
        gate.queue_look(stream)?;
        stream.copy(buffer, &bytes)?;
        let (reduce, queued) = (Arc::clone(&self.reduce), gate.clone());
        let (summed, judged) = (bytes.clone(), verdict.clone());
        let call = move || {
            if queued.is_poisoned() {
                return Ok(());
            }
            // SAFETY: host memory of this collective; the stream's order keeps everything else off it.
            unsafe { reduce.sum(&summed) }.inspect_err(|error| {
                // SAFETY: host memory of one record, written by this stream's work only.
                unsafe { signal::raise_fault(judged.addr(), verdict_of(reduce.rank(), error)) };
            })
        };
        stream.host_call(self.reduce.call(), Box::new(call))?;
        gate.queue_raise(stream, &verdict)?;
        stream.copy(&bytes, buffer)
    }
}

/// What the group is told of a sum that failed on `rank`.
fn verdict_of(rank: Rank, error: &DeviceError) -> FaultRecord {
    let missing = match error {
        DeviceError::CollectiveTimeout { missing, .. } => missing.0,
        _ => 0,
    };
    FaultRecord {
        word: FAULT_RECORDED,
        by_rank: rank.0,
        missing,
        cause: CAUSE_STREAM,
        ..FaultRecord::default()
    }
}

impl Collective for StagedCollective {
    fn name(&self) -> &'static str {
        self.reduce.name()
    }

    unsafe fn all_reduce_sum(
        &self,
        stream: &dyn Stream,
        buffer: &DeviceBuffer,
        gate: &PoisonGate,
    ) -> Result<(), CollectiveError> {
        let queued = self.queue(stream, buffer, gate);
        queued.map_err(|source| CollectiveError::Stream { bytes: buffer.bytes(), source })
    }
}
