//! What is to be done: read from the command line and the trace before any rank starts.

use std::time::Duration;

use cpkv::compose::{ComposerOptions, StrategyChoice};
use cpkv::model::ModelSpec;
use cpkv::plan::Strategy;
use cpkv::units::GroupSize;
use cpkv::workload::PlannedBatch;

use crate::args::{StrategyArg, TraceArgs};
use crate::batches::{BatchSource, Batches, with_heap_variable};
use crate::error::RunError;

/// The job, the same on every rank.
pub(crate) struct Job {
    pub(crate) model: ModelSpec,
    pub(crate) group_size: GroupSize,
    pub(crate) batches: Vec<PlannedBatch>,
    pub(crate) num_pool_pages: u32,
    pub(crate) strategies: Vec<StrategyChoice>,
    pub(crate) options: ComposerOptions,
    pub(crate) rounds: u32,
    pub(crate) seed: u64,
    pub(crate) timeout: Duration,
}

/// What is composed, and how.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) strategy: StrategyArg,
    pub(crate) rounds: u32,
    pub(crate) dense_arena: bool,
    /// Whether the statistics say who was late.
    pub(crate) time_barriers: bool,
}

impl Job {
    /// Reads the trace and forms the batches.
    pub(crate) fn prepare(args: &TraceArgs, wanted: Wanted, group_size: GroupSize) -> Result<Self, RunError> {
        let mut model = ModelSpec::preset(&args.model)?;
        if let Some(num_layers) = args.layers {
            model = model.take_layers(num_layers)?;
        }
        let source = BatchSource {
            trace: &args.trace,
            max_extend_tokens: args.max_extend_tokens,
            max_batch_requests: args.max_batch_requests,
            pool_pages: args.pool_pages,
        };
        let Batches { batches, num_pool_pages } = source.form(&model, args.batches as usize)?;
        if batches.is_empty() {
            return Err(RunError::NoBatch);
        }
        let num_slots = |batch: &PlannedBatch| -> u64 {
            let requests = batch.batch.requests.iter();
            requests.map(|request| (request.prefix_pages.len() + request.current_pages.len()) as u64).sum()
        };
        let max_slots = batches.iter().map(num_slots).max().unwrap_or(0);
        let strategies = match wanted.strategy {
            StrategyArg::All => Strategy::ALL.map(StrategyChoice::Exactly).to_vec(),
            StrategyArg::Auto => vec![StrategyChoice::Auto],
            StrategyArg::One(strategy) => vec![StrategyChoice::Exactly(strategy)],
        };
        let wants_symm_dense = strategies.contains(&StrategyChoice::Exactly(Strategy::SymmDense));
        let options = ComposerOptions {
            admission: Some(source.admission()),
            time_barriers: wanted.time_barriers,
            symm_heap_bytes: None,
            symm_dense_slots: wants_symm_dense.then(|| u32::try_from(max_slots).unwrap_or(u32::MAX)),
            dense_arena: wanted.dense_arena,
        };
        let options = with_heap_variable(options)?;
        Ok(Self {
            model,
            group_size,
            batches,
            num_pool_pages,
            strategies,
            options,
            rounds: wanted.rounds,
            seed: args.seed,
            timeout: Duration::from_secs(args.timeout),
        })
    }

    /// Steps of the progress bar.
    pub(crate) fn num_steps(&self) -> u64 {
        let batches = self.batches.len() as u64;
        batches * (self.strategies.len() as u64 + u64::from(self.rounds)) + 1
    }
}
