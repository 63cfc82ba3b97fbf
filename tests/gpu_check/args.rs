//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::checks::CHECKS;

const EXIT_CODES: &str = "Exit status: 0 every check passed or had a reason to be skipped; 1 a check failed; 2 nothing \
was checked: no GPU, or a bad command line. Figures do not decide it.";

/// Checks cpkv on this machine's GPUs: bytes of every kernel and strategy, barrier, faults, graphs; then benchmarks.
#[derive(Clone, Debug, Parser)]
#[command(name = "cpkv-gpu-check", version, about = "Checks cpkv on a machine with a GPU: bytes first, then speed", after_help = after_help())]
pub(crate) struct Args {
    /// Small sizes and few repetitions: for a virtual GPU.
    #[arg(long, global = true)]
    pub(crate) quick: bool,
    /// Only this check; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = names())]
    pub(crate) only: Vec<String>,
    /// All results as one JSON object.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Group sizes of ranks that are threads.
    #[arg(long, global = true, value_name = "LIST", value_delimiter = ',', default_value = "1,2,3,8",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) ranks: Vec<u32>,
    /// All of it takes this long at most, in seconds; what is left then fails.
    #[arg(long, value_name = "S", default_value_t = 470)]
    pub(crate) limit: u64,
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
}

/// What a process that this program starts does.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Role {
    /// One check.
    #[command(hide = true)]
    Check {
        /// Which.
        name: String,
    },
    /// One rank of a check; its standard input is the socket of the hub.
    #[command(hide = true)]
    Rank(RankArgs),
}

/// Which rank, of what.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RankArgs {
    /// The body.
    pub(crate) task: String,
    /// The rank.
    pub(crate) rank: u32,
    /// The size of its group.
    pub(crate) size: u32,
}

impl Args {
    /// Whether `name` is to be checked.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

fn names() -> clap::builder::PossibleValuesParser {
    CHECKS.iter().map(|check| check.name).collect::<Vec<_>>().into()
}

fn after_help() -> String {
    let checks: Vec<_> = CHECKS.iter().map(|check| format!("  {:<20} {}", check.name, check.what)).collect();
    format!("Checks, in order:\n{}\n\n{EXIT_CODES}", checks.join("\n"))
}
