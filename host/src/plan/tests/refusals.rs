//! Batches that are refused, with the exact error.

use super::{fresh_batch, pages, plan, shape};
use crate::plan::{Batch, BatchPlan, PlanError, PlanShape, RequestPages, StagingCapacity};
use crate::units::{PageId, Rank};

const PAGE_SIZE: u32 = 4;
const POOL: u32 = 16;

fn four() -> PlanShape {
    shape(4, PAGE_SIZE, POOL)
}

fn request(prefix_tokens: u32, new_tokens: u32, prefix: &[i32], current: &[i32]) -> RequestPages {
    RequestPages { prefix_tokens, new_tokens, prefix_pages: pages(prefix), current_pages: pages(current) }
}

fn refusal_of(requests: Vec<RequestPages>) -> PlanError {
    let batch = Batch { requests, num_pad_slots: 0 };
    let errors: Vec<_> =
        (0..4).map(|rank| BatchPlan::build(four(), Rank(rank), &batch).unwrap_err()).collect();
    assert!(errors.iter().all(|error| *error == errors[0]), "all ranks refuse alike");
    errors[0].clone()
}

#[test]
fn a_rank_outside_the_group_is_refused() {
    for rank in [4, u32::MAX] {
        let error = BatchPlan::build(four(), Rank(rank), &Batch::default()).unwrap_err();
        let expected = PlanError::RankOutOfRange { rank: Rank(rank), group_size: four().group_size };
        assert_eq!(error, expected);
    }
}

#[test]
fn a_page_of_no_token_is_refused() {
    let error = BatchPlan::build(shape(4, 0, POOL), Rank(0), &fresh_batch(&[5], 4)).unwrap_err();
    assert_eq!(error, PlanError::NoPageSize);
}

#[test]
fn a_page_outside_the_pool_is_refused_in_either_list() {
    for page in [-2, i32::MIN, 16, i32::MAX] {
        let out_of_range = |request, list, position| PlanError::PageOutOfRange {
            request,
            list,
            position,
            page: PageId(page),
            num_logical_pages: POOL,
        };
        let good = request(0, 1, &[], &[0]);
        assert_eq!(
            refusal_of(vec![good.clone(), request(8, 0, &[1, page], &[])]),
            out_of_range(1, "prefix", 1)
        );
        assert_eq!(refusal_of(vec![request(0, 8, &[], &[1, page]), good]), out_of_range(0, "current", 1));
    }
    assert!(
        BatchPlan::build(
            four(),
            Rank(0),
            &Batch { requests: vec![request(4, 1, &[15], &[0])], num_pad_slots: 0 }
        )
        .is_ok()
    );
}

#[test]
fn an_empty_pool_has_no_page() {
    let error = BatchPlan::build(shape(4, 4, 0), Rank(0), &fresh_batch(&[1], 4)).unwrap_err();
    let (request, list, position, page) = (0, "current", 0, PageId(0));
    assert_eq!(error, PlanError::PageOutOfRange { request, list, position, page, num_logical_pages: 0 });
}

#[test]
fn a_page_that_is_current_twice_is_refused_at_its_second_place() {
    let twice = |request| PlanError::CurrentTwice { page: PageId(5), request };
    assert_eq!(refusal_of(vec![request(0, 8, &[], &[5, 5])]), twice(0));
    let (first, other) = (request(0, 8, &[], &[5, 6]), request(0, 1, &[], &[7]));
    let second = request(0, 8, &[], &[8, 5]);
    assert_eq!(refusal_of(vec![first.clone(), other.clone(), second.clone()]), twice(2));
    // Three times: the second is named.
    assert_eq!(refusal_of(vec![other, first, second.clone(), second]), twice(2));
}

#[test]
fn a_page_that_is_current_and_prefix_is_refused_at_the_prefix() {
    let both = |request| PlanError::CurrentIsPrefix { page: PageId(5), request };
    assert_eq!(refusal_of(vec![request(4, 1, &[5], &[5])]), both(0));
    assert_eq!(refusal_of(vec![request(0, 1, &[], &[5]), request(8, 0, &[2, 5], &[])]), both(1));
    assert_eq!(refusal_of(vec![request(8, 0, &[2, 5], &[]), request(0, 1, &[], &[5])]), both(0));
    // The original of a straddling page is read, so it is no current page either.
    assert_eq!(refusal_of(vec![request(2, 1, &[5], &[5])]), both(0));
}

#[test]
fn lists_that_do_not_hold_the_tokens_are_refused() {
    let counts = |list, expected, got, prefix_tokens, new_tokens| PlanError::PageCount {
        request: 0,
        list,
        expected,
        got,
        prefix_tokens,
        new_tokens,
    };
    for (prefix_tokens, new_tokens, prefix, current, error) in [
        (5, 0, &[1][..], &[][..], counts("prefix", 2, 1, 5, 0)),
        (4, 0, &[1, 2], &[], counts("prefix", 1, 2, 4, 0)),
        (0, 0, &[1], &[], counts("prefix", 0, 1, 0, 0)),
        (0, 0, &[], &[1], counts("current", 0, 1, 0, 0)),
        (0, 4, &[], &[1, 2], counts("current", 1, 2, 0, 4)),
        (0, 5, &[], &[1], counts("current", 2, 1, 0, 5)),
        // A straddling page needs its private copy; a prefix without new tokens needs none.
        (6, 1, &[1, 2], &[], counts("current", 1, 0, 6, 1)),
        (6, 3, &[1, 2], &[3], counts("current", 2, 1, 6, 3)),
        (6, 0, &[1, 2], &[3], counts("current", 0, 1, 6, 0)),
    ] {
        assert_eq!(refusal_of(vec![request(prefix_tokens, new_tokens, prefix, current)]), error);
    }
}

#[test]
fn token_counts_at_the_limit_of_their_type_do_not_overflow() {
    let max = u32::MAX;
    let error = refusal_of(vec![request(max, max, &[], &[])]);
    let (list, expected) = ("prefix", 1 << 30);
    let count =
        PlanError::PageCount { request: 0, list, expected, got: 0, prefix_tokens: max, new_tokens: max };
    assert_eq!(error, count);
    // (2^32 - 1) + (2^32 - 1) tokens, the first 2^32 - 4 of them in whole prefix pages.
    let error = BatchPlan::build(
        shape(4, 1 << 31, 16),
        Rank(0),
        &Batch { requests: vec![request(max, max, &[0, 1], &[2])], num_pad_slots: 0 },
    );
    let (list, expected) = ("current", 3);
    let count =
        PlanError::PageCount { request: 0, list, expected, got: 1, prefix_tokens: max, new_tokens: max };
    assert_eq!(error.unwrap_err(), count);
}

#[test]
fn padding_where_tokens_are_written_is_refused() {
    let padded = |list, position| PlanError::PadWithTokens { request: 0, list, position };
    assert_eq!(refusal_of(vec![request(0, 5, &[], &[1, -1])]), padded("current", 1));
    assert_eq!(refusal_of(vec![request(6, 1, &[1, -1], &[2])]), padded("prefix", 1));
    let read_only = Batch { requests: vec![request(6, 0, &[-1, -1], &[])], num_pad_slots: 0 };
    assert_eq!(plan(four(), &read_only).slots.pages, [PageId::PAD; 2]);
}

#[test]
fn more_rows_than_positions_is_refused() {
    let pads = |page_size, num_pad_slots, requests| {
        BatchPlan::build(shape(4, page_size, POOL), Rank(0), &Batch { requests, num_pad_slots })
    };
    let largest = i32::MAX as u32 / (1 << 20);
    assert_eq!(pads(1 << 20, largest, Vec::new()).unwrap().slots.num_slots(), largest);
    let over = PlanError::TooLarge { num_slots: u64::from(largest) + 1, page_size: 1 << 20 };
    assert_eq!(pads(1 << 20, largest + 1, Vec::new()).unwrap_err(), over);
    let over = PlanError::TooLarge { num_slots: u64::from(u32::MAX), page_size: 1 };
    assert_eq!(pads(1, u32::MAX, Vec::new()).unwrap_err(), over);
    // Slots times page size passes 2^64.
    let one_page = request(1, 0, &[0], &[]);
    let over = PlanError::TooLarge { num_slots: u64::from(u32::MAX) + 3, page_size: u32::MAX };
    assert_eq!(pads(u32::MAX, u32::MAX, vec![one_page; 3]).unwrap_err(), over);
}

#[test]
fn a_batch_over_the_staging_capacity_is_refused() {
    let slots = plan(four(), &fresh_batch(&[9, 4], 4)).slots;
    assert_eq!(StagingCapacity { num_pages: 4 }.check(&slots), Ok(()));
    let over = PlanError::OverCapacity { what: "staging", needed: 4, capacity: 3 };
    assert_eq!(StagingCapacity { num_pages: 3 }.check(&slots), Err(over));
}
