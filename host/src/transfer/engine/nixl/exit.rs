//! Ending a process that has used NIXL.

use std::io::Write;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::environment::has_infiniband;

unsafe extern "C" {
    /// Ends the process at once: no exit handlers, no destructors.
    safe fn _exit(code: i32) -> !;
}

/// Ends the process with `code`. Where there is InfiniBand, past the exit handlers of C code: a library inside NIXL
/// crashes in them, and the process would end with status 139 instead of its own. (Where there is none, that library is
/// not loaded: [`NixlEnvironment`](super::NixlEnvironment).) Engines are dropped before.
///
/// Rust's standard output and error are flushed first, for one second at most; buffers of C code are not where the exit
/// handlers are passed by.
pub fn exit(code: i32) -> ! {
    if !has_infiniband() {
        std::process::exit(code);
    }
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
