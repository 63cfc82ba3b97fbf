//! Which worker stores a page of the decode group, and where. Pure.

use crate::pages::Ownership;
use crate::transfer::Destination;
use crate::units::{GroupSize, PageId, Rank};

/// Most pages of a decode group: page ids are 32-bit and signed, and shards are rounded up.
pub(super) const MAX_PAGES: u32 = i32::MAX as u32 - crate::units::MAX_GROUP_SIZE;

/// Page `q` of a decode group lies in worker `q mod W`, at place `q div W` of its shard. All shards have equally many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement {
    num_workers: GroupSize,
    num_shard_pages: u32,
}

impl Placement {
    /// The placement of `num_pages`, rounded up to whole shards. At most [`MAX_PAGES`].
    pub(super) const fn new(num_workers: GroupSize, num_pages: u32) -> Self {
        let num_shard_pages = Ownership::new(num_workers).num_shard_pages(num_pages);
        Self { num_workers, num_shard_pages }
    }

    /// Pages of one worker.
    pub(super) const fn num_shard_pages(self) -> u32 {
        self.num_shard_pages
    }

    /// Pages of all workers.
    pub(super) const fn num_pages(self) -> u32 {
        self.num_shard_pages * self.num_workers.get()
    }

    /// Where `page` is. It is one of the group's.
    pub(super) const fn destination(self, page: PageId) -> Destination {
        let ownership = Ownership::new(self.num_workers);
        Destination { worker: ownership.owner(page).0, page_idx: ownership.shard_idx(page) as u32 }
    }

    /// Which page is there; `None` for a place outside the group's memory.
    pub(super) const fn page(self, destination: Destination) -> Option<PageId> {
        let Destination { worker, page_idx } = destination;
        if worker >= self.num_workers.get() || page_idx >= self.num_shard_pages {
            return None;
        }
        Some(Ownership::new(self.num_workers).page_at(Rank(worker), page_idx as i32))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_page_has_a_place_of_its_own_and_no_place_is_left() {
        let placement = Placement::new(GroupSize::new(3).unwrap(), 10);
        assert_eq!((placement.num_shard_pages(), placement.num_pages()), (4, 12));
        let pages = (0..12).map(PageId);
        let places: BTreeSet<_> = pages.clone().map(|page| placement.destination(page)).collect();
        assert_eq!(places.len(), 12);
        assert!(pages.clone().all(|page| placement.page(placement.destination(page)) == Some(page)));
        assert_eq!(placement.destination(PageId(7)), Destination { worker: 1, page_idx: 2 });
        assert_eq!(placement.page(Destination { worker: 3, page_idx: 0 }), None);
        assert_eq!(placement.page(Destination { worker: 0, page_idx: 4 }), None);
    }
}
