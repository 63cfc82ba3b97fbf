//! Leaving a process whose group has failed.

use std::ffi::c_int;
use std::io::Write;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

unsafe extern "C" {
    /// Ends the process at once: no exit handlers, no destructors.
    safe fn _exit(code: c_int) -> !;
}

/// Ends the process at once with `code`, without `MPI_Finalize`, which would wait for a failed rank without end.
///
/// Rust's standard output and error are flushed first, for one second at most; buffers of C code are not, and
/// no exit handler runs. `mpirun` notices that the process left without `MPI_Finalize` and ends the other
/// ranks, unless it was started with `--enable-recovery`.
pub fn leave_without_finalize(code: i32) -> ! {
    let (flushed, wait) = mpsc::channel();
    // Another thread may hold the lock of an output that nobody reads: this one does not wait for it.
    let flush = move || {
        let _ = std::io::stdout().flush();
        let _ = std::io::stderr().flush();
        let _ = flushed.send(());
    };
    if thread::Builder::new().spawn(flush).is_ok() {
        let _ = wait.recv_timeout(Duration::from_secs(1));
    }
    _exit(code)
}
