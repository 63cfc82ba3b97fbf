//! Priorities of threads, where there are fewer processors than threads that want one.

use rustix::process::nice;

/// Lowers the priority of the calling thread, and of threads that it starts, by `niceness` (0 to 19, as Linux counts). Where the
/// system refuses, the thread runs as before: nothing but time depends on it.
pub(crate) fn lower_own(niceness: u8) {
    if niceness > 0 {
        let _ = nice(i32::from(niceness.min(19)));
    }
}
