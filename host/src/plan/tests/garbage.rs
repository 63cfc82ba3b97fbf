//! Garbage is refused or planned, but never a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::reference::Reference;
use super::shape;
use crate::plan::{self, Batch, BatchPlan, PlanShape, RequestPages, descriptors};
use crate::units::{PageId, Rank};

fn tokens() -> impl Strategy<Value = u32> {
    prop_oneof![12 => 0..40u32, 1 => any::<u32>(), 1 => u32::MAX - 3..=u32::MAX]
}

fn page_list() -> impl Strategy<Value = Vec<PageId>> {
    let page = prop_oneof![8 => 0..2_000, 1 => -2..1, 1 => any::<i32>()];
    vec(page.prop_map(PageId), 0..=20)
}

/// A request of anything.
fn request() -> impl Strategy<Value = RequestPages> {
    (tokens(), tokens(), page_list(), page_list()).prop_map(
        |(prefix_tokens, new_tokens, prefix_pages, current_pages)| RequestPages {
            prefix_tokens,
            new_tokens,
            prefix_pages,
            current_pages,
        },
    )
}

/// Gives the request the pages its tokens need, where these are few: pages from `first_page` on.
fn fit(request: &mut RequestPages, page_size: u32, first_page: i32) {
    let page_size = u64::from(page_size.max(1));
    let (prefix, new) = (u64::from(request.prefix_tokens), u64::from(request.new_tokens));
    let num_prefix = prefix.div_ceil(page_size);
    let num_current = if new == 0 { 0 } else { (prefix + new).div_ceil(page_size) - prefix / page_size };
    if num_prefix.max(num_current) <= 100 {
        let (middle, end) = (first_page + num_prefix as i32, first_page + (num_prefix + num_current) as i32);
        request.prefix_pages = (first_page..middle).map(PageId).collect();
        request.current_pages = (middle..end).map(PageId).collect();
    }
}

fn anything() -> impl Strategy<Value = (PlanShape, Rank, Batch)> {
    // A page of more than 4,096 tokens is one that no batch fits, so that no plan takes gigabytes.
    let page_size = prop_oneof![8 => 0..=64u32, 2 => 0..=4_096u32, 1 => 1 << 31..=u32::MAX];
    let pool = prop_oneof![4 => Just(100_000), 1 => 0..2_000u32, 1 => any::<u32>()];
    let rank = prop_oneof![6 => 0..4u32, 1 => any::<u32>()];
    let pad_slots = prop_oneof![4 => 0..4u32, 1 => u32::MAX - 3..=u32::MAX];
    let requests = vec((request(), prop_oneof![5 => Just(true), 1 => Just(false)]), 0..5);
    (1..=64u32, page_size, pool, rank, pad_slots, requests).prop_map(
        |(num_ranks, page_size, pool, rank, num_pad_slots, mut requests)| {
            for ((request, fits), first_page) in requests.iter_mut().zip((2_000..).step_by(200)) {
                if *fits {
                    fit(request, page_size, first_page);
                }
            }
            let requests = requests.into_iter().map(|(request, _)| request).collect();
            (shape(num_ranks, page_size, pool), Rank(rank), Batch { requests, num_pad_slots })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_input_never_panics_and_what_is_planned_is_right((shape, rank, batch) in anything()) {
        if let Ok(built) = BatchPlan::build(shape, rank, &batch) {
            let reference = Reference::new(shape, &batch);
            prop_assert!(built.slots.pages.iter().eq(reference.slots.iter().map(|slot| &slot.page)));
            prop_assert_eq!(built.rows.num_rows() as usize, reference.tokens_of(rank).count());
            for strategy in plan::Strategy::ALL {
                prop_assert_eq!(descriptors(&built, strategy).len(), built.slots.pages.len());
            }
        }
    }
}

#[test]
fn some_garbage_can_be_planned_and_some_cannot() {
    let mut runner = TestRunner::deterministic();
    let samples = (0..1_000).map(|_| anything().new_tree(&mut runner).unwrap().current());
    let is_planned = |(shape, rank, batch): &(PlanShape, Rank, Batch)| {
        !batch.requests.is_empty() && BatchPlan::build(*shape, *rank, batch).is_ok()
    };
    let num_planned = samples.filter(is_planned).count();
    assert!((100..700).contains(&num_planned), "{num_planned}");
}
