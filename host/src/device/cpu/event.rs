//! Events of the CPU device.

use std::sync::{Condvar, Mutex, PoisonError};

use cpkv_kernels::now_ns;

use crate::deadline::Deadline;
use crate::device::{DeviceError, Event};

#[derive(Clone)]
struct Fired {
    at_ns: u64,
    error: Option<DeviceError>,
}

/// An event: fires once, when its stream reaches it.
#[derive(Default)]
pub(super) struct CpuEvent {
    fired: Mutex<Option<Fired>>,
    changed: Condvar,
}

impl CpuEvent {
    /// Fires; `error` is what the stream had met before.
    pub(super) fn fire(&self, error: Option<DeviceError>) {
        let fired = Fired { at_ns: now_ns(), error };
        *self.fired.lock().unwrap_or_else(PoisonError::into_inner) = Some(fired);
        self.changed.notify_all();
    }

    fn state(&self) -> Option<Fired> {
        self.fired.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Event for CpuEvent {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }

    fn query(&self) -> bool {
        self.state().is_some()
    }

    fn wait(&self, deadline: Deadline) -> Result<(), DeviceError> {
        let fired = self.fired.lock().unwrap_or_else(PoisonError::into_inner);
        let (fired, _) = self
            .changed
            .wait_timeout_while(fired, deadline.remaining(), |fired| fired.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        match &*fired {
            None => Err(DeviceError::Deadline {
                call: "event wait",
                waited_ms: deadline.waited_ms(),
                running: "work before the event",
            }),
            Some(Fired { error: Some(error), .. }) => Err(error.clone()),
            Some(_) => Ok(()),
        }
    }

    fn fired_at_ns(&self) -> Option<u64> {
        self.state().map(|fired| fired.at_ns)
    }
}
