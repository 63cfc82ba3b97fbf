//! The plan against its definitions: a naive serial reference, and a symbolic machine that runs its tables.

mod cases;
mod fingerprints;
mod garbage;
mod machine;
mod maps;
mod offsets;
mod page_sources;
mod ragged;
mod ragged_keys;
mod random;
mod reference;
mod refusals;
mod rows;
mod strategies;
mod zeroing;

use super::{Batch, BatchPlan, PlanShape, RequestPages};
use crate::units::{GroupSize, PageId, Rank};

fn shape(num_ranks: u32, page_size: u32, num_logical_pages: u32) -> PlanShape {
    PlanShape { group_size: GroupSize::new(num_ranks).unwrap(), page_size, num_logical_pages }
}

fn pages(ids: &[i32]) -> Vec<PageId> {
    ids.iter().copied().map(PageId).collect()
}

/// A request without prefix, on pages that follow one another from `first_page`.
fn fresh(new_tokens: u32, page_size: u32, first_page: i32) -> RequestPages {
    let end = first_page + new_tokens.div_ceil(page_size) as i32;
    RequestPages {
        new_tokens,
        current_pages: (first_page..end).map(PageId).collect(),
        ..RequestPages::default()
    }
}

/// A batch of requests without prefix.
fn fresh_batch(new_tokens: &[u32], page_size: u32) -> Batch {
    let mut first_page = 0;
    let requests = new_tokens.iter().map(|&new_tokens| {
        let request = fresh(new_tokens, page_size, first_page);
        first_page += request.current_pages.len() as i32;
        request
    });
    Batch { requests: requests.collect(), num_pad_slots: 0 }
}

/// The plans of all ranks.
fn plans(shape: PlanShape, batch: &Batch) -> Vec<BatchPlan> {
    shape.group_size.ranks().map(|rank| BatchPlan::build(shape, rank, batch).unwrap()).collect()
}

/// Rank 0's plan.
fn plan(shape: PlanShape, batch: &Batch) -> BatchPlan {
    BatchPlan::build(shape, Rank(0), batch).unwrap()
}
