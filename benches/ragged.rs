//! What the plans cost the launch thread, on rank 3 of 8: once a batch, and in each of its layers.
//!
//! Baselines: `rebuilt_per_layer` is what the first system did, written fairly: tables and spans are built anew in every
//! layer from the batch's lists, in vectors of their own, and hold the same numbers (asserted before anything is timed).
//! Units: the ids say whether a time is for a batch, a layer, or a forward of 79 layers; times are as criterion prints
//! them.
//!
//! Targets, in a release build: ragged plan at most 10 us a batch; a layer's access at most 50 ns, its spans under
//! 500 ns; the whole plan of 128K tokens at most 2.2 times that of 64K, as the table at the end says.

#[path = "support/batches.rs"]
mod batches;
#[path = "support/per_layer.rs"]
mod per_layer;

use std::hint::black_box;
use std::time::{Duration, Instant};

use batches::{HEADLINE_REQUESTS, HEADLINE_TOKENS, PAGE_SIZE, POOL_PAGES, batch, shape};
use cpkv::pages::TokenIndices;
use cpkv::plan::{Batch, BatchPlan, Fingerprint, RaggedKey, RaggedPlan};
use cpkv::units::Rank;
use criterion::{Criterion, criterion_group, criterion_main};
use per_layer::PerLayer;

const RANK: Rank = Rank(3);
/// Layers of the headline model, its draft layer included.
const NUM_LAYERS: usize = 79;

fn plan(batch: &Batch) -> BatchPlan {
    BatchPlan::build(shape(), RANK, batch).unwrap_or_else(|error| panic!("{error}"))
}

fn ragged(plan: &BatchPlan) -> RaggedPlan {
    RaggedPlan::build(&plan.slots, RANK).unwrap_or_else(|error| panic!("{error}"))
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

/// A layer that looks at every span: the sum of their rows.
fn walk_spans(plan: &BatchPlan) -> u32 {
    plan.slots.dense_spans().map(|(_, rows)| rows.end - rows.start).sum()
}

fn headline(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ragged/12_requests_44600_tokens_8_ranks");
    let batch = batch(HEADLINE_REQUESTS, HEADLINE_TOKENS);
    let plan = plan(&batch);
    let key = plan.ragged.key();
    let rebuild = || PerLayer::rebuild(shape(), RANK, black_box(&batch));
    assert_eq!(Some(rebuild().tables()), access(&plan.ragged, &key));
    let spans: Vec<_> = plan.slots.dense_spans().map(|(_, rows)| rows).collect();
    assert_eq!(per_layer::spans(PAGE_SIZE, &batch), spans);

    group.bench_function("batch/ragged_plan", |bencher| bencher.iter(|| ragged(black_box(&plan))));
    group.bench_function("batch/whole_plan", |bencher| bencher.iter(|| self::plan(black_box(&batch))));
    group.bench_function("batch/content_key", |bencher| {
        bencher.iter(|| RaggedKey::of(shape(), RANK, black_box(&batch)));
    });
    group.bench_function("batch/fingerprint", |bencher| {
        bencher.iter(|| Fingerprint::of(shape(), black_box(&batch)));
    });
    group.bench_function("layer/access", |bencher| {
        bencher.iter(|| access(black_box(&plan.ragged), black_box(&key)));
    });
    group.bench_function("layer/rebuilt_per_layer", |bencher| bencher.iter(rebuild));
    group.bench_function("layer/spans", |bencher| bencher.iter(|| walk_spans(black_box(&plan))));
    group.bench_function("layer/spans_rebuilt_per_layer", |bencher| {
        bencher.iter(|| per_layer::spans(PAGE_SIZE, black_box(&batch)));
    });
    group.bench_function("forward_of_79_layers/ragged_plan", |bencher| {
        bencher.iter(|| {
            let ragged = ragged(black_box(&plan));
            for _ in 0..NUM_LAYERS {
                black_box(access(black_box(&ragged), black_box(&key)));
            }
        });
    });
    group.bench_function("forward_of_79_layers/rebuilt_per_layer", |bencher| {
        bencher.iter(|| (0..NUM_LAYERS).for_each(|_| drop(black_box(rebuild()))));
    });
    group.finish();
}

/// The check of token indices in host memory: the one there is.
fn indices(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ragged/token_indices");
    let batch = batch(1, HEADLINE_TOKENS);
    let pages = batch.requests.iter().flat_map(|request| &request.current_pages);
    let first = pages.map(|page| i64::from(page.0) * i64::from(PAGE_SIZE));
    let indices: Vec<i64> = first.flat_map(|first| first..first + i64::from(PAGE_SIZE)).collect();
    let indices = &indices[..HEADLINE_TOKENS as usize];
    group.bench_function("batch/check_44600_in_host_memory", |bencher| {
        bencher.iter(|| TokenIndices::new(black_box(indices), PAGE_SIZE, POOL_PAGES).is_ok());
    });
    group.finish();
}

/// The least time of a whole plan, in microseconds: what else the machine does is not to be seen as growth.
fn plan_us(batch: &Batch) -> f64 {
    let time = |_| {
        let start = Instant::now();
        black_box(plan(black_box(batch)));
        start.elapsed()
    };
    let least = (0..301).map(time).min().unwrap_or_default();
    least.as_secs_f64() * 1e6
}

/// Twice the tokens cost at most so many times as much.
const MOST_GROWTH: f64 = 2.2;

/// Prints how a whole plan's time grows with its tokens, and fails where it grows faster.
fn growth(_: &mut Criterion) {
    println!("whole plan, us a batch (least of 301), and times the column before:");
    for num_requests in [1, 12, 64] {
        print!("{num_requests:>3} requests");
        let mut before = None;
        for kilo_tokens in (0..8).map(|power| 1 << power) {
            let us = plan_us(&batch(num_requests, kilo_tokens << 10));
            let growth = before.map(|before| us / before);
            let ratio = growth.map_or(String::new(), |growth| format!(" x{growth:.2}"));
            assert!(
                growth.is_none_or(|growth| growth <= MOST_GROWTH),
                "{kilo_tokens}K tokens cost{ratio} of half as many: a plan's cost is to grow with its tokens"
            );
            print!(" | {kilo_tokens}K {us:.1}{ratio}");
            before = Some(us);
        }
        println!();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = headline, indices, growth
}
criterion_main!(benches);
