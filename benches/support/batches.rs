//! The batches that planning is measured with, and the pool and group they are for.

#![allow(dead_code, reason = "each bench uses its part")]

use cpkv::plan::{Batch, PlanShape, RequestPages};
use cpkv::units::{GroupSize, PageId};

pub(crate) const PAGE_SIZE: u32 = 64;
pub(crate) const NUM_RANKS: u32 = 8;
/// About what 8 x 60 GB hold of 79 layers with 656 B a token.
pub(crate) const POOL_PAGES: u32 = 131_072;
pub(crate) const HEADLINE_REQUESTS: u32 = 12;
pub(crate) const HEADLINE_TOKENS: u32 = 44_600;

/// Hands out the pool's pages in an order that years of reuse could have left: scattered over the whole pool.
struct FreeList {
    num_taken: u32,
}

impl FreeList {
    fn take(&mut self, num_pages: u32) -> Vec<PageId> {
        // An odd step is a permutation of a power of two.
        let page = |nth: u32| PageId((nth.wrapping_mul(40_503) % POOL_PAGES) as i32);
        let first = self.num_taken;
        self.num_taken += num_pages;
        (first..self.num_taken).map(page).collect()
    }
}

/// `num_requests` requests of unequal lengths, `new_tokens` together. Every second one has a prefix, the fourth,
/// eighth, ... share one.
pub(crate) fn batch(num_requests: u32, new_tokens: u32) -> Batch {
    let mut free = FreeList { num_taken: 0 };
    let shared = free.take(32);
    let weights = |idx: u32| u64::from(1 + idx * 7 % 5);
    let total: u64 = (0..num_requests).map(weights).sum();
    let (mut passed, mut given) = (0, 0);
    let requests = (0..num_requests).map(|idx| {
        passed += weights(idx);
        let end = (u64::from(new_tokens) * passed / total) as u32;
        let new_tokens = end - given;
        given = end;
        let prefix_pages = match idx % 4 {
            1 => free.take(24 + 8 * (idx % 3)),
            3 => shared.clone(),
            _ => Vec::new(),
        };
        RequestPages {
            prefix_tokens: prefix_pages.len() as u32 * PAGE_SIZE,
            new_tokens,
            prefix_pages,
            current_pages: free.take(new_tokens.div_ceil(PAGE_SIZE)),
        }
    });
    Batch { requests: requests.collect(), num_pad_slots: 0 }
}

pub(crate) fn shape() -> PlanShape {
    let group_size = GroupSize::new(NUM_RANKS).unwrap_or_else(|error| panic!("{error}"));
    PlanShape { group_size, page_size: PAGE_SIZE, num_logical_pages: POOL_PAGES }
}
