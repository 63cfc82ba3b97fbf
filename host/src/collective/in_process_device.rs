//! The sum-all-reduce of ranks that are threads of one process: by kernels.
//!
//! The hosts meet twice at each call, while they queue, and never on a stream: a host function that waits for another
//! rank's would hang on a device that runs them one at a time. On the streams, in order:
//!
//! | step | what rank r queues | behind |
//! |---|---|---|
//! | 1 | copy its buffer to its scratch; on several devices also to host memory, for the peers | its own earlier work |
//! | 2 | add every peer's buffer (or its copy in host memory) to the scratch | every rank's earlier work, by event |
//! | 3 | copy the scratch to its buffer | every rank's step 2, by event |
//!
//! Devices that do not reach each other's memory are what this is the fallback for; all of them reach the host's.
//!
//! A rank that does not come is missed at the meeting of the hosts, at its deadline.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::AddBytesParams;

use super::in_process::{check, device_error};
use super::{Collective, CollectiveError};
use crate::deadline::Deadline;
use crate::device::{Device, DeviceBuffer, DeviceError, Event, Keep, Stream};
use crate::group::PoisonGate;
use crate::group::rendezvous::Seat;
use crate::units::GroupSize;

/// What a rank shows the others.
#[derive(Clone)]
struct Shown {
    buffer: DeviceBuffer,
    /// Where the others read what is in the buffer.
    source: DeviceBuffer,
    event: Arc<dyn Event>,
}

/// An all-reduce among the threads of one process, over memory of one device or of several.
pub struct DeviceCollective {
    seat: Seat<Shown>,
    timeout: Duration,
    device: Arc<dyn Device>,
    /// Whether the ranks are on several devices, so that the bytes go through host memory.
    on_several: bool,
    scratch: Mutex<Scratch>,
}

/// Memory of this collective, as large as the largest buffer so far. Sums on one stream run one after the other, so one
/// of each is enough; what is outgrown lives until queued work has run.
#[derive(Default)]
struct Scratch {
    sum: Option<DeviceBuffer>,
    /// Host memory that the peers read.
    shown: Option<DeviceBuffer>,
}

impl DeviceCollective {
    /// The collectives of a group of threads, by rank, each on its device; each meeting of the hosts lasts `timeout` at
    /// most.
    pub fn group(devices: Vec<Arc<dyn Device>>, size: GroupSize, timeout: Duration) -> Vec<Self> {
        let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
        let on_several = names.windows(2).any(|pair| pair[0] != pair[1]);
        let of_rank = |(seat, device)| {
            let scratch = Mutex::default();
            Self { seat, timeout, device, on_several, scratch }
        };
        Seat::group(size).into_iter().zip(devices).map(of_rank).collect()
    }

    /// The scratch for a sum of `buffer`, and where the peers read it.
    fn scratch(&self, buffer: &DeviceBuffer) -> Result<(DeviceBuffer, DeviceBuffer), DeviceError> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = at_least(buffer.bytes(), &mut scratch.sum, |bytes| self.device.alloc(bytes))?;
        if !self.on_several {
            return Ok((sum, buffer.clone()));
        }
        let shown = at_least(buffer.bytes(), &mut scratch.shown, |bytes| self.device.alloc_host(bytes))?;
        Ok((sum, shown))
    }

    /// Shows this rank's event, and makes `stream` wait for all of them.
    fn meet(
        &self,
        call: &'static str,
        stream: &dyn Stream,
        buffer: &DeviceBuffer,
        source: &DeviceBuffer,
    ) -> Result<Arc<[Shown]>, DeviceError> {
        let mine = Shown { buffer: buffer.clone(), source: source.clone(), event: stream.record()? };
        let shown = self
            .seat
            .exchange(call, mine, Deadline::after(self.timeout))
            .map_err(|failure| device_error(failure, self.seat.rank()))?;
        for (_, shown) in shown.iter().enumerate().filter(|(rank, _)| *rank != self.seat.rank().idx()) {
            stream.wait(&shown.event)?;
        }
        Ok(shown)
    }

    fn queue(
        &self,
        stream: &dyn Stream,
        buffer: &DeviceBuffer,
        gate: &PoisonGate,
    ) -> Result<(), DeviceError> {
        let me = self.seat.rank();
        let (scratch, source) = self.scratch(buffer)?;
        if self.on_several {
            stream.copy(buffer, &source)?;
        }
        let shown = self.meet("show buffers", stream, buffer, &source)?;
        let buffers: Vec<&DeviceBuffer> = shown.iter().map(|shown| &shown.buffer).collect();
        check(me, &buffers)?;
        stream.copy(buffer, &scratch)?;
        for (_, peer) in shown.iter().enumerate().filter(|(rank, _)| *rank != me.idx()) {
            let params = AddBytesParams {
                dst: scratch.addr(),
                src: peer.source.addr(),
                bytes: buffer.bytes(),
                poison: gate.word(),
            };
            let keep: Keep = Arc::new((scratch.clone(), peer.source.clone(), gate.keep()));
            // SAFETY: `keep` holds both ranges and the poison word; what the peer shows is written neither before its
            // event, which was waited for, nor before this rank's next one, which the peer waits for; this device
            // reaches it, as one of the same device or of the host; the scratch is this stream's.
            unsafe { stream.launch(Kernel::AddBytes(params), &keep) }?;
        }
        self.meet("leave buffers", stream, buffer, &source)?;
        stream.copy(&scratch, buffer)
    }
}

/// The first `bytes` bytes of `kept`, which is allocated anew where it is too small.
fn at_least(
    bytes: u64,
    kept: &mut Option<DeviceBuffer>,
    alloc: impl FnOnce(u64) -> Result<DeviceBuffer, DeviceError>,
) -> Result<DeviceBuffer, DeviceError> {
    let kept = match kept {
        Some(kept) if kept.bytes() >= bytes => kept,
        kept => kept.insert(alloc(bytes)?),
    };
    kept.slice(0..bytes)
}

impl Collective for DeviceCollective {
    fn name(&self) -> &'static str {
        if self.on_several { "in-process, by kernels, through host memory" } else { "in-process, by kernels" }
    }

    /// Fails at once, with [`DeviceError::CollectiveTimeout`], where a rank does not come, and with
    /// [`DeviceError::CollectiveMismatch`] where the buffers differ in size or share memory. Buffers are aligned to 16
    /// bytes.
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
