//! The rows each rank computes.

use proptest::prelude::*;

use super::random::{ANY, batches};
use super::reference::{Reference, Token};
use super::{fresh_batch, plans, shape};
use crate::plan::{BatchPlan, PartialPage};
use crate::units::PageId;

/// A page and a row of it.
fn page_and_row(plan: &BatchPlan, rows: &[i64], page_of: impl Fn(i64) -> i32) -> Vec<(i32, i64)> {
    let page_size = i64::from(plan.slots.shape.page_size);
    rows.iter().map(|row| (page_of(row / page_size), row % page_size)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_rank_has_its_tokens_in_order_and_both_row_lists_name_them((shape, batch) in batches(ANY)) {
        let reference = Reference::new(shape, &batch);
        for plan in plans(shape, &batch) {
            let of = |token: &Token| (token.page.0, i64::from(token.row));
            let expected: Vec<_> = reference.tokens_of(plan.rank).map(of).collect();
            let slots = &plan.slots;
            let staged = page_and_row(&plan, &plan.rows.staging_rows, |i| slots.current_pages[i as usize]);
            let dense = page_and_row(&plan, &plan.rows.dense_rows, |slot| slots.pages[slot as usize].0);
            prop_assert_eq!(&staged, &expected);
            prop_assert_eq!(&dense, &expected);
            prop_assert_eq!(plan.rows.num_rows() as usize, expected.len());
            let current: Vec<_> =
                reference.current().filter(|(_, _, current)| current.writer == plan.rank).collect();
            let indices: Vec<_> = current.iter().map(|(_, _, current)| current.idx).collect();
            prop_assert_eq!(&plan.rows.current_idx, &indices);
        }
    }

    #[test]
    fn row_lists_agree_through_the_inverses((shape, batch) in batches(ANY)) {
        let page_size = i64::from(shape.page_size);
        for plan in plans(shape, &batch) {
            let (dense, staging) = (plan.slots.dense_inverse(), plan.slots.staging_inverse());
            for (&staged, &row) in plan.rows.staging_rows.iter().zip(&plan.rows.dense_rows) {
                let page = plan.slots.pages[(row / page_size) as usize];
                prop_assert_eq!(dense.get(page).map(i64::from), Some(row / page_size));
                prop_assert_eq!(staging.get(page).map(i64::from), Some(staged / page_size));
                prop_assert_eq!(staged % page_size, row % page_size);
            }
        }
    }

    #[test]
    fn the_ranks_together_compute_every_new_token_once((shape, batch) in batches(ANY)) {
        let reference = Reference::new(shape, &batch);
        let dense_row = |token: &Token| i64::from(token.slot * shape.page_size + token.row);
        let expected: Vec<_> = reference.tokens.iter().map(dense_row).collect();
        prop_assert_eq!(expected.len() as u64, batch.new_tokens());
        let mut rows: Vec<_> =
            plans(shape, &batch).into_iter().flat_map(|plan| plan.rows.dense_rows).collect();
        rows.sort_unstable();
        prop_assert_eq!(rows, expected);
    }

    #[test]
    fn partial_pages_are_those_that_end_early_at_their_writer((shape, batch) in batches(ANY)) {
        let reference = Reference::new(shape, &batch);
        for plan in plans(shape, &batch) {
            let mine = reference.current().filter(|(_, _, current)| current.writer == plan.rank);
            let partial = mine.filter_map(|(dense_slot, slot, current)| {
                let num_filled = slot.new_rows.iter().rposition(|&filled| filled)? as u32 + 1;
                let page =
                    PartialPage { staging_slot: current.idx, dense_slot, first_unfilled: num_filled };
                (num_filled < shape.page_size).then_some(page)
            });
            prop_assert_eq!(&plan.rows.partial_pages, &partial.collect::<Vec<_>>());
        }
    }
}

#[test]
fn dense_rows_answer_none_where_no_row_can_be() {
    let plan = super::plan(shape(2, 4, 16), &fresh_batch(&[5, 5], 4));
    assert_eq!(plan.slots.dense_rows.row(1, 0), Some(8));
    assert_eq!(plan.slots.dense_rows.row(1, u32::MAX), None);
    assert_eq!(plan.slots.dense_rows.row(2, 0), None);
    assert_eq!(plan.slots.pages[2], PageId(2));
}
