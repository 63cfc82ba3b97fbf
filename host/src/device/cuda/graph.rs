//! Graphs of a GPU: captured work, with what it needs.

use std::any::Any;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cust_raw::{
    CUgraph, CUgraphExec, CUstream, CUstreamCaptureMode, cuGraphDestroy, cuGraphExecDestroy,
    cuGraphInstantiate_v2, cuGraphLaunch, cuStreamBeginCapture_v2, cuStreamEndCapture,
};

use super::call::checked;
use super::context::Shared;
use crate::device::{DeviceError, Graph, Keep};

/// A capture under way.
#[derive(Default)]
pub(super) struct Capture {
    keeps: Vec<Keep>,
    /// Work that could not be captured.
    refused: Option<&'static str>,
}

impl Capture {
    /// Begins a capture on `stream`.
    pub(super) fn begin(shared: &Shared, stream: CUstream) -> Result<Self, DeviceError> {
        // Relaxed: other threads of the process, and this one on other streams, may do what they like meanwhile.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a stream that its owner keeps, and that is not capturing.
        checked(shared, "cuStreamBeginCapture", unsafe { cuStreamBeginCapture_v2(stream, mode) })?;
        Ok(Self::default())
    }

    /// Keeps what captured work needs.
    pub(super) fn keep(&mut self, keep: Keep) {
        self.keeps.push(keep);
    }

    /// Refuses work; the capture fails at its end, too.
    pub(super) fn refuse(&mut self, call: &'static str) -> DeviceError {
        self.refused.get_or_insert(call);
        DeviceError::NotCapturable { call }
    }

    /// Ends the capture.
    pub(super) fn end(self, shared: &Arc<Shared>, stream: CUstream) -> Result<CudaGraph, DeviceError> {
        let mut graph = ptr::null_mut();
        // SAFETY: `graph` is writable, and the stream is capturing.
        checked(shared, "cuStreamEndCapture", unsafe { cuStreamEndCapture(stream, &mut graph) })?;
        let graph = RawGraph(graph);
        if let Some(call) = self.refused {
            return Err(DeviceError::NotCapturable { call });
        }
        let mut exec = ptr::null_mut();
        // SAFETY: `exec` is writable, the graph was just captured, and no log is asked for.
        let result =
            unsafe { cuGraphInstantiate_v2(&mut exec, graph.0, ptr::null_mut(), ptr::null_mut(), 0) };
        checked(shared, "cuGraphInstantiate", result)?;
        Ok(CudaGraph { exec: Mutex::new(exec), _keeps: self.keeps, shared: Arc::clone(shared) })
    }
}

/// A captured graph, until it is made executable.
struct RawGraph(CUgraph);

impl Drop for RawGraph {
    fn drop(&mut self) {
        // SAFETY: this value's own graph.
        let _ = unsafe { cuGraphDestroy(self.0) };
    }
}

/// An executable graph.
pub(super) struct CudaGraph {
    /// Launched by one stream at a time.
    exec: Mutex<CUgraphExec>,
    _keeps: Vec<Keep>,
    shared: Arc<Shared>,
}

// SAFETY: a handle of the driver, which takes it from any thread, and which a lock keeps to one at a time.
unsafe impl Send for CudaGraph {}
// SAFETY: as above.
unsafe impl Sync for CudaGraph {}

impl CudaGraph {
    /// Queues the graph's work on `stream`.
    ///
    /// # Safety
    /// As [`Stream::launch`](crate::device::Stream::launch) for every kernel in it; the graph is kept until it has run.
    pub(super) unsafe fn launch(&self, shared: &Shared, stream: CUstream) -> Result<(), DeviceError> {
        if shared.info().uuid != self.shared.info().uuid {
            return Err(DeviceError::Foreign { call: "replay" });
        }
        let exec = self.exec.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller's promise.
        checked(shared, "cuGraphLaunch", unsafe { cuGraphLaunch(*exec, stream) })
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if self.shared.enter().is_ok() {
            let exec = self.exec.get_mut().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: this value's own graph; where it still runs, the driver destroys it afterwards.
            let _ = unsafe { cuGraphExecDestroy(*exec) };
        }
    }
}

impl Graph for CudaGraph {
    fn as_any(&self) -> &dyn Any {
        self
    }
}
