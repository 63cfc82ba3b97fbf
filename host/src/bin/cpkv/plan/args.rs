//! The command line of `plan`.

use std::path::PathBuf;

use clap::Args;
use cpkv::workload::{DEFAULT_MAX_BATCH_REQUESTS, DEFAULT_MAX_EXTEND_TOKENS};

use crate::args::{EXIT_CODES, models_help};

/// What follows the help of `plan`.
pub(crate) fn plan_help() -> String {
    format!("{ABOUT}\n\nModels:\n{}\n\n{EXAMPLES}\n\n{EXIT_CODES}", models_help())
}

const ABOUT: &str = "Nothing is composed and no rank starts: the plan follows from the trace and the limits \
alone, and is the one that `compose` works by with the same arguments.\n\nIn the table: segments are the runs of a rank's new tokens, each with its pages; egress is what peers \
read of a rank's pages, in pages and in MiB over all layers.";

const EXAMPLES: &str = "Examples:\n  cpkv plan --trace tests/data/sample_trace.jsonl --model tiny --ranks 4 --max-extend-tokens 400 --batch 1\n  cpkv plan --trace trace.jsonl \
--batch 0 --svg batch.svg";

/// Arguments of `plan`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlanArgs {
    /// Trace in the Mooncake format: one JSON object a line with timestamp, input_length, output_length, hash_ids.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,
    /// The batch to show, counted from 0.
    #[arg(long, value_name = "N")]
    pub(crate) batch: u32,
    /// Model preset.
    #[arg(long, value_name = "NAME", default_value = "mla-fp8-78")]
    pub(crate) model: String,
    /// Size of the group (8 where nothing is said; under mpirun the number of processes).
    #[arg(long, value_name = "N")]
    pub(crate) ranks: Option<u32>,
    /// New tokens of a batch; longer requests are cut into chunks.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_EXTEND_TOKENS)]
    pub(crate) max_extend_tokens: u32,
    /// Requests of a batch.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_BATCH_REQUESTS)]
    pub(crate) max_batch_requests: u32,
    /// Pages of the group-wide pool [default: as `compose` chooses it, for 3 batches or as many as it takes to get here].
    #[arg(long, value_name = "N")]
    pub(crate) pool_pages: Option<u32>,
    /// Also draw the batch to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// One JSON object on standard output instead of tables, with every page.
    #[arg(long)]
    pub(crate) json: bool,
}
