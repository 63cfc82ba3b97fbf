//! Errors of workloads.

use thiserror::Error;

use super::config::MAX_POOL_PAGES;
use super::page_pool::PoolError;
use super::trace::{HASH_BLOCK_TOKENS, RequestProblem};

/// Why no batch can be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// Hits come in parts of 512 tokens, which must be whole pages.
    #[error(
        "workload: {HASH_BLOCK_TOKENS} tokens of a trace are not whole pages of {page_size}: \
         choose a page size that divides {HASH_BLOCK_TOKENS}"
    )]
    PageSize {
        /// Tokens a page.
        page_size: u32,
    },
    /// A chunk is at least a page.
    #[error(
        "workload: max_extend_tokens {max_extend_tokens} is under one page of {page_size} tokens: raise it"
    )]
    ExtendTokens {
        /// The refused limit.
        max_extend_tokens: u32,
        /// Tokens a page.
        page_size: u32,
    },
    /// A limit of no request.
    #[error("workload: max_batch_requests is 0: choose at least 1")]
    BatchRequests,
    /// A pool of no page, or of more than page ids can name.
    #[error("workload: a pool of {got} pages is outside 1..={MAX_POOL_PAGES}: choose another --pool-pages")]
    PoolPages {
        /// The refused number.
        got: u32,
    },
    /// A request makes no sense.
    #[error("workload: the request of trace line {line}: {problem}")]
    Request {
        /// The request's line in its trace, from 1.
        line: u64,
        /// Why.
        problem: RequestProblem,
    },
    /// A request does not fit the pool, even alone.
    #[error(
        "workload: batch {batch_idx}, the request of trace line {line} ({num_request_pages} pages in all): \
         {problem}"
    )]
    Pool {
        /// The batch, from 0.
        batch_idx: u64,
        /// The request's line in its trace, from 1.
        line: u64,
        /// Pages of the whole request.
        num_request_pages: u32,
        /// Why.
        problem: PoolError,
    },
}
