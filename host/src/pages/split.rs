//! Which rank computes which current page: the zigzag split that balances causal attention.

use std::ops::Range;

use crate::units::{GroupSize, Rank};

/// A request's current pages, cut into `2R` consecutive segments as even as possible (earlier segments get
/// the extra page). Rank `r` computes segments `r` and `2R - 1 - r`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZigzagSplit {
    num_pages: u32,
    group_size: GroupSize,
}

impl ZigzagSplit {
    /// The split of one request.
    pub const fn new(num_pages: u32, group_size: GroupSize) -> Self {
        Self { num_pages, group_size }
    }

    /// The number of segments, `2R`.
    pub const fn num_segments(self) -> u32 {
        2 * self.group_size.get()
    }

    /// Pages of segment `segment`, as positions among the request's current pages.
    pub const fn segment(self, segment: u32) -> Range<u32> {
        let short = self.num_pages / self.num_segments();
        let num_long = self.num_pages % self.num_segments();
        let start = segment * short + if segment < num_long { segment } else { num_long };
        start..start + short + (segment < num_long) as u32
    }

    /// The two segments `rank` computes, in sequence order.
    pub const fn segments_of(self, rank: Rank) -> [u32; 2] {
        [rank.0, self.num_segments() - 1 - rank.0]
    }

    /// The pages `rank` computes, as two ranges in sequence order; either may be empty.
    pub const fn pages_of(self, rank: Rank) -> [Range<u32>; 2] {
        let [first, second] = self.segments_of(rank);
        [self.segment(first), self.segment(second)]
    }

    /// The rank that computes segment `segment`.
    pub const fn writer_of_segment(self, segment: u32) -> Rank {
        let ranks = self.group_size.get();
        Rank(if segment < ranks { segment } else { 2 * ranks - 1 - segment })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(num_pages: u32, ranks: u32) -> ZigzagSplit {
        ZigzagSplit::new(num_pages, GroupSize::new(ranks).unwrap())
    }

    fn counts(num_pages: u32) -> Vec<u32> {
        let split = split(num_pages, 8);
        (0..8)
            .map(|rank| split.pages_of(Rank(rank)).into_iter().map(|pages| pages.len() as u32).sum())
            .collect()
    }

    #[test]
    fn sixty_five_pages_give_rank_zero_the_extra_one() {
        assert_eq!(counts(4_097u32.div_ceil(64)), [9, 8, 8, 8, 8, 8, 8, 8]);
    }

    #[test]
    fn one_page_is_computed_by_rank_zero_alone() {
        assert_eq!(counts(1), [1, 0, 0, 0, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn segments_tile_the_request_and_have_one_writer_each(pages in 0u32..5_000, ranks in 1u32..=64) {
            let split = split(pages, ranks);
            let mut next = 0;
            for segment in 0..split.num_segments() {
                let range = split.segment(segment);
                prop_assert_eq!(range.start, next);
                prop_assert!(range.len() as u32 - pages / split.num_segments() <= 1);
                next = range.end;
                let writer = split.writer_of_segment(segment);
                prop_assert!(split.segments_of(writer).contains(&segment));
            }
            prop_assert_eq!(next, pages);
        }
    }
}
