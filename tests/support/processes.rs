//! Ranks as processes: their set-up, what befalls them, and what they must not leave behind.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::group::mpi::{MpiBootstrap, MpiWorld};
use cpkv::group::{Bootstrap, BootstrapError, Transport};
use cpkv::units::{GroupSize, Rank, RankSet};
use rustix::process::{Pid, Signal, getpid, kill_process};

use super::fixture::{LONG, Setup, platform};
use super::{hex, report, socket_exists, unhex};

/// What this process starts from.
pub(crate) fn mpi_setup() -> Setup {
    let world = MpiWorld::init().expect("MPI starts");
    let bootstrap = Arc::new(MpiBootstrap::new(Arc::clone(&world)));
    let (device, backend, collective) = platform::of_process(world);
    Setup { device, bootstrap, backend, collective }
}

/// As [`mpi_setup`], for a rank that will leave without `MPI_Finalize`; what it exports is reported, and `plan` befalls
/// it on the way.
pub(crate) fn doomed_setup(plan: Option<Fate>) -> Setup {
    let setup = mpi_setup();
    // Never dropped: the drop would wait for ranks that are gone.
    std::mem::forget(setup.clone());
    let bootstrap = Watched { inner: setup.bootstrap, fate: plan.map(|plan| (plan, AtomicU32::new(0))) };
    Setup { bootstrap: Arc::new(bootstrap), ..setup }
}

/// Something that happens to a rank when it enters an exchange.
pub(crate) struct Fate {
    /// The exchange.
    pub(crate) call: &'static str,
    /// How often it passes this exchange before.
    pub(crate) after: u32,
    /// What happens.
    pub(crate) what: Box<dyn Fn() + Send + Sync>,
}

impl Fate {
    pub(crate) fn new(
        call: &'static str,
        after: u32,
        what: impl Fn() + Send + Sync + 'static,
    ) -> Option<Self> {
        Some(Self { call, after, what: Box::new(what) })
    }
}

/// A bootstrap that reports the handles it exchanges, and lets a fate befall its rank.
struct Watched {
    inner: Arc<dyn Bootstrap>,
    fate: Option<(Fate, AtomicU32)>,
}

impl Bootstrap for Watched {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn group_size(&self) -> GroupSize {
        self.inner.group_size()
    }

    fn transport(&self) -> Transport {
        self.inner.transport()
    }

    fn all_gather(
        &self,
        call: &'static str,
        blob: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<Vec<u8>>, BootstrapError> {
        if call == "register: handles" {
            report(&format!("HANDLE {}", hex(blob)));
        }
        if let Some((fate, num_calls)) = self.fate.as_ref().filter(|(fate, _)| fate.call == call)
            && num_calls.fetch_add(1, Ordering::Relaxed) == fate.after
        {
            (fate.what)();
        }
        self.inner.all_gather(call, blob, deadline)
    }
}

/// This process is killed.
pub(crate) fn die() -> ! {
    kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

/// Kills process `pid`.
pub(crate) fn kill(pid: u32) {
    kill_process(pid_of(pid), Signal::KILL).expect("a live process");
}

/// This process is frozen; returns when another one has thawed it.
pub(crate) fn freeze() {
    unsafe extern "C" {
        safe fn raise(signal: i32) -> i32;
    }
    // To this very thread: one to the process may reach another thread first, and this one would go on for a while.
    assert_eq!(raise(Signal::STOP.as_raw()), 0, "a thread may stop its process");
}

/// Freezes process `pid`.
pub(crate) fn freeze_other(pid: u32) {
    kill_process(pid_of(pid), Signal::STOP).expect("a live process");
    super::wait_until_stopped(pid);
}

/// Lets process `pid` go on.
pub(crate) fn thaw(pid: u32) {
    kill_process(pid_of(pid), Signal::CONT).expect("a live process");
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(pid as i32).expect("a process id")
}

/// The ranks' processes. Collective.
pub(crate) fn pids(setup: &Setup) -> Vec<u32> {
    let blobs = setup
        .bootstrap
        .all_gather("pids", &std::process::id().to_le_bytes(), Deadline::after(LONG))
        .expect("everyone is there");
    blobs.iter().map(|blob| u32::from_le_bytes(blob[..].try_into().expect("4 bytes"))).collect()
}

/// A set of ranks.
pub(crate) fn ranks(ranks: &[u32]) -> RankSet {
    ranks.iter().copied().map(Rank).collect()
}

/// What the ranks of a job exported is gone, and so is every file of ours in shared memory.
pub(crate) fn expect_nothing_left(reported: &str, num_handles: usize) {
    let handles: Vec<_> = reported.lines().filter_map(|line| line.strip_prefix("HANDLE ")).collect();
    assert_eq!(handles.len(), num_handles, "{reported}");
    for handle in handles {
        assert!(!socket_exists(&unhex(handle)), "a socket is left: {handle}");
    }
    let files = fs::read_dir("/dev/shm").expect("/dev/shm").flatten();
    let ours: Vec<_> = files.filter(|file| file.file_name().to_string_lossy().contains("cpkv")).collect();
    assert!(ours.is_empty(), "{ours:?}");
}
