//! What is to be done: read from the command line and the trace before any rank starts.

use std::time::Duration;

use cpkv::compose::{ComposerOptions, StrategyChoice};
use cpkv::model::ModelSpec;
use cpkv::plan::{Admission, Strategy};
use cpkv::units::GroupSize;
use cpkv::workload::{PlannedBatch, Workload, WorkloadConfig, default_pool_pages, read_trace};

use crate::args::{ComposeArgs, StrategyArg};
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

impl Job {
    /// Reads the trace and forms the batches.
    pub(crate) fn prepare(args: &ComposeArgs, group_size: GroupSize) -> Result<Self, RunError> {
        let mut model = ModelSpec::preset(&args.model)?;
        if let Some(num_layers) = args.layers {
            model = model.take_layers(num_layers)?;
        }
        let heap = std::env::var_os(ComposerOptions::HEAP_VARIABLE);
        let heap = heap.map(|value| value.to_string_lossy().into_owned());
        let trace = read_trace(&args.trace)?;
        let mut config = WorkloadConfig {
            page_size: model.page_size,
            num_pool_pages: args.pool_pages.unwrap_or(1),
            max_extend_tokens: args.max_extend_tokens,
            max_batch_requests: args.max_batch_requests,
        };
        if args.pool_pages.is_none() {
            config.num_pool_pages = default_pool_pages(&trace, config, args.batches as usize)?;
        }
        let mut workload = Workload::new(trace, config)?;
        let mut batches = Vec::new();
        while batches.len() < args.batches as usize
            && let Some(batch) = workload.next_batch()?
        {
            batches.push(batch);
        }
        if batches.is_empty() {
            return Err(RunError::NoBatch);
        }
        let num_slots = |batch: &PlannedBatch| -> u64 {
            let requests = batch.batch.requests.iter();
            requests.map(|request| (request.prefix_pages.len() + request.current_pages.len()) as u64).sum()
        };
        let max_slots = batches.iter().map(num_slots).max().unwrap_or(0);
        let strategies = match args.strategy {
            StrategyArg::All => Strategy::ALL.map(StrategyChoice::Exactly).to_vec(),
            StrategyArg::Auto => vec![StrategyChoice::Auto],
            StrategyArg::One(strategy) => vec![StrategyChoice::Exactly(strategy)],
        };
        let wants_symm_dense = strategies.contains(&StrategyChoice::Exactly(Strategy::SymmDense));
        let options = ComposerOptions {
            admission: Some(Admission {
                max_extend_tokens: u64::from(args.max_extend_tokens),
                max_batch_requests: u64::from(args.max_batch_requests),
            }),
            symm_heap_bytes: None,
            symm_dense_slots: wants_symm_dense.then(|| u32::try_from(max_slots).unwrap_or(u32::MAX)),
            dense_arena: args.dense_arena,
        };
        let options =
            options.with_heap_variable(heap.as_deref()).map_err(|value| RunError::HeapVariable { value })?;
        Ok(Self {
            model,
            group_size,
            batches,
            num_pool_pages: config.num_pool_pages,
            strategies,
            options,
            rounds: args.rounds,
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
