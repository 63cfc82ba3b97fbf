//! Slots, spans, writers, inverses: what is the same on every rank.

use cpkv_kernels::abi::{BASE_KEEP, BASE_ZERO, PAGE_NONE};
use proptest::prelude::*;

use super::random::{ANY, batches};
use super::reference::Reference;
use super::{fresh_batch, pages, plan, plans, shape};
use crate::plan::{Batch, PageInverse, RequestPages, Span, SpanKind, Straddle, Strategy, descriptors};
use crate::units::PageId;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_slot_has_the_page_of_its_tokens((shape, batch) in batches(ANY)) {
        let (slots, reference) = (plan(shape, &batch).slots, Reference::new(shape, &batch));
        let expected: Vec<_> = reference.slots.iter().map(|slot| slot.page).collect();
        prop_assert_eq!(&slots.pages, &expected);
        prop_assert_eq!(slots.num_slots() as usize, expected.len());
        for (request, rows) in reference.rows.iter().enumerate() {
            for (position, &row) in rows.iter().enumerate() {
                prop_assert_eq!(slots.dense_rows.row(request, position as u32), Some(row));
            }
        }
        prop_assert_eq!(slots.dense_rows.row(batch.requests.len(), 0), None);
    }

    #[test]
    fn spans_tile_the_slots_of_the_requests((shape, batch) in batches(ANY)) {
        let (slots, reference) = (plan(shape, &batch).slots, Reference::new(shape, &batch));
        let mut end = 0;
        let mut before: Option<(u32, SpanKind)> = None;
        for Span { request, kind, slots } in slots.spans {
            prop_assert_eq!(slots.start, end);
            prop_assert!(!slots.is_empty());
            prop_assert_ne!(before, Some((request, kind)), "a run is cut in two");
            for slot in slots.clone() {
                let slot = &reference.slots[slot as usize];
                prop_assert_eq!(slot.request, Some(request));
                prop_assert_eq!(slot.current.is_some(), kind == SpanKind::Current);
            }
            (before, end) = (Some((request, kind)), slots.end);
        }
        prop_assert_eq!(end + batch.num_pad_slots, reference.slots.len() as u32);
    }

    #[test]
    fn current_pages_have_one_writer_and_the_merged_span_order((shape, batch) in batches(ANY)) {
        let reference = Reference::new(shape, &batch);
        let slots = plan(shape, &batch).slots;
        prop_assert_eq!(slots.num_current() as usize, reference.current().count());
        for (at, (slot_idx, slot, current)) in reference.current().enumerate() {
            prop_assert_eq!(current.idx as usize, at);
            prop_assert_eq!(slots.current_pages[at], slot.page.0);
            prop_assert_eq!(slots.current_slots[at], slot_idx as i32);
            prop_assert_eq!(slots.writers[at], current.writer);
        }
    }

    #[test]
    fn all_ranks_lay_the_batch_out_alike((shape, batch) in batches(ANY)) {
        let plans = plans(shape, &batch);
        prop_assert!(plans.iter().all(|plan| plan.slots == plans[0].slots));
    }

    #[test]
    fn straddling_slots_name_their_original((shape, batch) in batches(ANY)) {
        let slots = plan(shape, &batch).slots;
        let expected: Vec<_> = Reference::new(shape, &batch)
            .current()
            .filter_map(|(slot, content, current)| {
                let num_prefix_rows = content.num_prefix_rows;
                Some(Straddle { slot, original: current.original?, num_prefix_rows })
            })
            .collect();
        prop_assert_eq!(slots.page_aligned(), expected.is_empty());
        prop_assert_eq!(slots.straddles, expected);
    }

    #[test]
    fn inverses_lead_to_current_pages_and_nowhere_else((shape, batch) in batches(ANY)) {
        let (slots, reference) = (plan(shape, &batch).slots, Reference::new(shape, &batch));
        let (dense, staging) = (slots.dense_inverse(), slots.staging_inverse());
        for page in (-2..shape.num_logical_pages as i32 + 2).map(PageId) {
            let found = reference.current().find(|(_, slot, _)| slot.page == page);
            prop_assert_eq!(dense.get(page), found.map(|(slot, _, _)| slot as i32));
            prop_assert_eq!(staging.get(page), found.map(|(_, _, current)| current.idx as i32));
        }
        for outside in [i32::MIN, i32::MAX].map(PageId) {
            prop_assert_eq!(dense.get(outside), None);
        }
        for (&page, &slot) in slots.current_pages.iter().zip(&slots.current_slots) {
            prop_assert_eq!(slots.pages[slot as usize], PageId(page));
        }
    }

    #[test]
    fn padding_is_never_an_address((shape, batch) in batches(ANY)) {
        let reference = Reference::new(shape, &batch);
        for plan in plans(shape, &batch) {
            for strategy in Strategy::ALL {
                for (descriptor, slot) in descriptors(&plan, strategy).iter().zip(&reference.slots) {
                    if slot.page.is_pad() {
                        prop_assert_eq!(descriptor.base, BASE_ZERO);
                    }
                    prop_assert!(descriptor.page >= 0);
                    let bases = 2 * shape.group_size.get() as i32;
                    prop_assert!((BASE_KEEP..bases).contains(&descriptor.base));
                }
            }
        }
    }
}

/// Case 16.
#[test]
fn padding_stays_where_it_stands_first_middle_last_and_everywhere() {
    for (prefix, num_pad_slots) in [
        ([-1, 4, 5, 6], 0),
        ([4, 5, -1, 6], 0),
        ([4, 5, 6, -1], 2),
        ([-1, 5, -1, -1], 1),
        ([-1, -1, -1, -1], 3),
    ] {
        let request = RequestPages {
            prefix_tokens: 4 * 64,
            new_tokens: 65,
            prefix_pages: pages(&prefix),
            current_pages: pages(&[1, 2]),
        };
        let batch = Batch { requests: vec![request], num_pad_slots };
        let expected = [&prefix[..], &[1, 2], &[-1; 3][..num_pad_slots as usize]].concat();
        for plan in plans(shape(8, 64, 8), &batch) {
            assert_eq!(plan.slots.pages, pages(&expected));
            for strategy in Strategy::ALL {
                for (descriptor, &page) in descriptors(&plan, strategy).iter().zip(&expected) {
                    assert!(page != -1 || descriptor.base == BASE_ZERO, "{strategy} reads padding");
                }
            }
            assert_eq!(plan.slots.dense_inverse().get(PageId::PAD), None);
            assert_eq!(plan.slots.staging_inverse().get(PageId::PAD), None);
            assert!(plan.rows.dense_rows.iter().all(|&row| (4 * 64..6 * 64).contains(&row)));
        }
    }
}

#[test]
fn an_inverse_covers_only_the_range_of_its_pages() {
    let inverse = PageInverse::build(&[1_000_002, 1_000_000], |i| i as i32);
    assert_eq!((inverse.first_page, inverse.destinations), (1_000_000, vec![1, PAGE_NONE, 0]));
}

#[test]
fn spans_have_their_rows_and_a_straddling_page_is_in_the_current_one() {
    let mut batch = fresh_batch(&[3, 0, 9], 4);
    batch.requests[2].prefix_tokens = 6;
    batch.requests[2].prefix_pages = pages(&[10, 11]);
    let plan = plan(shape(2, 4, 16), &batch);
    let spans: Vec<_> =
        plan.slots.dense_spans().map(|(span, rows)| (span.request, span.kind, rows)).collect();
    // The 9 tokens and the 2 prefix rows before them fill 11 rows of 3 pages.
    assert_eq!(
        spans,
        [(0, SpanKind::Current, 0..4), (2, SpanKind::Prefix, 4..8), (2, SpanKind::Current, 8..20)]
    );
}
