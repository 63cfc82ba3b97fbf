//! The sum-all-reduce of ranks with a GPU each: NCCL's, on the group's stream.
//!
//! The library is loaded at run time; without it, or where it cannot be used, no rank uses it, and all learn why
//! ([`decide`]). A communicator that started is in one of three states:
//!
//! | state | a sum | ends by |
//! |---|---|---|
//! | *ready* | is queued | an error, or a caller that gives up: failed; [`Communicator::abort`]: ended; a drop: finalised and destroyed, aborted where that takes too long |
//! | *failed* | returns the first error | abort or drop: aborted |
//! | *ended* | returns the first error | - |
//!
//! Calls do not wait in NCCL (`blocking = 0`): its state is asked for until it is done or a deadline passed. That costs
//! the caller some microseconds a sum, since NCCL puts the work on the stream from a thread of its own, and nothing may be
//! queued behind it before. Errors of sums that already run are found by the next one, or by nobody: then it is the
//! host's deadline in `Stream::synchronize` that ends the wait.
//!
//! # What runs behind a sum that failed
//!
//! A sum whose peers never come spins on the GPU until the communicator is aborted; then it returns, its bytes are not
//! the sum, and the kernels queued behind it run. They look at the poison word. So it is raised first, then aborted:
//!
//! | what happened | who raises the poison | who aborts |
//! |---|---|---|
//! | a sum cannot be queued, or NCCL reports an error | [`NcclCollective`], beside the group's stream | it, at once |
//! | the host gave up waiting (`Group::synchronize`), a barrier timed out, a peer raised it | the group (`Group::surface`), the barrier, the peer | the next call that finds the gate poisoned; a drop; a caller, by [`Collective::abort`] |
//! | the host gave up waiting, in a group without peer access | nobody: that host does not raise its own word | as above |
//!
//! In the last case what is queued behind the sum runs over wrong bytes when the communicator is aborted. The host then
//! knows (`finish` fails, and the group refuses all that follows); what that batch has left in the pool is not to be used.

mod bounded;
mod communicator;
mod error;
mod handle;
mod library;
mod statement;

use std::sync::Arc;
use std::time::Duration;

use cpkv_kernels::signal::{self, CAUSE_STREAM, FAULT_RECORDED, FaultRecord};

pub use communicator::{Communicator, Queued, Timeouts};
pub use error::NcclError;
pub use handle::Enter;
pub use library::{Library, MIN_VERSION, UniqueId, Version};
pub use statement::{Statement, decide};

use super::{Collective, CollectiveError};
use crate::deadline::Deadline;
use crate::device::{CudaDevice, Device, DeviceBuffer, DeviceError, Keep, Stream};
use crate::group::{Bootstrap, BootstrapError, PoisonGate};
use crate::units::Rank;

/// What the stream is said to run.
const CALL: &str = "ncclAllReduce";
/// How long raising the poison may take.
const ALARM_TIMEOUT: Duration = Duration::from_secs(2);

/// An all-reduce among ranks that have a GPU each.
pub struct NcclCollective {
    // Dropped first: it needs the GPU.
    communicator: Communicator,
    rank: Rank,
    alarm: Alarm,
    device: CudaDevice,
}

/// Raises the poison beside the group's stream, which may never come to it.
struct Alarm {
    side: Arc<dyn Stream>,
    verdict: DeviceBuffer,
}

impl Alarm {
    fn new(device: &CudaDevice) -> Result<Self, DeviceError> {
        let verdict = device.alloc_host(size_of::<FaultRecord>() as u64)?;
        Ok(Self { side: device.stream()?, verdict })
    }

    /// Poisons the group of `gate` on all ranks. Where even that fails, the peers find out by their timeouts.
    fn raise(&self, gate: &PoisonGate, by: Rank) {
        let record = FaultRecord {
            word: FAULT_RECORDED,
            by_rank: by.0,
            cause: CAUSE_STREAM,
            ..FaultRecord::default()
        };
        // SAFETY: host memory of one record, written here alone. A second fault changes nothing.
        unsafe { signal::raise_fault(self.verdict.addr(), record) };
        let raised = gate.queue_raise(&*self.side, &self.verdict);
        let _ = raised.and_then(|()| self.side.synchronize(Deadline::after(ALARM_TIMEOUT)));
    }
}

impl NcclCollective {
    /// The collective of the ranks of `bootstrap`, this one on `device`, if all ranks can use NCCL. Collective.
    /// `Ok(Err(reason))`: no rank uses it, for the same reason.
    ///
    /// # Errors
    /// [`BootstrapError`].
    pub fn register(
        bootstrap: &dyn Bootstrap,
        device: &CudaDevice,
        timeouts: Timeouts,
    ) -> Result<Result<Self, String>, BootstrapError> {
        let alarm = Alarm::new(device);
        let library = Library::get().map(Library::version).map_err(|problem| problem.to_string());
        let problem = alarm.as_ref().err().map(ToString::to_string);
        let library = problem.map_or(library, Err);
        let statement = Statement { library, gpu: device.info().uuid };
        let enter: Enter = {
            let device = device.clone();
            Arc::new(move || device.shared().enter())
        };
        let communicator = Communicator::register(bootstrap, &statement, &enter, timeouts)?;
        Ok(match (communicator, alarm) {
            (Ok(communicator), Ok(alarm)) => {
                Ok(Self { communicator, rank: bootstrap.rank(), alarm, device: device.clone() })
            }
            (Err(reason), _) => Err(reason),
            (_, Err(problem)) => Err(format!("rank {}: {problem}", bootstrap.rank())),
        })
    }

    /// Queues the sum, and what keeps its buffer.
    ///
    /// # Safety
    /// As [`Collective::all_reduce_sum`].
    unsafe fn queue(
        &self,
        stream: &dyn Stream,
        buffer: &DeviceBuffer,
        gate: &PoisonGate,
    ) -> Result<Result<Queued, NcclError>, DeviceError> {
        let raw = self.device.raw_stream(stream, CALL)?;
        let gives_up = || gate.is_poisoned();
        // SAFETY: a stream of this device, which `raw_stream` entered; the buffer is kept below, and the rest is the
        // caller's promise.
        let queued =
            unsafe { self.communicator.all_reduce_sum(buffer.addr(), buffer.bytes(), raw.cast(), &gives_up) };
        // Failed or not: it may be on the stream.
        let keep: Keep = Arc::new(buffer.clone());
        let kept = self.device.keep_behind(stream, CALL, keep);
        if queued.is_ok() { kept.map(|()| queued) } else { Ok(queued) }
    }
}

impl Collective for NcclCollective {
    fn name(&self) -> &'static str {
        "nccl"
    }

    /// Fails at once where NCCL does, or an earlier sum failed: then the group is poisoned, and the communicator aborted.
    /// Waits until NCCL has put the sum on the stream, [`Timeouts::queue`] at most. [`DeviceError::Foreign`] where `stream` is not of this collective's GPU.
    unsafe fn all_reduce_sum(
        &self,
        stream: &dyn Stream,
        buffer: &DeviceBuffer,
        gate: &PoisonGate,
    ) -> Result<(), CollectiveError> {
        if gate.is_poisoned() {
            self.abort();
            return Ok(());
        }
        if buffer.bytes() == 0 {
            return Ok(());
        }
        let bytes = buffer.bytes();
        // SAFETY: the caller's promise.
        let queued = unsafe { self.queue(stream, buffer, gate) };
        match queued.map_err(|source| CollectiveError::Stream { bytes, source })? {
            Ok(Queued::Yes) => Ok(()),
            Ok(Queued::GaveUp) => {
                self.abort();
                Ok(())
            }
            Err(source) => {
                self.alarm.raise(gate, self.rank);
                self.abort();
                Err(CollectiveError::Nccl { bytes, source })
            }
        }
    }

    fn abort(&self) {
        // Nobody to tell: `Communicator::abort` tells.
        let _ = self.communicator.abort();
    }
}
