//! Streams of a GPU.
//!
//! | state | takes work | ends by |
//! |---|---|---|
//! | *open* | yes | an error of a host call or of the driver: failed; a drop |
//! | *capturing* | kernels and copies within the device, into a graph | `end_capture`: open |
//! | *failed* | no: every call returns the first error | a drop |
//!
//! Dropping never waits: the driver lets queued work run, and what that needs is kept until it has (see `keeps`).

use std::any::Any;
use std::ffi::c_void;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cpkv_kernels::Kernel;
use cust::stream::{Stream as RawStream, StreamFlags};
use cust_raw::{
    CUstream, cuLaunchHostFunc, cuLaunchKernel, cuMemcpyAsync, cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2,
    cuStreamWaitEvent,
};

use super::call::{checked, failed};
use super::context::Shared;
use super::event::{Anchor, CudaEvent, Failure, RawEvent, poll};
use super::geometry::Launch;
use super::graph::{Capture, CudaGraph};
use super::keeps::Keeps;
use super::{keeps, memory, pinned};
use crate::deadline::Deadline;
use crate::device::{DeviceBuffer, DeviceError, Event, Graph, HostCall, Keep, Stream};

/// How old an anchor may be when the stream is idle: the GPU's clock and the host's drift apart.
const ANCHOR_AGE_NS: u64 = 1_000_000_000;
/// How long an event on an idle stream may take.
const ANCHOR_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that are downloaded at a time.
const DOWNLOAD_BYTES: usize = 16 << 20;

/// A stream.
pub(super) struct CudaStream {
    // Before its context.
    raw: RawStream,
    shared: Arc<Shared>,
    state: Mutex<State>,
    /// The first error of a host call.
    failure: Failure,
    num_host_syncs: AtomicU64,
}

struct State {
    keeps: Keeps,
    capture: Option<Capture>,
    anchor: Arc<Anchor>,
    /// What was queued since the stream was last found idle: what a stream that does not end is running.
    queued: Queued,
}

/// What was queued since a stream was last idle. The host cannot see which of several pieces it runs: the last one that
/// may wait for something else is the likeliest.
#[derive(Clone, Copy)]
enum Queued {
    Nothing,
    One { name: &'static str, may_wait: bool },
    Several { suspect: Option<&'static str> },
}

impl Queued {
    const fn and(self, name: &'static str, may_wait: bool) -> Self {
        let earlier = match self {
            Self::Nothing => return Self::One { name, may_wait },
            Self::One { name, may_wait: true } => Some(name),
            Self::One { .. } => None,
            Self::Several { suspect } => suspect,
        };
        Self::Several { suspect: if may_wait { Some(name) } else { earlier } }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::One { name, .. } | Self::Several { suspect: Some(name) } => name,
            Self::Several { suspect: None } => "one of several pieces of work",
        }
    }
}

impl CudaStream {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self, DeviceError> {
        shared.enter()?;
        keeps::release_orphans();
        let name = shared.info().short_name();
        let raw = RawStream::new(StreamFlags::NON_BLOCKING, None).map_err(failed(name, "cuStreamCreate"))?;
        let anchor = Arc::new(Anchor::set(shared, raw.as_inner(), Deadline::after(ANCHOR_TIMEOUT))?);
        let state = State { keeps: Keeps::default(), capture: None, anchor, queued: Queued::Nothing };
        Ok(Self {
            shared: Arc::clone(shared),
            raw,
            state: Mutex::new(state),
            failure: Failure::default(),
            num_host_syncs: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw.as_inner()
    }

    /// Whether it is of the GPU of `shared`.
    pub(super) fn is_of(&self, shared: &Shared) -> bool {
        self.shared.raw_context() == shared.raw_context()
    }

    /// As [`CudaStream::raw`], for work that another library queues as `call`.
    pub(super) fn raw_for(&self, call: &'static str) -> Result<CUstream, DeviceError> {
        self.open_to_run(call).map(|_| self.raw())
    }

    /// Keeps `keep` until what another library has queued as `call` has run.
    pub(super) fn keep_behind(&self, call: &'static str, keep: Keep) -> Result<(), DeviceError> {
        self.queued(&mut self.lock(), call, true, keep)
    }

    /// Ready for a call of the driver, unless the stream failed.
    fn open(&self) -> Result<MutexGuard<'_, State>, DeviceError> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match failure {
            Some(failure) => Err(failure),
            None => self.shared.enter().map(|()| self.lock()),
        }
    }

    /// As [`CudaStream::open`], for work that cannot be captured.
    fn open_to_run(&self, call: &'static str) -> Result<MutexGuard<'_, State>, DeviceError> {
        let mut state = self.open()?;
        match &mut state.capture {
            None => Ok(state),
            Some(capture) => Err(capture.refuse(call)),
        }
    }

    fn checked(&self, call: &'static str, result: cust_raw::CUresult) -> Result<(), DeviceError> {
        checked(&self.shared, call, result)
    }

    /// Remembers what was queued, and what it needs.
    fn queued(
        &self,
        state: &mut State,
        name: &'static str,
        may_wait: bool,
        keep: Keep,
    ) -> Result<(), DeviceError> {
        if let Some(capture) = &mut state.capture {
            capture.keep(keep);
            return Ok(());
        }
        state.queued = state.queued.and(name, may_wait);
        state.keeps.push(&self.shared, self.raw(), keep)
    }

    fn until_idle(&self, deadline: Deadline) -> Result<(), DeviceError> {
        let running = || self.lock().queued.name();
        poll("synchronize", deadline, || memory::is_idle(&self.shared, self.raw()), running)
    }

    /// What is done when the stream was found idle.
    fn settle(&self) -> Result<(), DeviceError> {
        let mut state = self.open()?;
        // Another thread may have queued work since: what that needs stays.
        if !memory::is_idle(&self.shared, self.raw())? {
            let done = state.keeps.take_done();
            drop(state);
            drop(done);
            return Ok(());
        }
        let done = state.keeps.take_all();
        state.queued = Queued::Nothing;
        if cpkv_kernels::now_ns() - state.anchor.at_ns > ANCHOR_AGE_NS {
            let deadline = Deadline::after(ANCHOR_TIMEOUT);
            state.anchor = Arc::new(Anchor::set(&self.shared, self.raw(), deadline)?);
        }
        drop(state);
        // Outside the lock: memory goes back to its list here.
        drop(done);
        Ok(())
    }

    fn wait_until_idle(&self, deadline: Deadline) -> Result<(), DeviceError> {
        drop(self.open_to_run("synchronize")?);
        // Relaxed: a count for reports, it orders nothing.
        self.num_host_syncs.fetch_add(1, Ordering::Relaxed);
        self.until_idle(deadline)?;
        self.settle()
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        let mut state = self.lock();
        let (keeps, capture) = (mem::take(&mut state.keeps), state.capture.take());
        drop(state);
        if self.shared.enter().is_ok() {
            // A capture would swallow the event that the keeps wait for.
            drop(capture.map(|capture| capture.end(&self.shared, self.raw())));
            keeps::adopt(&self.shared, self.raw(), keeps);
            keeps::release_orphans();
        } else {
            // Whether the work has run is not known: what it needs stays.
            mem::forget(keeps);
        }
    }
}

impl Stream for CudaStream {
    fn as_any(&self) -> &dyn Any {
        self
    }

    unsafe fn launch(&self, kernel: Kernel, keep: &Keep) -> Result<(), DeviceError> {
        let mut state = self.open()?;
        let info = self.shared.info();
        let launch = Launch::of(&kernel, info.num_multiprocessors, self.shared.gather_variant());
        let mut params = [launch.params];
        // SAFETY: a function of the loaded module with its own parameter struct, which is read during the call;
        // what the addresses in it point to is the caller's promise.
        let result = unsafe {
            cuLaunchKernel(
                self.shared.function(launch.entry),
                launch.num_blocks,
                1,
                1,
                launch.num_threads,
                1,
                1,
                launch.shared_bytes,
                self.raw(),
                params.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.checked("cuLaunchKernel", result)?;
        let may_wait = matches!(kernel, Kernel::Barrier(_));
        self.queued(&mut state, kernel.name(), may_wait, Arc::clone(keep))
    }

    fn upload(&self, bytes: Vec<u8>, dst: &DeviceBuffer) -> Result<(), DeviceError> {
        dst.check("upload", bytes.len() as u64, bytes.len() as u64 <= dst.bytes())?;
        drop(self.open_to_run("upload")?);
        if bytes.is_empty() {
            return Ok(());
        }
        // Through pinned memory: from pageable memory the driver would make the host wait.
        let pinned = pinned::alloc(&self.shared, bytes.len() as u64)?;
        let host = ptr::with_exposed_provenance_mut::<u8>(pinned.addr() as usize);
        // SAFETY: as many bytes, which this call just allocated.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), host, bytes.len()) };
        let mut state = self.open_to_run("upload")?;
        // SAFETY: `dst` is long enough; it and the pinned memory are kept until the copy is done.
        let result = unsafe { cuMemcpyHtoDAsync_v2(dst.addr(), host.cast(), bytes.len(), self.raw()) };
        self.checked("cuMemcpyHtoDAsync", result)?;
        self.queued(&mut state, "upload", false, Arc::new((pinned, dst.clone())))
    }

    fn copy(&self, src: &DeviceBuffer, dst: &DeviceBuffer) -> Result<(), DeviceError> {
        dst.check("copy", src.bytes(), src.bytes() <= dst.bytes())?;
        let mut state = self.open()?;
        if src.bytes() == 0 {
            return Ok(());
        }
        // Either side may be pinned memory: with unified addresses the driver sees which.
        // SAFETY: `dst` is long enough, and both are kept until the copy is done.
        let result = unsafe { cuMemcpyAsync(dst.addr(), src.addr(), src.bytes() as usize, self.raw()) };
        self.checked("cuMemcpyAsync", result)?;
        self.queued(&mut state, "copy", false, Arc::new((src.clone(), dst.clone())))
    }

    fn download(&self, src: &DeviceBuffer, dst: &mut [u8], deadline: Deadline) -> Result<(), DeviceError> {
        src.check("download", dst.len() as u64, dst.len() as u64 == src.bytes())?;
        self.wait_until_idle(deadline)?;
        let pinned = pinned::alloc(&self.shared, dst.len().min(DOWNLOAD_BYTES) as u64)?;
        let host = ptr::with_exposed_provenance_mut::<u8>(pinned.addr() as usize);
        for (at, part) in dst.chunks_mut(DOWNLOAD_BYTES).enumerate() {
            let addr = src.addr() + (at * DOWNLOAD_BYTES) as u64;
            let mut state = self.open_to_run("download")?;
            // SAFETY: inside `src`; it and the pinned memory are kept until the copy is done.
            let result = unsafe { cuMemcpyDtoHAsync_v2(host.cast(), addr, part.len(), self.raw()) };
            self.checked("cuMemcpyDtoHAsync", result)?;
            self.queued(&mut state, "download", false, Arc::new((pinned.clone(), src.clone())))?;
            drop(state);
            self.until_idle(deadline)?;
            // SAFETY: as many bytes, and the only copy that writes them is done.
            unsafe { ptr::copy_nonoverlapping(host, part.as_mut_ptr(), part.len()) };
        }
        self.settle()
    }

    fn host_call(&self, name: &'static str, call: HostCall) -> Result<(), DeviceError> {
        let mut state = self.open_to_run(name)?;
        let queued = Box::new(QueuedCall { name, call, failure: Arc::clone(&self.failure) });
        let queued = Box::into_raw(queued);
        // SAFETY: the function takes the box back, once.
        let result = unsafe { cuLaunchHostFunc(self.raw(), Some(run_queued), queued.cast()) };
        if let Err(error) = self.checked("cuLaunchHostFunc", result) {
            // SAFETY: the driver refused it, so nobody else takes it.
            drop(unsafe { Box::from_raw(queued) });
            return Err(error);
        }
        self.queued(&mut state, name, true, Arc::new(()))
    }

    fn record(&self) -> Result<Arc<dyn Event>, DeviceError> {
        let state = self.open_to_run("record event")?;
        let event = RawEvent::record(&self.shared, self.raw())?;
        let (anchor, failure) = (Arc::clone(&state.anchor), Arc::clone(&self.failure));
        Ok(Arc::new(CudaEvent { event, anchor, failure }))
    }

    fn wait(&self, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
        const CALL: &str = "wait for event";
        let mut state = self.open_to_run(CALL)?;
        let cuda: &CudaEvent = event.as_any().downcast_ref().ok_or(DeviceError::Foreign { call: CALL })?;
        // SAFETY: both are alive, and the event was recorded.
        let result = unsafe { cuStreamWaitEvent(self.raw(), cuda.event.raw(), 0) };
        self.checked("cuStreamWaitEvent", result)?;
        self.queued(&mut state, CALL, true, Arc::new(Arc::clone(event)))
    }

    fn begin_capture(&self) -> Result<(), DeviceError> {
        let mut state = self.open()?;
        if state.capture.is_some() {
            return Err(DeviceError::NotCapturable { call: "begin capture" });
        }
        state.capture = Some(Capture::begin(&self.shared, self.raw())?);
        Ok(())
    }

    fn end_capture(&self) -> Result<Arc<dyn Graph>, DeviceError> {
        let capture = self.open()?.capture.take();
        let capture = capture.ok_or(DeviceError::NotCapturable { call: "end capture" })?;
        Ok(Arc::new(capture.end(&self.shared, self.raw())?))
    }

    unsafe fn replay(&self, graph: &Arc<dyn Graph>) -> Result<(), DeviceError> {
        let mut state = self.open_to_run("replay")?;
        let cuda: &CudaGraph =
            graph.as_any().downcast_ref().ok_or(DeviceError::Foreign { call: "replay" })?;
        // SAFETY: the caller's promise, for the kernels inside; the graph is kept until they have run.
        unsafe { cuda.launch(&self.shared, self.raw()) }?;
        self.queued(&mut state, "graph", true, Arc::new(Arc::clone(graph)))
    }

    fn synchronize(&self, deadline: Deadline) -> Result<(), DeviceError> {
        self.wait_until_idle(deadline)
    }

    fn num_host_syncs(&self) -> u64 {
        self.num_host_syncs.load(Ordering::Relaxed)
    }
}

/// A host call that the driver holds.
struct QueuedCall {
    name: &'static str,
    call: HostCall,
    failure: Failure,
}

/// What the driver runs, on a thread of its own and in the stream's order.
unsafe extern "C" fn run_queued(queued: *mut c_void) {
    // SAFETY: the box that `host_call` gave away, and the driver calls once.
    let QueuedCall { name, call, failure } = *unsafe { Box::from_raw(queued.cast::<QueuedCall>()) };
    let lock = || failure.lock().unwrap_or_else(PoisonError::into_inner);
    if lock().is_some() {
        return;
    }
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(DeviceError::Panicked { call: name, message: text.unwrap_or_else(|| "no message".to_owned()) })
    });
    if let Err(error) = outcome {
        lock().get_or_insert(error);
    }
}
