//! Workloads: requests of a trace become batches over a paged pool with a prefix cache. Pure, but for
//! [`read_trace`], and the same on every rank: pages, hits and evictions follow from the trace and the
//! configuration alone.
//!
//! 1. [`read_trace`] gives the requests.
//! 2. [`default_pool_pages`] chooses a pool size, where the user does not.
//! 3. [`Workload::next_batch`] plans a batch; the caller computes and persists it, and releases what reads
//!    its pages.
//! 4. [`Workload::complete`], or the next call of `next_batch`, says that this is done: only then do the
//!    batch's pages become hits, or free.

mod batcher;
mod config;
mod error;
mod page_pool;
mod pool_size;
mod prefix_cache;
mod running;
mod trace;

#[cfg(test)]
mod model_check;
#[cfg(test)]
mod tests;

pub use batcher::{BatchRequest, PlannedBatch, PoolUsage, Workload};
pub use config::{DEFAULT_MAX_BATCH_REQUESTS, DEFAULT_MAX_EXTEND_TOKENS, MAX_POOL_PAGES, WorkloadConfig};
pub use error::WorkloadError;
pub use page_pool::PoolError;
pub use pool_size::default_pool_pages;
pub use trace::{
    HASH_BLOCK_TOKENS, MAX_INPUT_LENGTH, RequestProblem, TraceError, TraceRequest, parse_trace, read_trace,
};
