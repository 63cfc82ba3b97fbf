//! Synthetic batches: requests of unequal lengths, on pages that lie scattered over the pool. Pure.

use cpkv::plan::{Batch, RequestPages};
use cpkv::units::PageId;

use super::cases::Case;

/// Steele and Lea's SplitMix64: seeds that differ by one give unrelated numbers.
struct SplitMix(u64);

impl SplitMix {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// `0..len` in an order that `seed` decides.
pub(crate) fn shuffled(len: u32, seed: u64) -> Vec<u32> {
    let mut random = SplitMix(seed);
    let mut order: Vec<u32> = (0..len).collect();
    for at in (1..order.len()).rev() {
        let other = (random.next() % (at as u64 + 1)) as usize;
        order.swap(at, other);
    }
    order
}

/// `total` cut into `num_parts`, unequal, each at least `least`.
fn cut(total: u32, num_parts: u32, least: u32) -> Vec<u32> {
    let weight = |part: u32| u64::from(1 + part * 7 % 5);
    let weights: u64 = (0..num_parts).map(weight).sum();
    let (free, mut passed, mut given) = (total.saturating_sub(least * num_parts), 0, 0);
    let part = |part| {
        passed += weight(part);
        let end = (u64::from(free) * passed / weights) as u32;
        let more = end - given;
        given = end;
        least + more
    };
    (0..num_parts).map(part).collect()
}

/// The batch of `case` in a pool of `pool_pages`; prefixes end on page boundaries.
pub(crate) fn batch(case: Case, page_size: u32, pool_pages: u32, seed: u64) -> Batch {
    let mut pages = shuffled(pool_pages, seed).into_iter().map(|page| PageId(page as i32));
    let mut take = |num_pages: u32| pages.by_ref().take(num_pages as usize).collect::<Vec<_>>();
    let prefixes = cut(case.prefix_tokens / page_size, case.requests, 0);
    let new_tokens = cut(case.new_tokens, case.requests, 1);
    let requests = prefixes.into_iter().rev().zip(new_tokens).map(|(num_prefix, new_tokens)| RequestPages {
        prefix_tokens: num_prefix * page_size,
        new_tokens,
        prefix_pages: take(num_prefix),
        current_pages: take(new_tokens.div_ceil(page_size)),
    });
    Batch { requests: requests.collect(), num_pad_slots: 0 }
}

#[cfg(test)]
mod tests {
    use cpkv::plan::{BatchPlan, PlanShape};
    use cpkv::units::{GroupSize, Rank};

    use super::super::cases::{FULL, Footprint, QUICK};
    use super::*;

    #[test]
    fn every_case_is_a_batch_with_its_tokens_on_pages_of_the_pool() {
        for (grid, page_size) in [(FULL, 64), (QUICK, 4)] {
            let cases = grid.cases();
            let needs = Footprint::of(&cases, page_size);
            let group_size = GroupSize::new(8).unwrap();
            let shape = PlanShape { group_size, page_size, num_logical_pages: needs.pool_pages };
            for case in cases {
                let batch = batch(case, page_size, needs.pool_pages, 7);
                assert_eq!(batch.requests.len(), case.requests as usize);
                assert_eq!(batch.new_tokens(), u64::from(case.new_tokens));
                assert_eq!(batch.prefix_tokens(), u64::from(case.prefix_tokens));
                let plan = BatchPlan::build(shape, Rank(3), &batch).unwrap();
                assert!(plan.slots.page_aligned());
                assert!(plan.slots.num_slots() <= needs.max_slots);
                assert!(plan.slots.num_current() <= needs.max_current);
            }
        }
    }

    #[test]
    fn pages_follow_the_seed() {
        let of = |seed| batch(FULL.centre, 64, 4096, seed);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let mut order = shuffled(100, 5);
        assert_ne!(order, (0..100).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn parts_are_unequal_and_sum_up() {
        assert_eq!(cut(100, 3, 1).iter().sum::<u32>(), 100);
        assert_eq!(cut(32, 32, 1), [1; 32]);
        let parts = cut(1000, 4, 1);
        assert!(parts.iter().any(|part| part != &parts[0]));
    }
}
