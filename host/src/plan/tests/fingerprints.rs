//! Fingerprints: equal for equal batches, and for nothing else (case 12).

use std::collections::HashSet;

use proptest::prelude::*;

use super::random::{ANY, batches};
use super::{fresh, fresh_batch, pages, plan, plans, shape};
use crate::plan::{Batch, Fingerprint, PlanShape, RequestPages};
use crate::units::PageId;

fn base() -> Batch {
    let mut batch = fresh_batch(&[130, 64, 1], 64);
    batch.requests[1].prefix_tokens = 128;
    batch.requests[1].prefix_pages = pages(&[20, 21]);
    batch.num_pad_slots = 1;
    batch
}

fn edited(edit: impl FnOnce(&mut Batch)) -> Batch {
    let mut batch = base();
    edit(&mut batch);
    batch
}

#[test]
fn plans_that_differ_in_one_thing_are_told_apart() {
    let eight = shape(8, 64, 32);
    let batches = [
        base(),
        // One page, one row, the order.
        edited(|batch| batch.requests[0].current_pages[1] = PageId(30)),
        edited(|batch| batch.requests[0].new_tokens += 1),
        edited(|batch| batch.requests[0].current_pages.swap(0, 1)),
        edited(|batch| batch.requests[1].prefix_pages.swap(0, 1)),
        edited(|batch| batch.requests.swap(0, 2)),
        edited(|batch| batch.requests[1].prefix_pages[0] = PageId::PAD),
        // A request or a slot more.
        edited(|batch| batch.requests.push(RequestPages::default())),
        edited(|batch| batch.requests.insert(0, RequestPages::default())),
        edited(|batch| batch.requests.push(fresh(1, 64, 10))),
        edited(|batch| batch.num_pad_slots = 2),
    ];
    let mut seen = HashSet::new();
    for batch in &batches {
        assert!(seen.insert(plan(eight, batch).slots.fingerprint), "{batch:?}");
    }
    for other in [shape(7, 64, 32), shape(8, 65, 32), shape(8, 64, 33)] {
        assert!(seen.insert(Fingerprint::of(other, &base())), "{other:?}");
    }
}

#[test]
fn a_page_that_moves_between_lists_or_requests_is_seen() {
    let eight = shape(8, 64, 32);
    let split = |first: &[i32], second: &[i32], third: &[i32]| {
        let request = |prefix: &[i32], current: &[i32]| RequestPages {
            prefix_tokens: 7,
            new_tokens: 7,
            prefix_pages: pages(prefix),
            current_pages: pages(current),
        };
        let batch = Batch { requests: vec![request(first, second), request(third, &[])], num_pad_slots: 0 };
        Fingerprint::of(eight, &batch)
    };
    let all = [
        split(&[1, 2], &[3], &[]),
        split(&[1], &[2, 3], &[]),
        split(&[], &[1, 2, 3], &[]),
        split(&[1], &[2], &[3]),
        split(&[], &[1], &[2, 3]),
        split(&[], &[], &[1, 2, 3]),
    ];
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), all.len());
}

#[test]
fn what_is_mixed_in_tells_apart_too() {
    let fingerprint = Fingerprint::of(shape(8, 64, 32), &base());
    let all = [fingerprint, fingerprint.with(b""), fingerprint.with(b"a"), fingerprint.with(b"b")];
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), all.len());
    assert_eq!(fingerprint.with(b"a"), fingerprint.with(b"a"));
    assert_eq!(fingerprint.to_string().len(), 32);
}

/// One small change of a batch or its shape.
#[derive(Clone, Copy, Debug)]
enum Change {
    Page,
    Token,
    Swap,
    PadSlot,
    Pool,
}

fn change(change: Change, at: usize, mut shape: PlanShape, mut batch: Batch) -> (PlanShape, Batch) {
    let num_requests = batch.requests.len().max(1);
    let request = batch.requests.get_mut(at % num_requests);
    match (change, request) {
        (Change::Page, Some(request)) => {
            if let Some(page) = request.current_pages.first_mut() {
                page.0 ^= 1;
            }
        }
        (Change::Token, Some(request)) => request.new_tokens += 1,
        (Change::Swap, Some(_)) => batch.requests.swap(0, at % num_requests),
        (Change::PadSlot, _) => batch.num_pad_slots += 1,
        (Change::Pool, _) => shape.num_logical_pages += 1,
        _ => {}
    }
    (shape, batch)
}

proptest! {
    #[test]
    fn fingerprints_are_equal_exactly_where_batches_are(
        (shape, batch) in batches(ANY),
        which in prop::sample::select(vec![
            Change::Page, Change::Token, Change::Swap, Change::PadSlot, Change::Pool,
        ]),
        at in 0usize..8,
    ) {
        let changed = change(which, at, shape, batch.clone());
        let is_same = changed == (shape, batch.clone());
        let [before, after] = [Fingerprint::of(shape, &batch), Fingerprint::of(changed.0, &changed.1)];
        prop_assert_eq!(before == after, is_same);
    }

    #[test]
    fn all_ranks_have_one_fingerprint((shape, batch) in batches(ANY)) {
        let fingerprints: HashSet<_> =
            plans(shape, &batch).iter().map(|plan| plan.slots.fingerprint).collect();
        prop_assert_eq!(fingerprints.len(), 1);
    }
}
