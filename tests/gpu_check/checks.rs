//! The checks, in order.

use std::time::Duration;

use crate::context::Context;
use crate::outcome::{Outcome, Problem};
use crate::{adversary, bench, device, graph, kernels, nccl, processes, strategies, timeout};

/// One check.
pub(crate) struct Check {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it shows, in one line.
    pub(crate) what: &'static str,
    /// It is killed after this.
    pub(crate) timeout: Duration,
    /// Its body, run in a process of its own.
    body: fn(&Context) -> Result<Outcome, Problem>,
}

const fn check(
    name: &'static str,
    what: &'static str,
    seconds: u64,
    body: fn(&Context) -> Result<Outcome, Problem>,
) -> Check {
    Check { name, what, timeout: Duration::from_secs(seconds), body }
}

/// Correctness first, then figures.
pub(crate) const CHECKS: [Check; 15] = [
    check("device", "the GPUs, the driver, and that every kernel loads and runs", 60, device::run),
    check("kernels", "every kernel, both gathers, against the CPU backend's bytes", 90, kernels::run),
    check(
        "strategies",
        "all strategies, ranks as threads of one GPU, every byte",
        90,
        strategies::on_one_gpu,
    ),
    check("strategies-gpus", "the same, one rank a GPU", 60, strategies::one_rank_a_gpu),
    check(
        "processes",
        "strategies without a collective, ranks as processes (CUDA IPC)",
        90,
        processes::strategies,
    ),
    check("nccl", "the collective strategies over NCCL, one rank a GPU", 60, nccl::run),
    check(
        "barrier-threads",
        "8 threads, a rotating one late: nobody passes a barrier early",
        60,
        adversary::threads,
    ),
    check("barrier-processes", "the same with 8 processes", 90, processes::adversary),
    check("timeout", "a rank that never comes is named, and nothing behind it runs", 40, timeout::run),
    check("graph", "a layer captured as a graph replays exactly", 60, graph::run),
    check("bench-gather", "gathers against a memcpy of the same bytes", 150, bench::gather::run),
    check("bench-fills", "fills, in bytes written a second", 40, bench::fills::run),
    check(
        "bench-barrier",
        "barrier latency, inside the kernel and in a chain of launches",
        60,
        bench::barrier::run,
    ),
    check(
        "bench-layer",
        "the host's time for a layer: launch by launch, and as a graph",
        40,
        bench::layer::run,
    ),
    check("bench-plan", "planning a large batch and uploading its tables", 40, bench::plan::run),
];

/// Runs the check called `name` in this process.
pub(crate) fn run_here(name: &str, context: &Context) -> Result<Outcome, Problem> {
    let check = CHECKS.iter().find(|check| check.name == name);
    let check = check.ok_or_else(|| format!("there is no check called {name}"))?;
    (check.body)(context)
}
