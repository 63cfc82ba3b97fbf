//! A stream whose events fire when the test says so.

#![allow(dead_code, reason = "each test file uses its part")]

use std::any::Any;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use cpkv::deadline::Deadline;
use cpkv::device::{DeviceBuffer, DeviceError, Event, Graph, HostCall, Keep, Stream};
use cpkv_kernels::Kernel;

/// Records events and runs nothing.
#[derive(Default)]
pub(crate) struct ManualStream {
    events: Mutex<Vec<Arc<ManualEvent>>>,
}

/// An event of a [`ManualStream`].
#[derive(Default)]
pub(crate) struct ManualEvent {
    outcome: Mutex<Option<Result<(), DeviceError>>>,
    changed: Condvar,
}

impl ManualStream {
    /// Events recorded so far.
    pub(crate) fn num_events(&self) -> usize {
        self.events.lock().unwrap().len()
    }

    /// Event `idx` fires, if it was recorded.
    pub(crate) fn fire(&self, idx: usize) {
        if let Some(event) = self.events.lock().unwrap().get(idx) {
            event.end(Ok(()));
        }
    }

    /// Every event recorded so far fires.
    pub(crate) fn fire_all(&self) {
        self.events.lock().unwrap().iter().for_each(|event| event.end(Ok(())));
    }

    /// The stream fails: every event recorded so far that has not fired ends with `error`.
    pub(crate) fn fail(&self, error: &DeviceError) {
        self.events.lock().unwrap().iter().for_each(|event| event.end(Err(error.clone())));
    }
}

impl ManualEvent {
    fn end(&self, outcome: Result<(), DeviceError>) {
        self.outcome.lock().unwrap().get_or_insert(outcome);
        self.changed.notify_all();
    }
}

impl Event for ManualEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn query(&self) -> bool {
        self.outcome.lock().unwrap().is_some()
    }

    fn wait(&self, deadline: Deadline) -> Result<(), DeviceError> {
        let outcome = self.outcome.lock().unwrap();
        let (outcome, _) = self
            .changed
            .wait_timeout_while(outcome, deadline.remaining(), |outcome| outcome.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        outcome.clone().unwrap_or_else(|| {
            Err(DeviceError::Deadline {
                call: "event wait",
                waited_ms: deadline.waited_ms(),
                running: "nothing",
            })
        })
    }

    fn fired_at_ns(&self) -> Option<u64> {
        self.query().then_some(0)
    }
}

const REFUSED: DeviceError = DeviceError::NotCapturable { call: "a manual stream records events only" };

impl Stream for ManualStream {
    fn as_any(&self) -> &dyn Any {
        self
    }

    unsafe fn launch(&self, _: Kernel, _: &Keep) -> Result<(), DeviceError> {
        Err(REFUSED)
    }

    fn upload(&self, _: Vec<u8>, _: &DeviceBuffer) -> Result<(), DeviceError> {
        Err(REFUSED)
    }

    fn copy(&self, _: &DeviceBuffer, _: &DeviceBuffer) -> Result<(), DeviceError> {
        Err(REFUSED)
    }

    fn download(&self, _: &DeviceBuffer, _: &mut [u8], _: Deadline) -> Result<(), DeviceError> {
        Err(REFUSED)
    }

    fn host_call(&self, _: &'static str, _: HostCall) -> Result<(), DeviceError> {
        Err(REFUSED)
    }

    fn record(&self) -> Result<Arc<dyn Event>, DeviceError> {
        let event = Arc::new(ManualEvent::default());
        self.events.lock().unwrap().push(Arc::clone(&event));
        Ok(event)
    }

    fn wait(&self, _: &Arc<dyn Event>) -> Result<(), DeviceError> {
        Err(REFUSED)
    }

    fn begin_capture(&self) -> Result<(), DeviceError> {
        Err(REFUSED)
    }

    fn end_capture(&self) -> Result<Arc<dyn Graph>, DeviceError> {
        Err(REFUSED)
    }

    unsafe fn replay(&self, _: &Arc<dyn Graph>) -> Result<(), DeviceError> {
        Err(REFUSED)
    }

    fn synchronize(&self, _: Deadline) -> Result<(), DeviceError> {
        Ok(())
    }

    fn num_host_syncs(&self) -> u64 {
        0
    }
}
