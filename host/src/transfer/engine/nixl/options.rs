//! What a NIXL engine is opened with.

use std::path::PathBuf;
use std::time::Duration;

use crate::device::MemoryKind;

/// Options of a [`NixlEngine`](super::NixlEngine).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NixlOptions {
    /// `libnixl_capi.so`; None for the one that the environment names
    /// ([`LIBRARY_VARIABLE`](super::LIBRARY_VARIABLE)).
    pub library: Option<PathBuf>,
    /// This process's name among its peers. One that is started anew takes the same name, and takes the place of the
    /// former.
    pub name: String,
    /// What the registered memory is. Memory of a GPU ([`MemoryKind::Cuda`]) is described to NIXL as such; that was not
    /// run on a GPU.
    pub memory: MemoryKind,
    /// The GPU that the memory belongs to, as CUDA counts them; 0 for memory of the host.
    pub device_id: u64,
    /// How long NIXL's thread sleeps at most where nothing wakes it. Traffic wakes it at once; this bounds what a wake-up
    /// that UCX missed costs. An idle engine takes 3 % of a core at 1 ms, 0.5 % at 10 ms (the default), next to nothing
    /// at 100 ms. Less than 1 ms is taken as that: at 0 NIXL would burn a core.
    pub progress_interval: Duration,
    /// How far below the priority of the thread that opens the engine NIXL's thread runs, as Linux counts: 0 (the default) to
    /// 19. For machines with fewer processors than threads, where it would hold up the forward.
    pub niceness: u8,
}

impl NixlOptions {
    /// An engine for memory of the host.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            library: None,
            name: name.into(),
            memory: MemoryKind::Host,
            device_id: 0,
            progress_interval: Duration::from_millis(10),
            niceness: 0,
        }
    }

    /// The interval, in microseconds.
    pub(super) fn progress_us(&self) -> u64 {
        // NIXL counts milliseconds in an `int`.
        self.progress_interval.clamp(Duration::from_millis(1), Duration::from_secs(10)).as_micros() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_interval_makes_an_idle_engine_busy() {
        let us = |progress_interval| NixlOptions { progress_interval, ..NixlOptions::new("a") }.progress_us();
        assert_eq!(us(Duration::ZERO), 1_000);
        assert_eq!(us(Duration::from_millis(25)), 25_000);
        assert_eq!(us(Duration::MAX), 10_000_000);
    }
}
