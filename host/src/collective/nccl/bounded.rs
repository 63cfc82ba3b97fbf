//! Calls that may not return: on a thread of their own, waited for until a deadline.

use std::sync::mpsc;
use std::thread;

use super::error::NcclError;
use crate::deadline::Deadline;

/// Runs `work` on a thread of its own, and waits for what it returns.
///
/// A thread that is late is left to itself: it cannot be stopped. It goes on until `work` returns (maybe never), and what
/// it returns is dropped there.
///
/// # Errors
/// [`NcclError::Deadline`], [`NcclError::NoThread`].
pub(super) fn bounded<T: Send + 'static>(
    call: &'static str,
    deadline: Deadline,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NcclError> {
    let (done, result) = mpsc::sync_channel(1);
    let run = move || {
        // Nobody listens any more: what was not wanted in time is dropped.
        let _ = done.send(work());
    };
    let thread = thread::Builder::new().name("cpkv-nccl".to_owned()).spawn(run);
    if let Err(problem) = thread {
        return Err(NcclError::NoThread { call, code: problem.raw_os_error().unwrap_or(0) });
    }
    result.recv_timeout(deadline.remaining()).map_err(|problem| match problem {
        mpsc::RecvTimeoutError::Timeout => NcclError::Deadline { call, waited_ms: deadline.waited_ms() },
        mpsc::RecvTimeoutError::Disconnected => {
            NcclError::Gpu { call, reason: "its thread ended by a panic".to_owned() }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    struct Flag(Arc<AtomicBool>);

    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_comes_late_is_dropped_and_never_kept() {
        let dropped = Arc::new(AtomicBool::new(false));
        let flag = Flag(Arc::clone(&dropped));
        let (tell, told) = mpsc::channel::<()>();
        let work = move || {
            let _ = told.recv();
            flag
        };
        let late = bounded("work", Deadline::after(Duration::from_millis(5)), work).err().unwrap();
        assert!(matches!(late, NcclError::Deadline { call: "work", waited_ms: 5.. }), "{late}");
        assert!(!dropped.load(Ordering::SeqCst));
        tell.send(()).unwrap();
        let started = Instant::now();
        while !dropped.load(Ordering::SeqCst) {
            assert!(started.elapsed() < Duration::from_secs(30));
            thread::sleep(Duration::from_millis(1));
        }
    }
}
