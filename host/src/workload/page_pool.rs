//! The free list of the group-wide pool: which logical page is handed out next. The same on every rank.

use std::collections::VecDeque;

use thiserror::Error;

use super::prefix_cache::PrefixCache;
use crate::units::PageId;

/// Why the pool gave no pages.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Free pages and evictable pages together are too few.
    #[error(
        "{needed} pages are needed but {available} of the pool's {num_pages} are free or evictable \
         (running requests pin the others): raise --pool-pages"
    )]
    Exhausted {
        /// Pages asked for.
        needed: u32,
        /// Pages that are free, or cached and used by no running request.
        available: u32,
        /// Pages of the pool.
        num_pages: u32,
    },
}

/// Hands out pages: first those never used, in order, then freed ones, longest free first.
#[derive(Clone, Debug)]
pub(super) struct PagePool {
    num_pages: u32,
    /// Pages `0..num_touched` have been handed out at least once.
    num_touched: u32,
    freed: VecDeque<PageId>,
    num_evicted: u64,
}

impl PagePool {
    pub(super) const fn new(num_pages: u32) -> Self {
        Self { num_pages, num_touched: 0, freed: VecDeque::new(), num_evicted: 0 }
    }

    pub(super) const fn num_pages(&self) -> u32 {
        self.num_pages
    }

    pub(super) fn num_free(&self) -> u32 {
        self.num_pages - self.num_touched + self.freed.len() as u32
    }

    /// Pages handed out and not freed: cached, or held by a running request.
    pub(super) fn num_used(&self) -> u32 {
        self.num_pages - self.num_free()
    }

    /// Pages taken back from the cache so far.
    pub(super) const fn num_evicted(&self) -> u64 {
        self.num_evicted
    }

    /// `num_pages` pages, taken from the least recently used part of `cache` where too few are free. All or
    /// nothing: an error leaves pool and cache as they were.
    pub(super) fn allocate(
        &mut self,
        num_pages: u32,
        cache: &mut PrefixCache,
    ) -> Result<Vec<PageId>, PoolError> {
        let available = self.num_free() + cache.num_evictable_pages();
        let exhausted = PoolError::Exhausted { needed: num_pages, available, num_pages: self.num_pages };
        if available < num_pages {
            return Err(exhausted);
        }
        while self.num_free() < num_pages {
            let Some(pages) = cache.evict_least_recent() else { return Err(exhausted) };
            self.num_evicted += pages.len() as u64;
            self.release(pages);
        }
        let num_fresh = num_pages.min(self.num_pages - self.num_touched);
        let fresh = self.num_touched..self.num_touched + num_fresh;
        self.num_touched = fresh.end;
        let reused = self.freed.drain(..(num_pages - num_fresh) as usize);
        Ok(fresh.map(|page| PageId(page as i32)).chain(reused).collect())
    }

    /// Takes pages back.
    pub(super) fn release(&mut self, pages: impl IntoIterator<Item = PageId>) {
        self.freed.extend(pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::prefix_cache::ChainId;

    fn ids(pages: &[PageId]) -> Vec<i32> {
        pages.iter().map(|page| page.0).collect()
    }

    #[test]
    fn fresh_pages_come_first_then_the_longest_free() {
        let (mut pool, mut cache) = (PagePool::new(4), PrefixCache::default());
        let first = pool.allocate(3, &mut cache).unwrap();
        assert_eq!(ids(&first), [0, 1, 2]);
        pool.release([first[2], first[0]]);
        assert_eq!((pool.num_free(), pool.num_used()), (3, 1));
        assert_eq!(ids(&pool.allocate(2, &mut cache).unwrap()), [3, 2]);
        assert_eq!(ids(&pool.allocate(1, &mut cache).unwrap()), [0]);
    }

    #[test]
    fn the_cache_gives_pages_back_least_recently_used_first_and_pinned_ones_never() {
        let (mut pool, mut cache) = (PagePool::new(6), PrefixCache::default());
        let mut chains = Vec::new();
        for id in 0..3 {
            let pages = pool.allocate(2, &mut cache).unwrap();
            chains.push(cache.insert(ChainId::EMPTY, id, pages, id));
        }
        cache.pin_chain(chains[0], 3);
        assert_eq!(ids(&pool.allocate(1, &mut cache).unwrap()), [2]);
        assert_eq!((pool.num_evicted(), pool.num_free()), (2, 1));
        assert!(cache.child(ChainId::EMPTY, 1).is_none() && cache.child(ChainId::EMPTY, 2).is_some());
        assert_eq!(ids(&pool.allocate(3, &mut cache).unwrap()), [3, 4, 5]);
        let error = pool.allocate(1, &mut cache).unwrap_err();
        assert_eq!(error, PoolError::Exhausted { needed: 1, available: 0, num_pages: 6 });
        assert!(error.to_string().contains("--pool-pages"));
    }

    #[test]
    fn a_refused_allocation_evicts_nothing() {
        let (mut pool, mut cache) = (PagePool::new(4), PrefixCache::default());
        let pages = pool.allocate(2, &mut cache).unwrap();
        cache.insert(ChainId::EMPTY, 7, pages, 0);
        let error = pool.allocate(5, &mut cache).unwrap_err();
        assert_eq!(error, PoolError::Exhausted { needed: 5, available: 4, num_pages: 4 });
        assert!(cache.child(ChainId::EMPTY, 7).is_some());
        assert_eq!((pool.num_free(), pool.num_evicted()), (2, 0));
    }
}
