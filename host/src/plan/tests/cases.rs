//! Faults others met, at the level of the plan: 8 ranks, pages of 64 tokens.

use std::collections::HashSet;

use super::reference::Reference;
use super::{fresh, fresh_batch, plan, plans, shape};
use crate::plan::{Batch, BatchPlan};
use crate::units::PageId;

const PAGE_SIZE: u32 = 64;
const COUNTS: [u32; 9] = [1, 63, 64, 65, 511, 512, 513, 4_097, 98_301];

fn eight_ranks(batch: &Batch) -> Vec<BatchPlan> {
    plans(shape(8, PAGE_SIZE, 4_096), batch)
}

fn pages_per_rank(plans: &[BatchPlan]) -> Vec<usize> {
    plans.iter().map(|plan| plan.rows.current_idx.len()).collect()
}

/// Every new token once, at the place the definition gives it, and no row of a page left to chance.
fn check(batch: &Batch) {
    let plans = eight_ranks(batch);
    let reference = Reference::new(plans[0].slots.shape, batch);
    let mut num_rows = 0;
    for plan in &plans {
        let tokens = reference.tokens_of(plan.rank);
        let expected: Vec<_> = tokens.map(|token| i64::from(token.slot * PAGE_SIZE + token.row)).collect();
        assert_eq!(plan.rows.dense_rows, expected);
        num_rows += expected.len() as u64;
        let unfilled: u32 =
            plan.rows.partial_pages.iter().map(|partial| PAGE_SIZE - partial.first_unfilled).sum();
        assert_eq!(expected.len() as u32 + unfilled, plan.rows.current_idx.len() as u32 * PAGE_SIZE);
    }
    assert_eq!(num_rows, batch.new_tokens());
}

/// Case 2.
#[test]
fn an_uneven_split_gives_the_first_rank_more_and_may_give_others_nothing() {
    let uneven = eight_ranks(&fresh_batch(&[4_097], PAGE_SIZE));
    assert_eq!(pages_per_rank(&uneven), [9, 8, 8, 8, 8, 8, 8, 8]);
    let single = eight_ranks(&fresh_batch(&[1], PAGE_SIZE));
    assert_eq!(pages_per_rank(&single), [1, 0, 0, 0, 0, 0, 0, 0]);
    for plan in &single[1..] {
        assert_eq!(plan.rows.num_rows(), 0);
        assert!(plan.rows.partial_pages.is_empty());
        assert_eq!(plan.slots, single[0].slots, "a rank with nothing to compute still knows every slot");
    }
}

/// Case 10.
#[test]
fn awkward_token_counts_are_planned_alone_and_together() {
    for count in COUNTS {
        let batch = fresh_batch(&[count], PAGE_SIZE);
        assert_eq!(plan(shape(8, PAGE_SIZE, 4_096), &batch).slots.num_slots(), count.div_ceil(PAGE_SIZE));
        check(&batch);
    }
    check(&fresh_batch(&COUNTS, PAGE_SIZE));
    let mut backwards = COUNTS;
    backwards.reverse();
    check(&fresh_batch(&backwards, PAGE_SIZE));
}

/// Case 14.
#[test]
fn an_empty_request_takes_no_slot_wherever_it_stands() {
    for lengths in [[4_000, 0], [0, 4_000]] {
        let batch = fresh_batch(&lengths, PAGE_SIZE);
        let plans = eight_ranks(&batch);
        assert_eq!(plans[0].slots.num_slots(), 63);
        assert_eq!(plans[0].slots.spans.len(), 1);
        // The last of the 16 segments is the short one, and it is rank 0's.
        assert_eq!(pages_per_rank(&plans), [7, 8, 8, 8, 8, 8, 8, 8]);
        check(&batch);
    }
    let nothing = eight_ranks(&fresh_batch(&[0, 0], PAGE_SIZE));
    assert!(nothing.iter().all(|plan| plan.slots.num_slots() == 0 && plan.rows.num_rows() == 0));
}

/// Case 15.
#[test]
fn no_request_reads_another_requests_offsets() {
    let batch = fresh_batch(&[1, 64, 65, 513], PAGE_SIZE);
    let plans = eight_ranks(&batch);
    assert_eq!(plans[0].slots.dense_rows.bases, [0, 64, 128, 256]);
    let mut seen = HashSet::new();
    for (idx, request) in batch.requests.iter().enumerate() {
        for position in 0..request.new_tokens {
            let row = plans[0].slots.dense_rows.row(idx, position).unwrap();
            assert!(seen.insert(row), "two tokens at dense row {row}");
            let page = plans[0].slots.pages[(row / PAGE_SIZE) as usize];
            assert_eq!(page, request.current_pages[(position / PAGE_SIZE) as usize]);
            assert_eq!(row % PAGE_SIZE, position % PAGE_SIZE);
        }
    }
    check(&batch);
}

#[test]
fn every_request_is_split_on_its_own() {
    let batch = fresh_batch(&[64, 64, 64], PAGE_SIZE);
    assert_eq!(pages_per_rank(&eight_ranks(&batch)), [3, 0, 0, 0, 0, 0, 0, 0]);
}

/// Case 17.
#[test]
fn a_prefix_inside_a_page_says_so_and_one_slot_holds_both() {
    let mut request = fresh(64, PAGE_SIZE, 10);
    request.prefix_tokens = 100;
    request.prefix_pages = vec![PageId(3), PageId(4)];
    request.current_pages = vec![PageId(10), PageId(11)];
    let batch = Batch { requests: vec![request], num_pad_slots: 0 };
    let plans = eight_ranks(&batch);
    let slots = &plans[0].slots;
    assert!(!slots.page_aligned());
    assert_eq!(slots.pages, [3, 10, 11].map(PageId));
    assert_eq!((slots.straddles[0].slot, slots.straddles[0].original), (1, PageId(4)));
    assert_eq!(slots.straddles[0].num_prefix_rows, 36);
    assert_eq!(plans[0].rows.dense_rows, (64 + 36..128).collect::<Vec<_>>());
    assert_eq!(plans[1].rows.dense_rows, (128..128 + 36).collect::<Vec<_>>());
}
