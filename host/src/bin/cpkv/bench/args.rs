//! The command line of `bench`.

use std::path::PathBuf;

use clap::Args;

use crate::args::{EXIT_CODES, models_help};
use crate::devices::DeviceArg;

/// Seconds of `--quick`.
pub(crate) const QUICK_SECONDS: u64 = 15;

pub(crate) fn bench_help() -> String {
    format!(
        "What is measured, in turn: the barrier by number of ranks; the gather kernel by page size, against memcpy; transfer \
         by block size, against memcpy; a forward and its transfer side by side; plans by tokens; and every strategy over a \
         grid of batches, round by round, against its own work without the barrier (ideal), memcpy and, under mpirun, \
         MPI_Allgatherv and MPI_Allreduce. What does not fit the time is left out, and said to be; strategies that are several times slower than the \
         fastest take part in some rounds only. Figures are medians and p99; where another is faster than the default \
         strategy, the row is marked as lost.\n\nBytes are not compared here: \
         `cpkv compose` does that.\n\nModels:\n{}\n\nExamples:\n  cpkv bench --report out\n  mpirun -n 8 --oversubscribe cpkv \
         bench --json --report out\n  cpkv bench --quick --ranks 2\n\n{EXIT_CODES}",
        models_help()
    )
}

/// Arguments of `bench`.
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchArgs {
    /// Seconds that the whole may take; the sweep over batches is cut to fit. Below 30 little is left for it: what each part needs at
    /// least takes 20 and more with many ranks.
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u64).range(2..=86_400))]
    pub(crate) seconds: u64,
    /// Small sizes, in about 15 seconds.
    #[arg(long, conflicts_with = "seconds")]
    pub(crate) quick: bool,
    /// Model preset.
    #[arg(long, value_name = "NAME", default_value = "mla-fp8-78")]
    pub(crate) model: String,
    /// Take only the model's first N layers.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) layers: usize,
    /// Ranks as threads (8 where nothing is said); under mpirun the ranks are the processes.
    #[arg(long, value_name = "N")]
    pub(crate) ranks: Option<u32>,
    /// Where ranks run: `cuda` gives each rank a GPU, several ranks one where they are fewer.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: DeviceArg,
    /// Write one page with plots, tables and the figures of `--json` to DIR/index.html.
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// One JSON object on standard output instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Seed of the batches' pages.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds after which a barrier gives up and names the missing ranks.
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}

impl BenchArgs {
    /// Seconds that the whole may take.
    pub(crate) const fn total_seconds(&self) -> u64 {
        if self.quick { QUICK_SECONDS } else { self.seconds }
    }
}
