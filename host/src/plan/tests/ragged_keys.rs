//! Content keys: equal exactly where the ragged plans derive from the same.

use std::collections::HashSet;

use proptest::prelude::*;

use super::random::{ANY, batches};
use super::{fresh_batch, pages, shape};
use crate::plan::{Batch, BatchPlan, RaggedKey};
use crate::units::Rank;

fn edited(edit: impl FnOnce(&mut Batch)) -> Batch {
    let mut batch = fresh_batch(&[130, 64, 1], 64);
    edit(&mut batch);
    batch
}

#[test]
fn what_changes_the_plan_changes_the_key() {
    let eight = shape(8, 64, 32);
    let batches = [
        edited(|_| {}),
        edited(|batch| batch.requests[0].new_tokens -= 1),
        edited(|batch| batch.requests[1].prefix_tokens = 64),
        edited(|batch| batch.requests.swap(0, 1)),
        edited(|batch| batch.requests.truncate(2)),
        edited(|batch| batch.requests.insert(0, Default::default())),
        edited(|batch| batch.requests.push(Default::default())),
        // Tokens that move between prefix and new, and between requests.
        edited(|batch| {
            batch.requests[1].new_tokens = 0;
            batch.requests[1].prefix_tokens = 64;
        }),
        edited(|batch| {
            batch.requests[0].new_tokens = 129;
            batch.requests[2].new_tokens = 2;
        }),
    ];
    let mut seen = HashSet::new();
    for batch in &batches {
        assert!(seen.insert(RaggedKey::of(eight, Rank(0), batch)), "{batch:?}");
    }
    for (shape, rank) in [(shape(7, 64, 32), 0), (shape(8, 65, 32), 0), (eight, 1)] {
        assert!(seen.insert(RaggedKey::of(shape, Rank(rank), &batches[0])), "{shape:?}, rank {rank}");
    }
}

#[test]
fn other_pages_and_more_padding_keep_the_key_and_the_plan() {
    let build = |batch: &Batch| BatchPlan::build(shape(8, 64, 32), Rank(0), batch).unwrap();
    let (plan, other) = (
        build(&edited(|_| {})),
        edited(|batch| {
            batch.requests[0].current_pages = pages(&[20, 19, 18]);
            batch.num_pad_slots = 4;
        }),
    );
    assert!(plan.ragged.matches(&RaggedKey::of(shape(8, 64, 99), Rank(0), &other)));
    assert_eq!(build(&other).ragged, plan.ragged);
    assert_ne!(build(&other).slots.fingerprint, plan.slots.fingerprint);
}

#[test]
fn a_held_plan_is_told_from_one_for_another_batch_at_the_same_address() {
    let shape = shape(8, 64, 32);
    let mut batch = edited(|_| {});
    let held = BatchPlan::build(shape, Rank(0), &batch).unwrap().ragged;
    assert!(held.matches(&RaggedKey::of(shape, Rank(0), &batch)));
    batch.requests[0].new_tokens -= 1;
    assert!(!held.matches(&RaggedKey::of(shape, Rank(0), &batch)));
}

proptest! {
    #[test]
    fn plans_with_one_key_are_one_plan(
        (shape, batch) in batches(ANY),
        rank in 0..64u32,
        at in 0usize..8,
        token in any::<bool>(),
    ) {
        let rank = Rank(rank % shape.group_size.get());
        let before = BatchPlan::build(shape, rank, &batch).unwrap().ragged;
        let mut changed = batch.clone();
        let num_requests = batch.requests.len().max(1);
        match changed.requests.get_mut(at % num_requests) {
            // One token less leaves the page lists as they are, unless the last page held only it.
            Some(request) if token && request.new_tokens > 1 => request.new_tokens -= 1,
            _ if !batch.requests.is_empty() => changed.requests.swap(0, at % num_requests),
            _ => {}
        }
        if let Ok(after) = BatchPlan::build(shape, rank, &changed) {
            let tokens = |batch: &Batch| -> Vec<_> {
                batch.requests.iter().map(|request| (request.prefix_tokens, request.new_tokens)).collect()
            };
            prop_assert_eq!(before.key() == after.ragged.key(), tokens(&batch) == tokens(&changed));
            prop_assert_eq!(before.key() == after.ragged.key(), before == after.ragged);
        }
    }
}
