//! The command line of `run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::args::{EXIT_CODES, TraceArgs, models_help};

const MEASURED: &str = "What is measured, for all batches together, first rank's start to last rank's end:
  forward     the batches without transfer: compose, persist, and a stand-in for attention that sleeps
  transfer    the same pages through the manager, with nothing else running
  bare        the same blocks given straight to the engine, layer by layer
  per mode    the forward with its transfer; exposed is what is left of it after the forward;
              overlap is max(forward, transfer) / total: all of them are measured apart, so noise can lift it over 1
  compose     the forward once more, without the stand-in; timed apart, too
  x bare rate the rate over the bare loop's: of a mode with its forward, so what counts is the line `transfer alone`
  on_layer_end  what the call costs the forward's thread

The stand-in sleeps as long, all layers together, as the batch's transfer takes alone, unless --compute-us says else: it
leaves the processors to the transfer, as a GPU would. It runs on the CPU; decode workers are on this machine.
Without --layers, --batches or --model tiny it takes minutes: all layers of a large model.";

/// What stands below the options.
pub(crate) fn run_help() -> String {
    format!(
        "{MEASURED}\n\nModels:\n{}\n\nExamples:\n  cpkv run --trace tests/data/sample_trace.jsonl --model tiny --ranks 4\n  \
         mpirun -n 8 --oversubscribe cpkv run --trace trace.jsonl --layers 8 --batches 2 --engine nixl --json\n\n\
         {EXIT_CODES}",
        models_help()
    )
}

/// Arguments of `run`.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    /// Transfer engine [default: in-process; under mpirun: nixl].
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<EngineArg>,
    /// How pages are sent; `both` sends every batch both ways and compares.
    #[arg(long, value_name = "MODE", default_value = "both")]
    pub(crate) mode: ModeArg,
    /// Microseconds that the stand-in for attention sleeps a layer [default: as long as the transfer takes, see below].
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(..=60_000_000))]
    pub(crate) compute_us: Option<u64>,
    /// Decode workers that a request's pages are spread over: processes with nixl, else part of this one.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) decode_workers: u32,
    /// Prompts below go as a whole after the forward.
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) min_prompt_tokens: u32,
    /// Threads of a rank that send finished layers. NIXL takes one call at a time: with it, more of them stand in each other's way.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) transfer_threads: u32,
    /// How far below the forward what transfers runs, as Linux counts: threads of ranks, and decode workers, which elsewhere
    /// have machines of their own.
    #[arg(long, value_name = "N", default_value_t = 19, value_parser = clap::value_parser!(u8).range(..=19))]
    pub(crate) transfer_nice: u8,
    /// Times that everything is done; medians are reported.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Write what each rank's stream, workers and engine did, for Perfetto or chrome://tracing.
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
    /// One JSON object on standard output instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A transfer engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum EngineArg {
    /// NIXL over TCP (or what `UCX_TLS` says), to decode workers that are processes.
    Nixl,
    /// Copies between the threads of one process.
    InProcess,
}

impl EngineArg {
    /// The engine's own name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nixl => "nixl",
            Self::InProcess => "in-process",
        }
    }
}

/// How pages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum ModeArg {
    /// Each layer once it is persisted.
    PerLayer,
    /// All layers after the forward.
    Monolithic,
    /// The one, then the other, in turn.
    Both,
}
