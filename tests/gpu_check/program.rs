//! `cpkv-gpu-check`: everything about cpkv that needs a GPU, on a machine that may have nothing else.
//!
//! Each check runs in a process of its own, with a deadline: what hangs or loses its context is killed and reported,
//! and the next check starts afresh. Nothing is built here, and no MPI is used.

mod adversary;
mod args;
mod batches;
mod bench;
mod checks;
mod child;
mod context;
mod device;
mod graph;
mod hub;
mod kernel_cases;
mod kernels;
mod nccl;
mod outcome;
mod pattern;
mod processes;
mod prover;
mod ranks;
mod report;
mod strategies;
mod timeout;
mod when;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Role};
use checks::CHECKS;
use context::Context;
use outcome::Outcome;
use report::Report;

/// No GPU, or a command line that makes no sense: nothing was checked.
const NOT_CHECKED: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    match &args.role {
        Some(Role::Check { name }) => child::serve(|| checks::run_here(name, &Context::of(&args)?)),
        Some(Role::Rank(rank)) => child::serve(|| processes::run_rank(rank, &Context::of(&args)?)),
        None => check_all(&args),
    }
}

/// Runs the chosen checks, one after the other.
fn check_all(args: &Args) -> ExitCode {
    let context = match Context::of(args) {
        Ok(context) => context,
        Err(problem) => {
            eprintln!("cpkv-gpu-check: {problem}");
            eprintln!("cpkv-gpu-check: there is no GPU to check, so nothing was checked");
            return ExitCode::from(NOT_CHECKED);
        }
    };
    let chosen: Vec<_> = CHECKS.iter().filter(|check| args.wants(check.name)).collect();
    let mut report = Report::begin(&context);
    let mut gone = None;
    for (at, check) in chosen.iter().enumerate() {
        report.announce(at + 1, chosen.len(), check);
        let (outcome, seconds) = match &gone {
            None => child::run_check(check, args, &context),
            Some(reason) => (Outcome::failed(format!("not run: {reason}")), 0.0),
        };
        if let Outcome::DeviceGone { reason } = &outcome {
            gone = Some(format!("the GPU cannot be opened any more ({reason})"));
        }
        report.add(check, outcome, seconds);
    }
    report.print();
    if let Some(path) = &args.json
        && let Err(problem) = report.write_json(path)
    {
        eprintln!("cpkv-gpu-check: {}: {problem}", path.display());
        return ExitCode::from(NOT_CHECKED);
    }
    if report.all_passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
