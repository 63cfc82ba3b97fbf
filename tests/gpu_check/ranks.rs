//! Ranks: what each starts from, and threads of this process that are some.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cpkv::collective::{Collective, DeviceCollective};
use cpkv::deadline::Deadline;
use cpkv::device::{CudaDevice, Device};
use cpkv::group::{Bootstrap, GroupOptions, ThreadBootstrap};
use cpkv::symm::{CudaThreadsBackend, SharedBackend};
use cpkv::units::{GroupSize, Rank};

use crate::context::LONG;
use crate::outcome::Problem;

/// What one rank starts from.
pub(crate) struct Seat {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) bootstrap: Arc<dyn Bootstrap>,
    pub(crate) backend: SharedBackend,
    pub(crate) collective: Option<Arc<dyn Collective>>,
}

impl Seat {
    pub(crate) fn rank(&self) -> Rank {
        self.bootstrap.rank()
    }

    /// Returns when every rank is here.
    pub(crate) fn meet(&self, call: &'static str) -> Result<(), Problem> {
        Ok(self.bootstrap.barrier(call, Deadline::after(LONG))?)
    }
}

/// Checked, and barriers that give up after `barrier_timeout`.
pub(crate) const fn group_options(barrier_timeout: Duration) -> GroupOptions {
    GroupOptions {
        barrier_timeout,
        host_timeout: Duration::from_secs(LONG.as_secs() + 5),
        bootstrap_timeout: LONG,
        checked: true,
        num_spins: None,
    }
}

/// The seats of `size` threads; rank r has GPU r of `gpus`, dealt out in turn.
pub(crate) fn thread_seats(gpus: &[CudaDevice], size: GroupSize) -> Vec<Seat> {
    let devices: Vec<&CudaDevice> = gpus.iter().cycle().take(size.len()).collect();
    let shared = devices.iter().map(|&device| Arc::new(device.clone()) as Arc<dyn Device>).collect();
    let collectives = DeviceCollective::group(shared, size, LONG);
    let parts = devices.into_iter().zip(ThreadBootstrap::group(size)).zip(collectives);
    let seats = parts.map(|((device, bootstrap), collective)| Seat {
        device: Arc::new(device.clone()),
        bootstrap: Arc::new(bootstrap),
        backend: Arc::new(CudaThreadsBackend::new(device.clone())),
        collective: Some(Arc::new(collective)),
    });
    seats.collect()
}

/// Runs `body` on a thread for each seat: what each returned, by rank, or what all the failed ones said.
pub(crate) fn on_threads<T: Send>(
    seats: Vec<Seat>,
    body: impl Fn(Seat) -> Result<T, Problem> + Sync,
) -> Result<Vec<T>, Problem> {
    let body = &body;
    let outcomes: Vec<_> = thread::scope(|scope| {
        let ranks: Vec<_> = seats.into_iter().map(|seat| scope.spawn(move || body(seat))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|_| Err("it panicked".into()))).collect()
    });
    let size = outcomes.len();
    let mut values = Vec::new();
    let mut failed = Vec::new();
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(value) => values.push(value),
            Err(problem) => failed.push(format!("rank {rank} of {size}: {problem}")),
        }
    }
    if failed.is_empty() { Ok(values) } else { Err(failed.join("; ").into()) }
}
