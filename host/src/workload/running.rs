//! A request between its first chunk and its last.

use super::config::WorkloadConfig;
use super::page_pool::PagePool;
use super::prefix_cache::{ChainId, PrefixCache};
use super::trace::{HASH_BLOCK_TOKENS, TraceRequest};
use crate::plan::RequestPages;
use crate::units::PageId;

/// A request that pins its pages.
///
/// 1. [`RunningRequest::start`] pins the cached prefix.
/// 2. [`RunningRequest::extend`] adds the pages of a chunk.
/// 3. [`RunningRequest::settle`], once the chunk is persisted, caches it; then 2 again, or the end.
#[derive(Clone, Debug)]
pub(super) struct RunningRequest {
    pub(super) request_idx: usize,
    pub(super) line: u64,
    pub(super) input_length: u32,
    pub(super) chunk_idx: u32,
    /// Tokens whose KV is in the pool. Whole pages.
    pub(super) prefix_tokens: u32,
    /// Tokens of the chunk being computed.
    pub(super) new_tokens: u32,
    full_hash_ids: Vec<u64>,
    /// The pinned chain: the request's first `num_cached` hash ids.
    chain: ChainId,
    num_cached: usize,
    /// All pages so far, in sequence order. The cache owns those of `chain`, the request owns the others.
    pages: Vec<PageId>,
}

impl RunningRequest {
    /// Looks the request up in the cache and pins what it hits. The last token is always computed.
    pub(super) fn start(
        request_idx: usize,
        request: &TraceRequest,
        cache: &mut PrefixCache,
        batch_idx: u64,
    ) -> Self {
        let full_hash_ids = request.full_hash_ids();
        let max_hits = (request.input_length.saturating_sub(1) / HASH_BLOCK_TOKENS) as usize;
        let hit = cache.longest(&full_hash_ids[..full_hash_ids.len().min(max_hits)]);
        cache.pin_chain(hit.chain, batch_idx);
        Self {
            request_idx,
            line: request.line,
            input_length: request.input_length,
            chunk_idx: 0,
            prefix_tokens: hit.num_hash_ids as u32 * HASH_BLOCK_TOKENS,
            new_tokens: 0,
            full_hash_ids: full_hash_ids.to_vec(),
            chain: hit.chain,
            num_cached: hit.num_hash_ids,
            pages: hit.pages,
        }
    }

    /// Undoes [`RunningRequest::start`], for a request that got no chunk yet.
    pub(super) fn cancel(self, cache: &mut PrefixCache, batch_idx: u64) {
        debug_assert!(self.chunk_idx == 0 && self.new_tokens == 0);
        cache.unpin_chain(self.chain, batch_idx);
    }

    /// Tokens of the next chunk where `max_tokens` are left: all, or else whole pages. May be 0.
    pub(super) const fn next_chunk_tokens(&self, max_tokens: u32, page_size: u32) -> u32 {
        let remaining = self.input_length - self.prefix_tokens;
        if remaining <= max_tokens { remaining } else { max_tokens - max_tokens % page_size }
    }

    /// Adds a chunk of `new_tokens` in `pages`, which are the request's own.
    pub(super) fn extend(&mut self, new_tokens: u32, pages: Vec<PageId>) {
        self.new_tokens = new_tokens;
        self.pages.extend(pages);
    }

    /// Whether the chunk is the last.
    pub(super) const fn is_last(&self) -> bool {
        self.prefix_tokens + self.new_tokens == self.input_length
    }

    /// What the planner is told of the chunk.
    pub(super) fn request_pages(&self, page_size: u32) -> RequestPages {
        let num_prefix_pages = (self.prefix_tokens / page_size) as usize;
        let (prefix_pages, current_pages) = self.pages.split_at(num_prefix_pages.min(self.pages.len()));
        RequestPages {
            prefix_tokens: self.prefix_tokens,
            new_tokens: self.new_tokens,
            prefix_pages: prefix_pages.to_vec(),
            current_pages: current_pages.to_vec(),
        }
    }

    /// The chunk is persisted: caches what it completed. A request that is done frees what the cache did not
    /// take and drops its pins; one that is not is given back, ready for its next chunk.
    ///
    /// Where another request has cached the same chain first, its copy stays. A request that is not done
    /// then keeps this and all later pages to itself until it is: it goes on reading its own copy, and never
    /// pins more pages than it has.
    pub(super) fn settle(
        mut self,
        config: &WorkloadConfig,
        cache: &mut PrefixCache,
        pool: &mut PagePool,
        batch_idx: u64,
    ) -> Option<Self> {
        let done = self.is_last();
        let num_full = ((self.prefix_tokens + self.new_tokens) / HASH_BLOCK_TOKENS) as usize;
        let pages_per_id = config.pages_per_hash_block();
        let mut freed = Vec::new();
        let mut chain = self.chain;
        let parts = self.full_hash_ids.iter().zip(self.pages.chunks_exact(pages_per_id));
        for (&hash_id, pages) in parts.take(num_full).skip(self.num_cached) {
            match cache.child(chain, hash_id) {
                Some(_) if !done => break,
                Some(child) => {
                    cache.touch(child, batch_idx);
                    freed.extend_from_slice(pages);
                    chain = child;
                }
                None => {
                    chain = cache.insert(chain, hash_id, pages.to_vec(), batch_idx);
                    if !done {
                        cache.pin_last(chain);
                        self.num_cached += 1;
                    }
                }
            }
        }
        if done {
            cache.unpin_chain(self.chain, batch_idx);
            pool.release(freed);
            pool.release(self.pages.into_iter().skip(num_full * pages_per_id));
            return None;
        }
        self.chain = chain;
        self.prefix_tokens += self.new_tokens;
        self.new_tokens = 0;
        self.chunk_idx += 1;
        Some(self)
    }
}
