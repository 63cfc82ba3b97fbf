//! Which pages hold which prefix: a tree of hash ids, so that an id counts only after all ids before it.

use std::collections::{BTreeSet, HashMap};

use crate::units::PageId;

/// A chain of hash ids from the start of a prompt, named by its last one's place in the tree. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ChainId(u64);

impl ChainId {
    /// The chain of no id: where every prompt starts.
    pub(super) const EMPTY: Self = Self(0);
}

/// The last 512 tokens of a chain.
#[derive(Clone, Debug)]
struct Node {
    parent: ChainId,
    hash_id: u64,
    pages: Vec<PageId>,
    /// Running requests that use these pages, or pages further down.
    num_users: u32,
    num_children: u32,
    /// The batch that last used or wrote the pages.
    last_used: u64,
}

impl Node {
    const fn is_evictable(&self) -> bool {
        self.num_users == 0 && self.num_children == 0
    }

    const fn num_pinned_pages(&self) -> u32 {
        if self.num_users == 0 { 0 } else { self.pages.len() as u32 }
    }
}

/// The longest cached part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    /// The chain, for [`PrefixCache::pin_chain`].
    pub(super) chain: ChainId,
    /// How many ids it has.
    pub(super) num_hash_ids: usize,
    /// Its pages, in sequence order.
    pub(super) pages: Vec<PageId>,
}

/// Cached prefixes. A node's users are users of its parent too, and only leaves are evicted, so whatever no
/// running request uses can be evicted, from the ends of the chains.
#[derive(Clone, Debug, Default)]
pub(super) struct PrefixCache {
    nodes: HashMap<ChainId, Node>,
    children: HashMap<(ChainId, u64), ChainId>,
    /// Evictable nodes, least recently used first, then oldest first.
    evictable: BTreeSet<(u64, ChainId)>,
    num_made: u64,
    num_pages: u32,
    num_pinned_pages: u32,
}

impl PrefixCache {
    /// Pages that [`PrefixCache::evict_least_recent`] gives back if called until nothing is left.
    pub(super) const fn num_evictable_pages(&self) -> u32 {
        self.num_pages - self.num_pinned_pages
    }

    /// `chain` continued by `hash_id`, where that is cached.
    pub(super) fn child(&self, chain: ChainId, hash_id: u64) -> Option<ChainId> {
        self.children.get(&(chain, hash_id)).copied()
    }

    /// The longest cached chain that `hash_ids` start with. Does not count as use.
    pub(super) fn longest(&self, hash_ids: &[u64]) -> Hit {
        let mut hit = Hit { chain: ChainId::EMPTY, num_hash_ids: 0, pages: Vec::new() };
        for &hash_id in hash_ids {
            let Some(child) = self.child(hit.chain, hash_id) else { break };
            let Some(node) = self.nodes.get(&child) else { break };
            hit.pages.extend(&node.pages);
            hit.chain = child;
            hit.num_hash_ids += 1;
        }
        hit
    }

    /// Caches `pages` as the tokens of `hash_id` after `parent`, which must be cached, and not have that
    /// child yet. The new chain is not pinned.
    pub(super) fn insert(
        &mut self,
        parent: ChainId,
        hash_id: u64,
        pages: Vec<PageId>,
        batch_idx: u64,
    ) -> ChainId {
        debug_assert!(self.child(parent, hash_id).is_none());
        debug_assert!(parent == ChainId::EMPTY || self.nodes.contains_key(&parent));
        self.num_made += 1;
        let chain = ChainId(self.num_made);
        self.num_pages += pages.len() as u32;
        self.children.insert((parent, hash_id), chain);
        self.update(parent, |node| node.num_children += 1);
        let node = Node { parent, hash_id, pages, num_users: 0, num_children: 0, last_used: batch_idx };
        self.nodes.insert(chain, node);
        self.evictable.insert((batch_idx, chain));
        chain
    }

    /// Keeps every page of `chain` from eviction.
    pub(super) fn pin_chain(&mut self, chain: ChainId, batch_idx: u64) {
        self.update_chain(chain, |node| {
            node.num_users += 1;
            node.last_used = batch_idx;
        });
    }

    /// Lengthens a pin by one id: the caller has pinned all of `chain` but its last node.
    pub(super) fn pin_last(&mut self, chain: ChainId) {
        self.update(chain, |node| node.num_users += 1);
    }

    /// Undoes the pins of one request on `chain`.
    pub(super) fn unpin_chain(&mut self, chain: ChainId, batch_idx: u64) {
        self.update_chain(chain, |node| {
            debug_assert!(node.num_users > 0);
            node.num_users = node.num_users.saturating_sub(1);
            node.last_used = batch_idx;
        });
    }

    /// Marks the last node of `chain` as used by `batch_idx`.
    pub(super) fn touch(&mut self, chain: ChainId, batch_idx: u64) {
        self.update(chain, |node| node.last_used = batch_idx);
    }

    /// Forgets the least recently used node that nobody needs, and gives its pages back.
    pub(super) fn evict_least_recent(&mut self) -> Option<Vec<PageId>> {
        let (_, chain) = self.evictable.pop_first()?;
        let node = self.nodes.remove(&chain)?;
        self.children.remove(&(node.parent, node.hash_id));
        self.num_pages -= node.pages.len() as u32;
        self.update(node.parent, |parent| parent.num_children -= 1);
        Some(node.pages)
    }

    fn update_chain(&mut self, mut chain: ChainId, change: impl Fn(&mut Node)) {
        while let Some(parent) = self.update(chain, &change) {
            chain = parent;
        }
    }

    /// Changes one node and keeps the books right; gives its parent. Nothing happens for the empty chain.
    fn update(&mut self, chain: ChainId, change: impl FnOnce(&mut Node)) -> Option<ChainId> {
        let node = self.nodes.get_mut(&chain)?;
        if node.is_evictable() {
            self.evictable.remove(&(node.last_used, chain));
        }
        self.num_pinned_pages -= node.num_pinned_pages();
        change(node);
        self.num_pinned_pages += node.num_pinned_pages();
        if node.is_evictable() {
            self.evictable.insert((node.last_used, chain));
        }
        Some(node.parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Caches `ids` as one chain, one page each, ids counted up from `first_page`.
    fn cached(cache: &mut PrefixCache, ids: &[u64], first_page: i32, batch_idx: u64) -> ChainId {
        ids.iter().zip(first_page..).fold(ChainId::EMPTY, |chain, (&id, page)| {
            cache.child(chain, id).unwrap_or_else(|| cache.insert(chain, id, vec![PageId(page)], batch_idx))
        })
    }

    fn hit_pages(cache: &PrefixCache, ids: &[u64]) -> Vec<i32> {
        cache.longest(ids).pages.iter().map(|page| page.0).collect()
    }

    #[test]
    fn a_hit_is_the_longest_chain_of_equal_leading_ids() {
        let mut cache = PrefixCache::default();
        cached(&mut cache, &[1, 2, 3], 10, 0);
        assert_eq!(hit_pages(&cache, &[1, 2, 3, 4]), [10, 11, 12]);
        assert_eq!(hit_pages(&cache, &[1, 2]), [10, 11]);
        assert_eq!(hit_pages(&cache, &[1, 9, 3]), [10]);
        assert_eq!(cache.longest(&[]).chain, ChainId::EMPTY);
    }

    #[test]
    fn the_same_id_after_another_predecessor_does_not_hit() {
        let mut cache = PrefixCache::default();
        cached(&mut cache, &[1, 2], 10, 0);
        cached(&mut cache, &[5, 2], 20, 0);
        assert_eq!(hit_pages(&cache, &[2]), [] as [i32; 0]);
        assert_eq!(hit_pages(&cache, &[1, 2]), [10, 11]);
        assert_eq!(hit_pages(&cache, &[5, 2]), [20, 21]);
        assert_eq!(hit_pages(&cache, &[6, 2]), [] as [i32; 0]);
    }

    #[test]
    fn eviction_takes_chains_from_their_ends_least_recently_used_first() {
        let mut cache = PrefixCache::default();
        cached(&mut cache, &[1, 2, 3], 10, 0);
        let recent = cached(&mut cache, &[1, 7], 20, 1);
        cache.pin_chain(recent, 2);
        cache.unpin_chain(recent, 2);
        let evicted: Vec<_> = std::iter::from_fn(|| cache.evict_least_recent()).flatten().collect();
        assert_eq!(evicted, [12, 11, 21, 10].map(PageId));
        assert_eq!(cache.num_evictable_pages(), 0);
    }

    #[test]
    fn a_pinned_chain_stays_until_its_last_user_leaves() {
        let mut cache = PrefixCache::default();
        let chain = cached(&mut cache, &[1, 2], 10, 0);
        cached(&mut cache, &[1, 2, 3], 20, 0);
        cache.pin_chain(chain, 1);
        cache.pin_chain(chain, 1);
        assert_eq!(cache.num_evictable_pages(), 1);
        assert_eq!(cache.evict_least_recent(), Some(vec![PageId(22)]));
        assert_eq!(cache.evict_least_recent(), None);
        cache.unpin_chain(chain, 2);
        assert_eq!(cache.evict_least_recent(), None);
        cache.unpin_chain(chain, 2);
        assert_eq!(cache.num_evictable_pages(), 2);
        assert_eq!(cache.evict_least_recent(), Some(vec![PageId(11)]));
    }

    #[test]
    fn a_pin_grows_with_its_request() {
        let mut cache = PrefixCache::default();
        let chain = cached(&mut cache, &[1], 10, 0);
        cache.pin_chain(chain, 0);
        let longer = cache.insert(chain, 2, vec![PageId(11)], 0);
        cache.pin_last(longer);
        assert_eq!(cache.num_evictable_pages(), 0);
        cache.unpin_chain(longer, 1);
        assert_eq!(cache.num_evictable_pages(), 2);
    }
}
