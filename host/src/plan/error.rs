//! Why a batch cannot be planned.

use thiserror::Error;

use crate::units::{GroupSize, PageId, Rank};

/// Why a batch cannot be planned. The batch is refused whole.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A rank outside the group.
    #[error("rank {rank} is outside a group of {group_size}")]
    RankOutOfRange {
        /// The rank.
        rank: Rank,
        /// The group.
        group_size: GroupSize,
    },
    /// A page of no token.
    #[error("a page size of 0 tokens: choose at least 1")]
    NoPageSize,
    /// A page outside the pool.
    #[error(
        "request {request}: {list} page {position} is {page}, outside the pool of {num_logical_pages} pages"
    )]
    PageOutOfRange {
        /// Position of the request in the batch.
        request: usize,
        /// `prefix` or `current`.
        list: &'static str,
        /// Position in that list.
        position: usize,
        /// The page.
        page: PageId,
        /// Size of the pool.
        num_logical_pages: u32,
    },
    /// A list of pages that does not hold the request's tokens.
    #[error(
        "request {request}: {got} {list} pages given, {expected} needed for {prefix_tokens} prefix and {new_tokens} \
         new tokens"
    )]
    PageCount {
        /// Position of the request in the batch.
        request: usize,
        /// `prefix` or `current`.
        list: &'static str,
        /// Pages needed.
        expected: u64,
        /// Pages given.
        got: usize,
        /// The request's prefix tokens.
        prefix_tokens: u32,
        /// The request's new tokens.
        new_tokens: u32,
    },
    /// A page that two requests, or one request twice, would write.
    #[error(
        "page {page} is current twice, the second time in request {request}: a current page has one place"
    )]
    CurrentTwice {
        /// The page.
        page: PageId,
        /// Position of the second request.
        request: usize,
    },
    /// A page that is read and written in one batch.
    #[error("page {page} is current, and prefix of request {request}, in one batch: give the request a copy")]
    CurrentIsPrefix {
        /// The page.
        page: PageId,
        /// Position of the request whose prefix it is.
        request: usize,
    },
    /// Padding where tokens are.
    #[error("request {request}: {list} page {position} is padding (-1), but tokens live there")]
    PadWithTokens {
        /// Position of the request in the batch.
        request: usize,
        /// `current`, or `prefix` for a straddling page.
        list: &'static str,
        /// Position in that list.
        position: usize,
    },
    /// More slots or rows than 32-bit positions can name.
    #[error("the batch needs {num_slots} dense slots of {page_size} tokens: over the limit of 2^31 rows")]
    TooLarge {
        /// Slots needed.
        num_slots: u64,
        /// Tokens a page.
        page_size: u32,
    },
    /// The batch does not fit what was registered.
    #[error(
        "the batch needs {needed} pages of {what}, {capacity} are registered: admit less, or register with larger \
         limits (max_extend_tokens, max_batch_requests, CPKV_SYMM_HEAP_MB)"
    )]
    OverCapacity {
        /// `staging` or `symmetric dense`.
        what: &'static str,
        /// Pages needed.
        needed: u64,
        /// Pages registered.
        capacity: u64,
    },
}
