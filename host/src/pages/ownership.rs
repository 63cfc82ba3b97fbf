//! Which rank stores a logical page, and where: stateless, so no directory and no agreement is needed.

use crate::units::{GroupSize, PageId, Rank};

/// `owner(p) = p mod R`, at place `p div R` of the owner's shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    group_size: GroupSize,
}

impl Ownership {
    /// The placement for a group.
    pub const fn new(group_size: GroupSize) -> Self {
        Self { group_size }
    }

    /// The rank that stores `page`. `page` is not padding.
    pub const fn owner(self, page: PageId) -> Rank {
        debug_assert!(page.0 >= 0);
        Rank(page.0 as u32 % self.group_size.get())
    }

    /// The page's position in its owner's shard. `page` is not padding.
    pub const fn shard_idx(self, page: PageId) -> i32 {
        debug_assert!(page.0 >= 0);
        (page.0 as u32 / self.group_size.get()) as i32
    }

    /// The logical page at position `shard_idx` of `owner`'s shard: the inverse of the two above.
    pub const fn page_at(self, owner: Rank, shard_idx: i32) -> PageId {
        PageId(shard_idx * self.group_size.get() as i32 + owner.0 as i32)
    }

    /// Pages in every shard: `ceil(num_logical_pages / R)`, the same on every rank.
    pub const fn num_shard_pages(self, num_logical_pages: u32) -> u32 {
        num_logical_pages.div_ceil(self.group_size.get())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn owner_and_place_lead_back_to_the_page(page in 0..=i32::MAX - 64, ranks in 1u32..=64) {
            let placement = Ownership::new(GroupSize::new(ranks).unwrap());
            let page = PageId(page);
            prop_assert_eq!(placement.page_at(placement.owner(page), placement.shard_idx(page)), page);
        }

        #[test]
        fn every_page_of_the_pool_fits_its_shard(pages in 1u32..100_000, ranks in 1u32..=64) {
            let placement = Ownership::new(GroupSize::new(ranks).unwrap());
            let last = PageId(pages as i32 - 1);
            prop_assert!((placement.shard_idx(last) as u32) < placement.num_shard_pages(pages));
        }
    }
}
