//! What planning a batch costs the launch thread: the plan, the gather's descriptors and the packed tables of
//! `staging_fill`, on one rank. Target: under 100 us for 12 requests with 44,600 new tokens on 8 ranks.

use std::hint::black_box;
use std::time::Duration;

use cpkv::pages::{BufferKind, BufferSpec, GeometryError};
use cpkv::plan::{
    Batch, BatchPlan, PackedTables, PlanShape, RequestPages, Strategy, TablePacker, descriptors, zero_ranges,
};
use cpkv::units::{GroupSize, PageId, Rank};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const PAGE_SIZE: u32 = 64;
const NUM_RANKS: u32 = 8;
/// About what 8 x 60 GB hold of 79 layers with 656 B a token.
const POOL_PAGES: u32 = 131_072;
const HEADLINE_REQUESTS: u32 = 12;
const HEADLINE_TOKENS: u32 = 44_600;

/// Hands out the pool's pages in an order that years of reuse could have left: scattered over the whole pool.
struct FreeList {
    num_taken: u32,
}

impl FreeList {
    fn take(&mut self, num_pages: u32) -> Vec<PageId> {
        // An odd step is a permutation of a power of two.
        let page = |nth: u32| PageId((nth.wrapping_mul(40_503) % POOL_PAGES) as i32);
        let first = self.num_taken;
        self.num_taken += num_pages;
        (first..self.num_taken).map(page).collect()
    }
}

/// `num_requests` requests of unequal lengths, `new_tokens` together. Every second one has a prefix, the fourth,
/// eighth, ... share one.
fn batch(num_requests: u32, new_tokens: u32) -> Batch {
    let mut free = FreeList { num_taken: 0 };
    let shared = free.take(32);
    let weights = |idx: u32| u64::from(1 + idx * 7 % 5);
    let total: u64 = (0..num_requests).map(weights).sum();
    let (mut passed, mut given) = (0, 0);
    let requests = (0..num_requests).map(|idx| {
        passed += weights(idx);
        let end = (u64::from(new_tokens) * passed / total) as u32;
        let new_tokens = end - given;
        given = end;
        let prefix_pages = match idx % 4 {
            1 => free.take(24 + 8 * (idx % 3)),
            3 => shared.clone(),
            _ => Vec::new(),
        };
        RequestPages {
            prefix_tokens: prefix_pages.len() as u32 * PAGE_SIZE,
            new_tokens,
            prefix_pages,
            current_pages: free.take(new_tokens.div_ceil(PAGE_SIZE)),
        }
    });
    Batch { requests: requests.collect(), num_pad_slots: 0 }
}

fn shape() -> PlanShape {
    let group_size = GroupSize::new(NUM_RANKS).unwrap_or_else(|error| panic!("{error}"));
    PlanShape { group_size, page_size: PAGE_SIZE, num_logical_pages: POOL_PAGES }
}

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
    packer.finish()
}

fn headline(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan/12_requests_44600_tokens_8_ranks");
    let batch = batch(HEADLINE_REQUESTS, HEADLINE_TOKENS);
    let buffers = buffers().unwrap_or_else(|error| panic!("{error}"));
    let built = plan(&batch);
    group.bench_function("build", |bencher| bencher.iter(|| plan(black_box(&batch))));
    group.bench_function("descriptors", |bencher| {
        bencher.iter(|| descriptors(black_box(&built), Strategy::StagingFill));
    });
    group.bench_function("tables", |bencher| bencher.iter(|| pack(black_box(&built), &buffers)));
    group.bench_function("all", |bencher| bencher.iter(|| pack(&plan(black_box(&batch)), &buffers)));
    group.finish();
}

fn sizes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan/all");
    let buffers = buffers().unwrap_or_else(|error| panic!("{error}"));
    for num_requests in [1, 8, 64] {
        for new_tokens in [1 << 10, 1 << 14, 1 << 17] {
            let batch = batch(num_requests, new_tokens);
            group.throughput(Throughput::Elements(u64::from(new_tokens)));
            let id = BenchmarkId::new(format!("{num_requests}_requests"), format!("{new_tokens}_tokens"));
            group.bench_with_input(id, &batch, |bencher, batch| {
                bencher.iter(|| pack(&plan(batch), &buffers));
            });
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
