//! NCCL's handle of a communicator, and the calls that begin and end it. None of them waits without a deadline.

use std::ffi::c_void;
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::nccl::sys::ncclComm_t;

use super::bounded::bounded;
use super::error::NcclError;
use super::library::{Config, IN_PROGRESS, Library, SUCCESS, UniqueId};
use crate::deadline::Deadline;
use crate::device::DeviceError;
use crate::units::{GroupSize, Rank};

/// How long a wait looks again at once; then it sleeps between looks.
const SPIN: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_micros(100);

/// Makes a rank's GPU the one of the calling thread. Holds the GPU's context, as long as calls may use it.
pub type Enter = Arc<dyn Fn() -> Result<(), DeviceError> + Send + Sync>;

/// A communicator. Dropped, it is aborted.
pub(super) struct Handle {
    raw: Raw,
    enter: Enter,
    teardown: Duration,
}

/// What NCCL knows it by; null once it is ended.
#[derive(Clone, Copy)]
struct Raw {
    comm: ncclComm_t,
    library: &'static Library,
}

// SAFETY: NCCL takes a communicator from any thread, one at a time; `Handle` has one owner.
unsafe impl Send for Raw {}

impl Raw {
    /// Whether NCCL is done with what it was asked.
    fn is_done(self, call: &'static str) -> Result<bool, NcclError> {
        let mut state = SUCCESS;
        // SAFETY: the communicator is alive, `state` is writable.
        let code = unsafe { (self.library.get_async_error)(self.comm, &mut state) };
        self.library.check("ncclCommGetAsyncError", code)?;
        self.library.check(call, state)?;
        Ok(state != IN_PROGRESS)
    }

    /// Waits until NCCL is done. `false`: `gives_up` came first.
    fn wait(
        self,
        call: &'static str,
        deadline: Deadline,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<bool, NcclError> {
        let started = Instant::now();
        while !self.is_done(call)? {
            if gives_up() {
                return Ok(false);
            }
            if deadline.expired() {
                return Err(NcclError::Deadline { call, waited_ms: deadline.waited_ms() });
            }
            if started.elapsed() < SPIN { thread::yield_now() } else { thread::sleep(PAUSE) }
        }
        Ok(true)
    }

    fn abort(self) -> Result<(), NcclError> {
        // SAFETY: alive, and its owner gave it up for this call.
        let code = unsafe { (self.library.abort)(self.comm) };
        self.library.check("ncclCommAbort", code)
    }

    /// Finalises and destroys; aborts where that fails, or takes too long.
    fn finish(self, deadline: Deadline) -> Result<(), NcclError> {
        const CALL: &str = "ncclCommFinalize";
        // SAFETY: alive, and its owner gave it up for this call.
        let code = unsafe { (self.library.finalize)(self.comm) };
        let finalized = self.library.check(CALL, code).and_then(|()| self.wait(CALL, deadline, &|| false));
        if let Err(problem) = finalized {
            self.abort()?;
            return Err(problem);
        }
        // SAFETY: as above; finalised.
        let code = unsafe { (self.library.destroy)(self.comm) };
        self.library.check("ncclCommDestroy", code)
    }
}

impl Handle {
    /// Starts this rank's part of a communicator, and waits for the other ranks'.
    ///
    /// # Errors
    /// [`NcclError`]; what had been started is aborted.
    pub(super) fn start(
        library: &'static Library,
        id: UniqueId,
        place: (Rank, GroupSize),
        enter: Enter,
        [setup, teardown]: [Duration; 2],
    ) -> Result<Self, NcclError> {
        const CALL: &str = "ncclCommInitRankConfig";
        let deadline = Deadline::after(setup);
        let start = move || {
            enter().map_err(|problem| NcclError::Gpu { call: CALL, reason: problem.to_string() })?;
            let (mut comm, mut config) = (ptr::null_mut(), Config::non_blocking());
            let (rank, size) = (place.0.0 as i32, place.1.get() as i32);
            // SAFETY: `comm` is writable, and NCCL copies the configuration.
            let code = unsafe { (library.start)(&mut comm, size, id.raw(), rank, &mut config) };
            let handle = Self { raw: Raw { comm, library }, enter, teardown };
            library.check(CALL, code)?;
            if comm.is_null() {
                return Err(NcclError::Gpu { call: CALL, reason: "NCCL made no communicator".to_owned() });
            }
            Ok(handle)
        };
        // On a thread of its own: it does not wait for ranks, but it looks for networks, and loads NCCL's plug-ins.
        let handle: Self = bounded(CALL, deadline, start)??;
        handle.raw.wait(CALL, deadline, &|| false)?;
        Ok(handle)
    }

    /// Queues a sum, and waits until NCCL has put it on the stream: what is queued next must be behind it. `false`:
    /// `gives_up` came first, and the sum may be on the stream or not.
    ///
    /// # Safety
    /// As [`Library::all_reduce_sum`].
    pub(super) unsafe fn all_reduce_sum(
        &self,
        addr: u64,
        bytes: u64,
        stream: *mut c_void,
        deadline: Deadline,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<bool, NcclError> {
        const CALL: &str = "ncclAllReduce";
        let Raw { comm, library } = self.raw;
        // What an earlier sum met while it ran.
        if !self.raw.wait(CALL, deadline, gives_up)? {
            return Ok(false);
        }
        // SAFETY: the communicator is alive, and `self` lends it out to this call alone; the rest is the caller's.
        let code = unsafe { library.all_reduce_sum(comm, addr, bytes, stream) };
        library.check(CALL, code)?;
        self.raw.wait(CALL, deadline, gives_up)
    }

    /// Ends it, whatever it is doing: its kernels return without having summed.
    ///
    /// # Errors
    /// [`NcclError`]. Past the deadline the thread that aborts is left to itself.
    pub(super) fn abort(mut self) -> Result<(), NcclError> {
        self.abort_once()
    }

    fn abort_once(&mut self) -> Result<(), NcclError> {
        let Some((raw, enter)) = self.take() else { return Ok(()) };
        let abort = move || {
            // NCCL finds its GPU itself; without this the context might be gone by then.
            let _ = enter();
            raw.abort()
        };
        bounded("ncclCommAbort", Deadline::after(self.teardown), abort)?
    }

    /// Ends it, once all its work has run.
    ///
    /// # Errors
    /// [`NcclError`]: it was aborted instead. As [`Handle::abort`].
    pub(super) fn finish(mut self) -> Result<(), NcclError> {
        let Some((raw, enter)) = self.take() else { return Ok(()) };
        let teardown = self.teardown;
        let finish = move || {
            let _ = enter();
            raw.finish(Deadline::after(teardown))
        };
        // As long again for the abort that may follow.
        bounded("ncclCommDestroy", Deadline::after(2 * teardown), finish)?
    }

    fn take(&mut self) -> Option<(Raw, Enter)> {
        let comm = mem::replace(&mut self.raw.comm, ptr::null_mut());
        (!comm.is_null()).then(|| (Raw { comm, ..self.raw }, Arc::clone(&self.enter)))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Nobody to tell: `Handle::abort` tells.
        let _ = self.abort_once();
    }
}
