//! The batches of a trace, as every command forms them.

use std::path::Path;

use cpkv::compose::ComposerOptions;
use cpkv::model::ModelSpec;
use cpkv::plan::Admission;
use cpkv::workload::{PlannedBatch, Workload, WorkloadConfig, default_pool_pages, read_trace};

use crate::error::RunError;

/// A trace, and what its batches are formed under.
pub(crate) struct BatchSource<'a> {
    pub(crate) trace: &'a Path,
    pub(crate) max_extend_tokens: u32,
    pub(crate) max_batch_requests: u32,
    pub(crate) pool_pages: Option<u32>,
}

/// The first batches of a trace, and the pool they were formed in.
pub(crate) struct Batches {
    pub(crate) batches: Vec<PlannedBatch>,
    pub(crate) num_pool_pages: u32,
}

impl BatchSource<'_> {
    /// Reads the trace and forms its first batches: `num_batches`, or as many as it has.
    pub(crate) fn form(&self, model: &ModelSpec, num_batches: usize) -> Result<Batches, RunError> {
        let trace = read_trace(self.trace)?;
        let mut config = WorkloadConfig {
            page_size: model.page_size,
            num_pool_pages: self.pool_pages.unwrap_or(1),
            max_extend_tokens: self.max_extend_tokens,
            max_batch_requests: self.max_batch_requests,
        };
        if self.pool_pages.is_none() {
            config.num_pool_pages = default_pool_pages(&trace, config, num_batches)?;
        }
        let mut workload = Workload::new(trace, config)?;
        let mut batches = Vec::new();
        while batches.len() < num_batches
            && let Some(batch) = workload.next_batch()?
        {
            batches.push(batch);
        }
        Ok(Batches { batches, num_pool_pages: config.num_pool_pages })
    }

    /// What staging has to hold.
    pub(crate) fn admission(&self) -> Admission {
        Admission {
            max_extend_tokens: u64::from(self.max_extend_tokens),
            max_batch_requests: u64::from(self.max_batch_requests),
        }
    }
}

/// `options` with the size of staging that the environment asks for.
pub(crate) fn with_heap_variable(options: ComposerOptions) -> Result<ComposerOptions, RunError> {
    let heap = std::env::var_os(ComposerOptions::HEAP_VARIABLE);
    let heap = heap.map(|value| value.to_string_lossy().into_owned());
    options.with_heap_variable(heap.as_deref()).map_err(|value| RunError::HeapVariable { value })
}
