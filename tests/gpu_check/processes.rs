//! Ranks as processes: memory through CUDA IPC, the exchange through a hub in their parent.

use std::sync::Arc;

use cpkv::deadline::Deadline;
use cpkv::plan::Strategy;
use cpkv::symm::CudaIpcBackend;
use cpkv::units::{GroupSize, Rank};

use crate::args::RankArgs;
use crate::child::Running;
use crate::context::Context;
use crate::outcome::{Outcome, Problem};
use crate::ranks::Seat;
use crate::strategies::{prove_large, prove_small};
use crate::{adversary, hub};

/// Strategies that need no collective.
const WITHOUT_COLLECTIVE: [Strategy; 3] =
    [Strategy::StagingFill, Strategy::StagingPublish, Strategy::SymmDense];
/// Bodies of ranks.
const STRATEGIES: &str = "strategies";
const ADVERSARY: &str = "adversary";

/// Group sizes 2 and 8.
pub(crate) fn strategies(context: &Context) -> Result<Outcome, Problem> {
    for num_ranks in [2, 8] {
        if let Err(outcome) = run(context, STRATEGIES, num_ranks)? {
            return Ok(outcome);
        }
    }
    let num = WITHOUT_COLLECTIVE.len();
    Ok(Outcome::passed(format!("{num} strategies exact with 2 and 8 processes, {}", where_they_are(context))))
}

/// The adversarial barrier test.
pub(crate) fn adversary(context: &Context) -> Result<Outcome, Problem> {
    let details = match run(context, ADVERSARY, adversary::NUM_RANKS)? {
        Ok(details) => details,
        Err(outcome) => return Ok(outcome),
    };
    let num_violations = details.iter().filter_map(|detail| detail.parse::<usize>().ok()).sum();
    let described = adversary::describe(adversary::num_iterations(context), num_violations);
    Ok(Outcome::passed(format!("{described}; {}", where_they_are(context))))
}

fn where_they_are(context: &Context) -> String {
    match context.gpus.len() {
        1 => "all on one GPU".to_owned(),
        num => format!("dealt out to {num} GPUs"),
    }
}

/// Runs `task` on every rank: what they said, by rank; or the outcome that the first bad one means.
fn run(context: &Context, task: &str, num_ranks: u32) -> Result<Result<Vec<String>, Outcome>, Problem> {
    let (stdins, hub) = hub::start(GroupSize::new(num_ranks)?)?;
    let mut running = Vec::new();
    for (rank, stdin) in stdins.into_iter().enumerate() {
        let role = ["rank", task, &rank.to_string(), &num_ranks.to_string()].map(str::to_owned);
        running.push(Running::start(&role, context, stdin)?);
    }
    // The check's own deadline kills this process, and these with it.
    let deadline = Deadline::after(std::time::Duration::from_secs(80));
    let outcomes: Vec<Outcome> = running.into_iter().map(|rank| rank.finish(deadline)).collect();
    // All sockets are closed by now.
    let _ = hub.join();
    let mut details = Vec::new();
    let mut failed = Vec::new();
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Outcome::Passed { detail, .. } => details.push(detail),
            outcome => failed.push(format!("rank {rank} of {num_ranks}: {}", outcome.text())),
        }
    }
    Ok(if failed.is_empty() { Ok(details) } else { Err(Outcome::failed(failed.join("; "))) })
}

/// This process as a rank.
pub(crate) fn run_rank(args: &RankArgs, context: &Context) -> Result<Outcome, Problem> {
    let (rank, size) = (Rank(args.rank), GroupSize::new(args.size)?);
    let bootstrap = Arc::new(hub::join(rank, size)?);
    let device = context.open_gpu(args.rank)?;
    let backend = Arc::new(CudaIpcBackend::new(device.clone()));
    let seat = Seat { device: Arc::new(device), bootstrap, backend, collective: None };
    match args.task.as_str() {
        STRATEGIES => {
            prove_small(&seat, context, &WITHOUT_COLLECTIVE)?;
            if !context.quick {
                prove_large(&seat, &WITHOUT_COLLECTIVE)?;
            }
            Ok(Outcome::passed("exact"))
        }
        ADVERSARY => {
            let num_violations = adversary::run(&seat, adversary::num_iterations(context))?;
            Ok(Outcome::passed(num_violations.to_string()))
        }
        task => Err(format!("no rank has a body called {task}").into()),
    }
}
