//! How large a pool to take where the user does not say.

use std::sync::Arc;

use super::batcher::Workload;
use super::config::{MAX_POOL_PAGES, WorkloadConfig};
use super::error::WorkloadError;
use super::page_pool::PoolError;
use super::trace::TraceRequest;

/// Pages the first `num_batches` batches of `requests` use, at their peaks, in a pool without limit.
#[derive(Clone, Copy, Debug, Default)]
struct Peaks {
    num_pinned: u32,
    num_used: u32,
}

/// A pool for the first `num_batches` batches of `requests`, in pages: they fit, cached prefixes survive
/// from batch to batch, and yet not everything does, so pages are evicted and written again.
///
/// With the peaks of a simulation in a pool without limit, the size is `pinned + (used - pinned) / 2`,
/// rounded up: what the batches cannot do without, and room for half of what they would leave cached. A
/// second simulation tries that size and grows it where a request does not fit. `config.num_pool_pages` is
/// not looked at.
///
/// # Errors
/// As [`Workload::new`]; [`WorkloadError::Pool`] where the batches fit no pool.
pub fn default_pool_pages(
    requests: &[TraceRequest],
    config: WorkloadConfig,
    num_batches: usize,
) -> Result<u32, WorkloadError> {
    let requests: Arc<[TraceRequest]> = Arc::from(requests);
    let peaks_in = |num_pool_pages| {
        let config = WorkloadConfig { num_pool_pages, ..config };
        peaks(Workload::new(Arc::clone(&requests), config)?, num_batches)
    };
    let Peaks { num_pinned, num_used } = peaks_in(MAX_POOL_PAGES)?;
    let mut num_pages = (num_pinned + (num_used - num_pinned).div_ceil(2)).clamp(1, MAX_POOL_PAGES);
    loop {
        match peaks_in(num_pages) {
            Ok(_) => return Ok(num_pages),
            Err(WorkloadError::Pool { problem: PoolError::Exhausted { needed, available, .. }, .. })
                if num_pages < MAX_POOL_PAGES =>
            {
                num_pages = num_pages.saturating_add(needed - available).min(MAX_POOL_PAGES);
            }
            Err(error) => return Err(error),
        }
    }
}

fn peaks(mut workload: Workload, num_batches: usize) -> Result<Peaks, WorkloadError> {
    let mut peaks = Peaks::default();
    for _ in 0..num_batches {
        if workload.next_batch()?.is_none() {
            break;
        }
        let usage = workload.pool_usage();
        peaks.num_pinned = peaks.num_pinned.max(usage.num_pinned);
        peaks.num_used = peaks.num_used.max(usage.num_used);
    }
    Ok(peaks)
}
