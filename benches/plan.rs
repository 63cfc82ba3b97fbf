//! What planning a batch costs the launch thread: the plan, its fingerprint, the gather's descriptors and the packed tables
//! of `staging_fill`, on one rank; then by 1 to 64 requests and 1K to 128K new tokens.
//!
//! Unit: time per batch. Baselines: of the plan, `rebuilt_in_79_layers`, the ragged tables alone made anew from lists in every
//! layer of a forward; of the fingerprint, `hash_alone`, the same hash over as many bytes in one piece. Target: `all` under
//! 100 us for 12 requests with 44,600 new tokens on 8 ranks.

#[path = "support/batches.rs"]
mod batches;
#[path = "support/per_layer.rs"]
mod per_layer;

use std::hint::black_box;
use std::time::Duration;

use batches::{HEADLINE_REQUESTS, HEADLINE_TOKENS, NUM_RANKS, PAGE_SIZE, batch, shape};
use cpkv::pages::{BufferKind, BufferSpec, GeometryError};
use cpkv::plan::{
    Batch, BatchPlan, Fingerprint, PackedTables, Strategy, TablePacker, descriptors, zero_ranges,
};
use cpkv::units::{PageId, Rank};
use xxhash_rust::xxh3::xxh3_128;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use per_layer::PerLayer;

/// Layers of a forward.
const NUM_LAYERS: usize = 79;

fn plan(batch: &Batch) -> BatchPlan {
    BatchPlan::build(shape(), Rank(3), batch).unwrap_or_else(|error| panic!("{error}"))
}

fn buffers() -> Result<[BufferSpec; 2], GeometryError> {
    let spec = |kind| BufferSpec::new(kind, PAGE_SIZE);
    Ok([spec(BufferKind::TokenKv { row_bytes: 656 })?, spec(BufferKind::IndexK)?])
}

/// The tables that `staging_fill` uploads.
fn pack(plan: &BatchPlan, buffers: &[BufferSpec]) -> PackedTables {
    let (slots, rows) = (&plan.slots, &plan.rows);
    let mut packer = TablePacker::default();
    for &buffer in buffers {
        packer.push(&[0u64; 2 * NUM_RANKS as usize]);
        packer.push(&zero_ranges(buffer, &rows.partial_pages, |page| page.staging_slot));
    }
    packer.push(&descriptors(plan, Strategy::StagingFill));
    packer.push(&rows.staging_rows);
    packer.push(&(0..slots.num_current() as i32).collect::<Vec<_>>());
    packer.push(&slots.current_slots);
    let ownership = slots.ownership();
    let place = |page| if ownership.owner(page) == plan.rank { ownership.shard_idx(page) } else { -1 };
    packer.push(&slots.current_pages.iter().map(|&page| place(PageId(page))).collect::<Vec<_>>());
    packer.push(plan.ragged.block());
    packer.finish()
}

fn headline(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan/12_requests_44600_tokens_8_ranks");
    let batch = batch(HEADLINE_REQUESTS, HEADLINE_TOKENS);
    let buffers = buffers().unwrap_or_else(|error| panic!("{error}"));
    let built = plan(&batch);
    group.bench_function("build", |bencher| bencher.iter(|| plan(black_box(&batch))));
    group.bench_function("fingerprint", |bencher| {
        bencher.iter(|| Fingerprint::of(shape(), black_box(&batch)));
    });
    let num_ids: usize = batch
        .requests
        .iter()
        .map(|request| 4 + request.prefix_pages.len() + request.current_pages.len())
        .sum();
    let bytes = vec![0x5A_u8; 4 * num_ids];
    group.bench_function("hash_alone", |bencher| bencher.iter(|| xxh3_128(black_box(&bytes))));
    group.bench_function("rebuilt_in_79_layers", |bencher| {
        let rebuild = || PerLayer::rebuild(shape(), Rank(3), black_box(&batch));
        bencher.iter(|| (0..NUM_LAYERS).for_each(|_| drop(black_box(rebuild()))));
    });
    group.bench_function("descriptors", |bencher| {
        bencher.iter(|| descriptors(black_box(&built), Strategy::StagingFill));
    });
    group.bench_function("tables", |bencher| bencher.iter(|| pack(black_box(&built), &buffers)));
    group.bench_function("all", |bencher| bencher.iter(|| pack(&plan(black_box(&batch)), &buffers)));
    group.finish();
}

/// Each step by the number of requests and of new tokens.
fn sizes(criterion: &mut Criterion) {
    let buffers = buffers().unwrap_or_else(|error| panic!("{error}"));
    by_size(criterion, "plan/build", plan);
    by_size(criterion, "plan/fingerprint", |batch| Fingerprint::of(shape(), batch));
    by_size(criterion, "plan/all", |batch| pack(&plan(batch), &buffers));
}

fn by_size<T>(criterion: &mut Criterion, name: &str, step: impl Fn(&Batch) -> T) {
    let mut group = criterion.benchmark_group(name);
    for num_requests in [1, 8, 64] {
        for new_tokens in [1 << 10, 1 << 14, 1 << 17] {
            let batch = batch(num_requests, new_tokens);
            group.throughput(Throughput::Elements(u64::from(new_tokens)));
            let id = BenchmarkId::new(format!("{num_requests}_requests"), format!("{new_tokens}_tokens"));
            group.bench_with_input(id, &batch, |bencher, batch| bencher.iter(|| step(black_box(batch))));
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = headline, sizes
}
criterion_main!(benches);
