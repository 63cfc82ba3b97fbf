//! Every strategy, run on the symbolic machine, delivers the definition's content on every rank.

use proptest::prelude::*;

use super::machine::{Cell, Memory, Node, all_reduce};
use super::random::{Limits, batches};
use super::reference::Reference;
use super::{fresh_batch, plans, shape};
use crate::plan::{Batch, PlanShape, Strategy, descriptors};

/// The content of every dense slot.
fn oracle(shape: PlanShape, reference: &Reference) -> Memory {
    let rows = reference.slots.iter().flat_map(|slot| {
        let original = slot.current.and_then(|current| current.original);
        (0..shape.page_size).map(move |row| match (slot.current, original) {
            _ if slot.page.is_pad() => Cell::Zero,
            (None, _) => Cell::Old(slot.page.0, row),
            (Some(_), _) if slot.new_rows[row as usize] => Cell::New(slot.page.0, row),
            (Some(_), Some(original)) if row < slot.num_prefix_rows => Cell::Old(original.0, row),
            (Some(_), _) => Cell::Zero,
        })
    });
    rows.collect()
}

/// Runs the tables of `strategy` up to the end of the gather.
fn compose(nodes: &mut [Node], strategy: Strategy) {
    match strategy {
        Strategy::PerSpan => {
            local_fill(nodes, strategy);
            let slots = nodes[0].plan.slots.clone();
            let page_size = slots.shape.page_size;
            for span in slots.spans {
                let rows = (span.slots.start * page_size) as usize..(span.slots.end * page_size) as usize;
                all_reduce(nodes, |node| &mut node.dense, rows);
            }
        }
        Strategy::FusedAllReduce => {
            local_fill(nodes, strategy);
            let num_rows = nodes[0].dense.len();
            all_reduce(nodes, |node| &mut node.dense, 0..num_rows);
        }
        Strategy::GatherCompact => {
            gather(nodes, strategy, |_| Vec::new());
            for node in &mut *nodes {
                node.staging.fill(Cell::Zero);
                node.fill_staging();
            }
            let num_rows = nodes[0].staging.len();
            all_reduce(nodes, |node| &mut node.staging, 0..num_rows);
            for node in nodes {
                let packed = node.staging.clone();
                node.unpack(&packed);
            }
        }
        Strategy::SymmDense => {
            for node in &mut *nodes {
                node.fill_dense();
                node.zero_unfilled_dense();
            }
            gather(nodes, strategy, |node| node.dense.clone());
        }
        Strategy::StagingPublish => {
            for node in &mut *nodes {
                node.fill_dense();
                node.zero_unfilled_dense();
                node.publish();
            }
            gather(nodes, strategy, |node| node.staging.clone());
        }
        Strategy::StagingFill => {
            for node in &mut *nodes {
                node.fill_staging();
                node.zero_unfilled_staging();
            }
            gather(nodes, strategy, |node| node.staging.clone());
        }
    }
}

fn local_fill(nodes: &mut [Node], strategy: Strategy) {
    gather(nodes, strategy, |_| Vec::new());
    for node in nodes {
        node.fill_straddles();
        node.fill_dense();
    }
}

/// A barrier, then the gather of every rank from what the barrier made visible.
fn gather(nodes: &mut [Node], strategy: Strategy, published: impl Fn(&Node) -> Memory) {
    let pools: Vec<_> = nodes.iter().map(|node| node.pool.clone()).collect();
    let published: Vec<_> = nodes.iter().map(published).collect();
    let bases: Vec<_> = pools.iter().chain(&published).collect();
    for node in nodes {
        let table = descriptors(&node.plan, strategy);
        assert_eq!(table.len() as u32, node.plan.slots.num_slots());
        node.gather(&table, &bases);
    }
}

/// Composes and persists `batch`; both must leave exactly what the definition says, on every rank.
fn check(shape: PlanShape, batch: &Batch, strategy: Strategy) {
    let reference = Reference::new(shape, batch);
    let expected = oracle(shape, &reference);
    let mut nodes: Vec<_> = plans(shape, batch).into_iter().map(|plan| Node::new(plan, &reference)).collect();
    let mut pools: Vec<_> = nodes.iter().map(|node| node.pool.clone()).collect();
    compose(&mut nodes, strategy);
    let page_size = shape.page_size as usize;
    for (slot, _, _) in reference.current() {
        let page = reference.slots[slot as usize].page.0 as usize;
        let num_ranks = shape.group_size.len();
        let place = page / num_ranks * page_size;
        let content = &expected[slot as usize * page_size..][..page_size];
        pools[page % num_ranks][place..place + page_size].copy_from_slice(content);
    }
    for (node, pool) in nodes.iter_mut().zip(pools) {
        let rank = node.plan.rank;
        assert!(node.dense == expected, "{strategy}, rank {rank}: dense");
        node.persist();
        assert!(node.pool == pool, "{strategy}, rank {rank}: pool");
    }
}

const ALIGNED: Limits = Limits { page_size: 8, new_pages: 24, straddles: false };
const STRADDLING: Limits = Limits { straddles: true, ..ALIGNED };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_strategy_delivers_the_definition_to_every_rank((shape, batch) in batches(ALIGNED)) {
        for strategy in Strategy::ALL {
            check(shape, &batch, strategy);
        }
    }

    #[test]
    fn collective_strategies_deliver_straddling_pages_too((shape, batch) in batches(STRADDLING)) {
        for strategy in Strategy::ALL.into_iter().filter(|strategy| !strategy.needs_page_aligned()) {
            check(shape, &batch, strategy);
        }
    }
}

#[test]
fn every_strategy_delivers_awkward_counts_in_one_batch() {
    let batch = fresh_batch(&[1, 63, 64, 65, 0, 511, 512, 513, 4_097], 64);
    for strategy in Strategy::ALL {
        check(shape(8, 64, 128), &batch, strategy);
    }
}
