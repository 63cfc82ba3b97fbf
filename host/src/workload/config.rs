//! The admission limits and the pool of a workload.

use serde::{Deserialize, Serialize};

use super::error::WorkloadError;
use super::trace::HASH_BLOCK_TOKENS;

/// New tokens of a batch, at most, unless told otherwise.
pub const DEFAULT_MAX_EXTEND_TOKENS: u32 = 44_600;
/// Requests of a batch, at most, unless told otherwise.
pub const DEFAULT_MAX_BATCH_REQUESTS: u32 = 12;
/// The largest pool, in pages: page ids, and ids rounded up to a whole number per rank, stay within 31 bits.
pub const MAX_POOL_PAGES: u32 = 1 << 30;

/// What batches are made under. The same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadConfig {
    /// Tokens a page; divides 512.
    pub page_size: u32,
    /// Logical pages of the group-wide pool.
    pub num_pool_pages: u32,
    /// New tokens of a batch, at most. At least a page.
    pub max_extend_tokens: u32,
    /// Requests of a batch, at most.
    pub max_batch_requests: u32,
}

impl WorkloadConfig {
    /// A configuration with the default admission limits.
    pub const fn new(page_size: u32, num_pool_pages: u32) -> Self {
        Self {
            page_size,
            num_pool_pages,
            max_extend_tokens: DEFAULT_MAX_EXTEND_TOKENS,
            max_batch_requests: DEFAULT_MAX_BATCH_REQUESTS,
        }
    }

    /// Checks every number.
    ///
    /// # Errors
    /// [`WorkloadError`], the variant named after the refused number.
    pub const fn check(&self) -> Result<(), WorkloadError> {
        let Self { page_size, num_pool_pages, max_extend_tokens, max_batch_requests } = *self;
        if page_size == 0 || !HASH_BLOCK_TOKENS.is_multiple_of(page_size) {
            return Err(WorkloadError::PageSize { page_size });
        }
        if num_pool_pages == 0 || num_pool_pages > MAX_POOL_PAGES {
            return Err(WorkloadError::PoolPages { got: num_pool_pages });
        }
        if max_extend_tokens < page_size {
            return Err(WorkloadError::ExtendTokens { max_extend_tokens, page_size });
        }
        if max_batch_requests == 0 {
            return Err(WorkloadError::BatchRequests);
        }
        Ok(())
    }

    /// Pages of 512 tokens. The configuration is checked.
    pub(super) const fn pages_per_hash_block(&self) -> usize {
        (HASH_BLOCK_TOKENS / self.page_size) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_batch_can_be_made_under_are_refused() {
        let good = WorkloadConfig::new(64, 10);
        assert!(good.check().is_ok());
        for page_size in [0, 3, 96, 1024] {
            let error = WorkloadConfig { page_size, ..good }.check().unwrap_err();
            assert_eq!(error, WorkloadError::PageSize { page_size });
        }
        for got in [0, MAX_POOL_PAGES + 1] {
            let error = WorkloadConfig { num_pool_pages: got, ..good }.check().unwrap_err();
            assert_eq!(error, WorkloadError::PoolPages { got });
        }
        let error = WorkloadConfig { max_extend_tokens: 63, ..good }.check().unwrap_err();
        assert!(error.to_string().contains("63") && error.to_string().contains("64"));
        let error = WorkloadConfig { max_batch_requests: 0, ..good }.check().unwrap_err();
        assert_eq!(error, WorkloadError::BatchRequests);
    }
}
