//! The command line.

use std::path::PathBuf;
use std::str::FromStr;

use crate::bench::args::{BenchArgs, bench_help};
use crate::devices::DeviceArg;
use crate::plan::args::{PlanArgs, plan_help};
use crate::run::args::{RunArgs, run_help};
use clap::{Args, Parser, Subcommand};
use cpkv::model::PRESETS;
use cpkv::plan::Strategy;
use cpkv::workload::{DEFAULT_MAX_BATCH_REQUESTS, DEFAULT_MAX_EXTEND_TOKENS};
use serde::{Deserialize, Serialize};

/// Composes a shared, paged KV cache across the ranks of a context-parallel group, byte for byte, and hands it to decode
/// workers.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

pub(crate) const EXIT_CODES: &str = "Exit status: 0 done, and everything exact; 1 a fault, or bytes that were not exact; \
2 bad input; 141 the reader of the output has gone.\n\nRanks are the MPI processes under `mpirun -n N` (in a build with the feature `mpi`), else threads of \
one process.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compose batches of a trace with one strategy or all, prove every byte, and time them.
    #[command(after_help = compose_help())]
    Compose(ComposeArgs),
    /// Prefill batches of a trace and hand their KV to decode workers, layer by layer and as a whole; compare every byte, and
    /// say what the overlap gains.
    #[command(after_help = run_help())]
    Run(RunArgs),
    /// A decode worker of `run`, which starts it.
    #[command(hide = true)]
    DecodeWorker,
    /// Show one batch of a trace, without composing it: requests, spans, who computes and who owns each page, staging slots.
    #[command(after_help = plan_help())]
    Plan(PlanArgs),
    /// Measure this machine, in 2 minutes: barrier, gather, strategies, transfer and plans, each against what it has to beat.
    #[command(after_help = bench_help())]
    Bench(BenchArgs),
    /// Say what this machine has, and which strategy would be chosen and why.
    Doctor(DoctorArgs),
}

/// The models, a line each.
pub(crate) fn models_help() -> String {
    let models: Vec<_> =
        PRESETS.iter().map(|preset| format!("  {:<13} {}", preset.name, preset.description)).collect();
    models.join("\n")
}

fn compose_help() -> String {
    let strategies: Vec<_> = Strategy::ALL.iter().map(|strategy| strategy.name()).collect();
    format!(
        "Models:\n{}\n\nStrategies: {}, all, auto\n\nExamples:\n  cpkv compose --trace tests/data/sample_trace.jsonl \
         --model tiny --ranks 8\n  mpirun -n 8 --oversubscribe cpkv compose --trace trace.jsonl --layers 3 --json\n\n\
         {EXIT_CODES}",
        models_help(),
        strategies.join(", ")
    )
}

/// Batches to take from a trace, where nothing says otherwise.
pub(crate) const DEFAULT_NUM_BATCHES: u32 = 3;

/// What a job is made of: the trace, the model, and the limits of a batch.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub(crate) struct TraceArgs {
    /// Trace in the Mooncake format: one JSON object a line with timestamp, input_length, output_length, hash_ids.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,
    /// Model preset.
    #[arg(long, value_name = "NAME", default_value = "mla-fp8-78")]
    pub(crate) model: String,
    /// Take only the model's first N layers.
    #[arg(long, value_name = "N")]
    pub(crate) layers: Option<usize>,
    /// Batches to take from the trace.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_NUM_BATCHES, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batches: u32,
    /// Ranks as threads; under mpirun the ranks are the processes.
    #[arg(long, value_name = "N")]
    pub(crate) ranks: Option<u32>,
    /// New tokens of a batch; longer requests are cut into chunks.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_EXTEND_TOKENS)]
    pub(crate) max_extend_tokens: u32,
    /// Requests of a batch.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_BATCH_REQUESTS)]
    pub(crate) max_batch_requests: u32,
    /// Pages of the group-wide pool [default: what the batches need, with room for reuse].
    #[arg(long, value_name = "N")]
    pub(crate) pool_pages: Option<u32>,
    /// Seed of the stamps in every row.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds after which a barrier gives up and names the missing ranks.
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}

/// Arguments of `compose`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ComposeArgs {
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    /// Where ranks run: `cuda` gives each rank a GPU, several ranks one where they are fewer.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: DeviceArg,
    /// A strategy, `all`, or `auto` (the one the library would choose).
    #[arg(long, value_name = "NAME", default_value = "all")]
    pub(crate) strategy: StrategyArg,
    /// Timed rounds a batch; 0 only proves the bytes.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) rounds: u32,
    /// Carve the dense buffers from one allocation.
    #[arg(long)]
    pub(crate) dense_arena: bool,
    /// One JSON object on standard output instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `doctor`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Where ranks run.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: DeviceArg,
    /// Ranks the answer is for.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) ranks: u32,
    /// One JSON object on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which strategies to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StrategyArg {
    All,
    Auto,
    One(Strategy),
}

impl FromStr for StrategyArg {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "all" => Ok(Self::All),
            "auto" => Ok(Self::Auto),
            name => name
                .parse()
                .map(Self::One)
                .map_err(|error: cpkv::plan::StrategyError| format!("{error}; or all, or auto")),
        }
    }
}
