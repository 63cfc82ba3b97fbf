//! What is to be measured: read from the command line before any rank starts.

use std::time::Duration;

use cpkv::model::ModelSpec;
use cpkv::units::GroupSize;

use super::args::BenchArgs;
use super::cases::{FULL, Grid, QUICK};
use super::copies::{QUICK_SAMPLE_BYTES, SAMPLE_BYTES};
use crate::error::RunError;

/// The job, the same on every rank.
pub(crate) struct BenchJob {
    pub(crate) model: ModelSpec,
    pub(crate) group_size: GroupSize,
    pub(crate) grid: Grid,
    /// Bytes of one sample of gather and transfer.
    pub(crate) sample_bytes: u64,
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
    pub(crate) timeout: Duration,
}

impl BenchJob {
    pub(crate) fn prepare(args: &BenchArgs, group_size: GroupSize) -> Result<Self, RunError> {
        let (grid, sample_bytes) =
            if args.quick { (QUICK, QUICK_SAMPLE_BYTES) } else { (FULL, SAMPLE_BYTES) };
        Ok(Self {
            model: ModelSpec::preset(&args.model)?.take_layers(args.layers)?,
            group_size,
            grid,
            sample_bytes,
            seconds: args.total_seconds(),
            seed: args.seed,
            timeout: Duration::from_secs(args.timeout),
        })
    }

    /// The whole time.
    pub(crate) const fn total(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}
