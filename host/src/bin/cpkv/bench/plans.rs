//! What plans cost the launch thread, by tokens: the whole plan and its ragged part, once a batch; the same tables built anew in
//! a layer; and a layer's access.

use std::hint::black_box;
use std::time::{Duration, Instant};

use cpkv::plan::{Batch, BatchPlan, PlanShape, RaggedKey, RaggedPlan};
use cpkv::units::{GroupSize, Rank};

use super::batches::batch;
use super::cases::Case;
use super::figures::Figure;
use super::per_layer::{self, PerLayer};
use super::report::{LeftOut, PlanRow};
use super::rounds;
use crate::error::RunError;
use crate::samples::Samples;

/// New tokens of the batches that are planned; no page is touched, so that size costs no memory.
const NEW_TOKENS: [u32; 8] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
const PREFIX_TOKENS: u32 = 8 << 10;
const NUM_REQUESTS: u32 = 12;
const POOL_PAGES: u32 = 1 << 16;
/// Accesses that one sample times: a single one is shorter than the clock's steps.
const NUM_ACCESSES: u32 = 1000;

/// Its plans are timed.
const RANK: Rank = Rank(0);

/// Plans of one batch, with their samples.
struct Bench {
    batch: Batch,
    plan: BatchPlan,
    key: RaggedKey,
    new_tokens: u32,
    plan_us: Samples,
    ragged_us: Samples,
    rebuild_us: Samples,
    access_ns: Samples,
}

/// Measures for rank 0 of a group of `group_size`, which has the first page of every request; `largest` is the most tokens to plan.
pub(crate) fn measure(
    group_size: GroupSize,
    page_size: u32,
    largest: u32,
    share: Duration,
) -> Result<(Vec<PlanRow>, Vec<LeftOut>), RunError> {
    let shape = PlanShape { group_size, page_size, num_logical_pages: POOL_PAGES };
    let (mut benches, mut left_out) = (Vec::new(), Vec::new());
    for new_tokens in NEW_TOKENS.into_iter().filter(|tokens| *tokens <= largest) {
        let bench = Bench::new(shape, RANK, new_tokens)?;
        match bench.is_fair(shape, RANK) {
            true => benches.push(bench),
            false => left_out.push(LeftOut::new(
                format!("plans of {new_tokens} tokens"),
                "the tables built anew differ from the plan's",
            )),
        }
    }
    rounds::run(share, |counts| -> Result<(), RunError> {
        benches.iter_mut().try_for_each(|bench| bench.round(shape, RANK, counts))
    })?;
    Ok((benches.iter().filter_map(Bench::row).collect(), left_out))
}

impl Bench {
    fn new(shape: PlanShape, rank: Rank, new_tokens: u32) -> Result<Self, RunError> {
        let case = Case { prefix_tokens: PREFIX_TOKENS, new_tokens, requests: NUM_REQUESTS };
        let batch = batch(case, shape.page_size, shape.num_logical_pages, 1);
        let plan = BatchPlan::build(shape, rank, &batch).map_err(cpkv::compose::ComposeError::from)?;
        let key = plan.ragged.key();
        let (plan_us, ragged_us, rebuild_us, access_ns) = Default::default();
        Ok(Self { batch, plan, key, new_tokens, plan_us, ragged_us, rebuild_us, access_ns })
    }

    /// Whether the baseline computes the same numbers.
    fn is_fair(&self, shape: PlanShape, rank: Rank) -> bool {
        let spans: Vec<_> = self.plan.slots.dense_spans().map(|(_, rows)| rows).collect();
        access(&self.plan.ragged, &self.key) == Some(PerLayer::rebuild(shape, rank, &self.batch).tables())
            && per_layer::spans(shape.page_size, &self.batch) == spans
    }

    fn round(&mut self, shape: PlanShape, rank: Rank, counts: bool) -> Result<(), RunError> {
        let plan_us = timed_us(|| BatchPlan::build(shape, rank, black_box(&self.batch)).is_ok());
        let ragged_us = timed_us(|| RaggedPlan::build(black_box(&self.plan.slots), rank).is_ok());
        let rebuild_us = timed_us(|| {
            black_box(PerLayer::rebuild(shape, rank, black_box(&self.batch)));
            true
        });
        let access_us = timed_us(|| {
            (0..NUM_ACCESSES)
                .all(|_| black_box(access(black_box(&self.plan.ragged), black_box(&self.key))).is_some())
        });
        if counts {
            self.plan_us.push(plan_us);
            self.ragged_us.push(ragged_us);
            self.rebuild_us.push(rebuild_us);
            self.access_ns.push(access_us * 1e3 / f64::from(NUM_ACCESSES));
        }
        Ok(())
    }

    fn row(&self) -> Option<PlanRow> {
        let plan = Figure::of(&self.plan_us)?;
        Some(PlanRow {
            new_tokens: self.new_tokens,
            requests: NUM_REQUESTS,
            samples: plan.samples,
            plan_us_median: plan.median,
            plan_us_p99: plan.p99,
            ragged_us_median: Figure::of(&self.ragged_us)?.median,
            rebuild_us_median: Figure::of(&self.rebuild_us)?.median,
            access_ns_median: Figure::of(&self.access_ns)?.median,
        })
    }
}

/// A layer's access: whether the plan is the batch's, and all tables.
fn access<'a>(ragged: &'a RaggedPlan, key: &RaggedKey) -> Option<[&'a [i32]; 8]> {
    ragged.matches(key).then(|| {
        [
            ragged.q_starts(),
            ragged.q_lens(),
            ragged.kv_lens(),
            ragged.k_bases(),
            ragged.q_bases(),
            ragged.current_bases(),
            ragged.segments().as_flattened(),
            ragged.topk_offsets(),
        ]
    })
}

/// Microseconds of `work`, what it made given back before the clock is read again.
fn timed_us(work: impl FnOnce() -> bool) -> f64 {
    let begun = Instant::now();
    black_box(work());
    begun.elapsed().as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_fair_for_every_size_and_each_has_a_row() {
        for (ranks, page_size) in [(8, 64), (2, 4), (1, 64)] {
            let size = GroupSize::new(ranks).unwrap();
            let (rows, left_out) = measure(size, page_size, 8 << 10, Duration::ZERO).unwrap();
            assert_eq!(left_out, []);
            let tokens: Vec<_> = rows.iter().map(|row| row.new_tokens).collect();
            assert_eq!(tokens, [1 << 10, 2 << 10, 4 << 10, 8 << 10]);
            assert!(rows.iter().all(|row| row.plan_us_median > 0.0 && row.access_ns_median > 0.0));
        }
    }
}
