//! Events of a GPU.

use std::any::Any;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use cpkv_kernels::now_ns;
use cust_raw::{
    CUevent, CUresult, CUstream, cuEventCreate, cuEventDestroy_v2, cuEventElapsedTime, cuEventQuery,
    cuEventRecord,
};

use super::call::checked;
use super::context::Shared;
use crate::deadline::Deadline;
use crate::device::{DeviceError, Event};

/// A recorded event.
pub(super) struct RawEvent {
    shared: Arc<Shared>,
    raw: CUevent,
}

// SAFETY: a handle of the driver, which takes it from any thread.
unsafe impl Send for RawEvent {}
// SAFETY: as above.
unsafe impl Sync for RawEvent {}

impl RawEvent {
    /// Records an event behind what was queued on `stream`.
    pub(super) fn record(shared: &Arc<Shared>, stream: CUstream) -> Result<Self, DeviceError> {
        shared.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is writable.
        checked(shared, "cuEventCreate", unsafe { cuEventCreate(&mut raw, 0) })?;
        let event = Self { shared: Arc::clone(shared), raw };
        // SAFETY: an event just created, and a stream of the same context.
        checked(shared, "cuEventRecord", unsafe { cuEventRecord(raw, stream) })?;
        Ok(event)
    }

    /// Whether it has fired.
    pub(super) fn query(&self) -> Result<bool, DeviceError> {
        self.shared.enter()?;
        // SAFETY: a recorded event.
        match unsafe { cuEventQuery(self.raw) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => checked(&self.shared, "cuEventQuery", result).map(|()| true),
        }
    }

    /// Its handle.
    pub(super) const fn raw(&self) -> CUevent {
        self.raw
    }

    /// How long after `earlier` it fired, in nanoseconds. Both have fired.
    fn since_ns(&self, earlier: &Self) -> Option<i64> {
        let mut elapsed_ms = 0.0;
        // SAFETY: `elapsed_ms` is writable, and both events were recorded.
        let result = unsafe { cuEventElapsedTime(&mut elapsed_ms, earlier.raw, self.raw) };
        (result == CUresult::CUDA_SUCCESS).then_some((f64::from(elapsed_ms) * 1e6) as i64)
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        if self.shared.enter().is_ok() {
            // SAFETY: an event that nobody uses any more; one that has not fired yet is destroyed when it has.
            let _ = unsafe { cuEventDestroy_v2(self.raw) };
        }
    }
}

/// A point whose time is known on the host's clock and on the GPU's.
pub(super) struct Anchor {
    event: RawEvent,
    pub(super) at_ns: u64,
}

impl Anchor {
    /// Makes an anchor on `stream`, which is idle.
    pub(super) fn set(
        shared: &Arc<Shared>,
        stream: CUstream,
        deadline: Deadline,
    ) -> Result<Self, DeviceError> {
        let event = RawEvent::record(shared, stream)?;
        poll("set anchor", deadline, || event.query(), || "an event on an idle stream")?;
        Ok(Self { event, at_ns: now_ns() })
    }
}

/// The first error of a stream's host calls.
pub(super) type Failure = Arc<Mutex<Option<DeviceError>>>;

/// An event, as the device's users see it.
pub(super) struct CudaEvent {
    pub(super) event: RawEvent,
    pub(super) anchor: Arc<Anchor>,
    pub(super) failure: Failure,
}

impl Event for CudaEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }

    /// An event whose stream failed counts as fired: waiting for it tells why.
    fn query(&self) -> bool {
        self.event.query().unwrap_or(true)
    }

    fn wait(&self, deadline: Deadline) -> Result<(), DeviceError> {
        poll("event wait", deadline, || self.event.query(), || "work before the event")?;
        // The driver goes on behind a host call that failed; who relies on the event must not.
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        failure.map_or(Ok(()), Err)
    }

    /// By the GPU's clock since the stream was last idle; good to a few microseconds.
    fn fired_at_ns(&self) -> Option<u64> {
        if !self.event.query().ok()? {
            return None;
        }
        self.anchor.at_ns.checked_add_signed(self.event.since_ns(&self.anchor.event)?)
    }
}

/// Polls until `ready`, quickly at first. `running` says what is waited for, where the deadline comes first.
pub(super) fn poll(
    call: &'static str,
    deadline: Deadline,
    mut ready: impl FnMut() -> Result<bool, DeviceError>,
    running: impl FnOnce() -> &'static str,
) -> Result<(), DeviceError> {
    let mut num_polls = 0u32;
    while !ready()? {
        if deadline.remaining().is_zero() {
            return Err(DeviceError::Deadline { call, waited_ms: deadline.waited_ms(), running: running() });
        }
        match num_polls {
            0..200 => std::hint::spin_loop(),
            200..1000 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(u64::from(num_polls.min(20_000)) / 20)),
        }
        num_polls = num_polls.saturating_add(1);
    }
    Ok(())
}
