//! What per-layer transfer costs one rank of 8, whose engine is the in-process one: the hook on the forward's thread (the
//! median of a forward's calls), the blocks of a layer, and the merging of a request's pages into runs.
//!
//! Units: time per call, per layer and per request, as the names say. Baselines: of the hook, `the event alone`, which any hook
//! has to record; of blocks and merging, `each page alone`, where nothing merges. Target: the hook under 5 us for 12 requests.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cpkv::device::{CpuDevice, Device, DeviceBuffer};
use cpkv::group::PoisonGate;
use cpkv::pages::Ownership;
use cpkv::transfer::{
    Block, DecodeGroup, Destination, Fabric, InProcessEngine, InboxMap, LayerBuffer, ManagerOptions,
    ManagerParts, Offer, PageRuns, PoolMap, RequestId, RequestRun, RequestSpec, Source, TransferEngine,
    TransferEpoch, TransferManager, WorkerRoute, build_layer_blocks,
};
use cpkv::units::{GroupSize, PageId, Rank};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const NUM_RANKS: u32 = 8;
const NUM_LAYERS: usize = 78;
/// 44,600 tokens in pages of 64, among 12 requests.
const PAGES_OF_REQUEST: u32 = 58;
/// Small pages: the hook's cost does not depend on them, and the copies leave it a core.
const PAGE_BYTES: u64 = 512;
const TIMEOUT: Duration = Duration::from_secs(60);

type Failure = Box<dyn std::error::Error>;

fn pool(memory: &DeviceBuffer, num_pages: u32) -> PoolMap {
    let layer_bytes = u64::from(num_pages) * PAGE_BYTES;
    let layer = |layer: usize| {
        vec![LayerBuffer { addr: memory.addr() + layer as u64 * layer_bytes, page_bytes: PAGE_BYTES }]
    };
    PoolMap { num_pages, layers: (0..NUM_LAYERS).map(layer).collect() }
}

/// A rank and a decode worker with room for `num_requests` requests.
struct Bench {
    manager: TransferManager,
    decode: Arc<DecodeGroup>,
    inbox: DeviceBuffer,
    next_request: u64,
    _worker: InProcessEngine,
}

impl Bench {
    fn new(num_requests: u32) -> Result<Self, Failure> {
        let fabric = Fabric::new();
        let (engine, worker) = (fabric.endpoint("rank 0")?, fabric.endpoint("worker 0")?);
        let num_pages = num_requests * PAGES_OF_REQUEST;
        let group_size = GroupSize::new(NUM_RANKS)?;
        let shard_pages = Ownership::new(group_size).num_shard_pages(num_pages);
        let memory = CpuDevice.alloc(u64::from(shard_pages) * PAGE_BYTES * NUM_LAYERS as u64)?;
        let theirs = CpuDevice.alloc(u64::from(num_pages) * PAGE_BYTES * NUM_LAYERS as u64)?;
        let inbox = CpuDevice.alloc(InboxMap::bytes_for(NUM_RANKS, 2 * NUM_LAYERS as u32))?;
        engine.register(&memory)?;
        worker.register(&theirs)?;
        worker.register(&inbox)?;
        let source = Source { rank: Rank(0), group_size, pool: pool(&memory, shard_pages) };
        let route =
            WorkerRoute { peer: engine.add_peer(&worker.metadata()?)?, pool: pool(&theirs, num_pages) };
        let decode = Arc::new(DecodeGroup::new(&source, vec![route])?);
        let parts = ManagerParts {
            engine: Arc::new(engine),
            device: Arc::new(CpuDevice),
            stream: CpuDevice.stream()?,
            gate: PoisonGate::default(),
            source,
        };
        let options = ManagerOptions { min_prompt_tokens: 0, ..ManagerOptions::default() };
        let manager = TransferManager::start(parts, options)?;
        Ok(Self { manager, decode, inbox, next_request: 1, _worker: worker })
    }

    /// One forward with `num_requests` requests; the median of how long the hooks of its layers took.
    fn forward(&mut self, num_requests: u32) -> Result<Duration, Failure> {
        let inbox =
            InboxMap { addr: self.inbox.addr(), group_size: NUM_RANKS, num_words: 2 * NUM_LAYERS as u32 };
        let ids: Vec<RequestId> =
            (0..num_requests).map(|nth| RequestId(self.next_request + u64::from(nth))).collect();
        self.next_request += u64::from(num_requests);
        for (nth, &request) in (0..).zip(&ids) {
            let place = |page: u32| Some(Destination { worker: 0, page_idx: nth * PAGES_OF_REQUEST + page });
            let offer = Offer {
                request,
                epoch: TransferEpoch(request.0),
                destinations: (0..PAGES_OF_REQUEST).map(place).collect(),
                inboxes: vec![inbox],
            };
            let (decode, prefix) = (Arc::clone(&self.decode), RequestRun::default());
            self.manager.register(RequestSpec { offer, decode, prompt_tokens: 4096, prefix })?;
            let first = (nth * PAGES_OF_REQUEST) as i32;
            let pages = (first..first + PAGES_OF_REQUEST as i32).map(PageId).collect();
            self.manager.open_chunk(request, &RequestRun { first: 0, pages })?;
        }
        let mut took = Vec::with_capacity(NUM_LAYERS);
        for layer in 0..NUM_LAYERS {
            let begun = Instant::now();
            self.manager.on_layer_end(black_box(layer))?;
            took.push(begun.elapsed());
        }
        took.sort_unstable();
        self.manager.end_forward()?;
        for &request in &ids {
            self.manager.finish(request, &[], TIMEOUT)?;
            self.manager.drop_request(request, TIMEOUT)?;
        }
        Ok(took[NUM_LAYERS / 2])
    }
}

fn on_layer_end(c: &mut Criterion) {
    let mut group = c.benchmark_group("on_layer_end, a call");
    let stream = CpuDevice.stream().unwrap_or_else(|error| panic!("{error}"));
    group.bench_function("the event alone", |b| {
        b.iter(|| stream.record().unwrap_or_else(|error| panic!("{error}")));
    });
    for num_requests in [0, 1, 12, 64] {
        let mut bench = Bench::new(num_requests.max(1)).unwrap_or_else(|error| panic!("{error}"));
        group.bench_with_input(
            BenchmarkId::from_parameter(num_requests),
            &num_requests,
            |b, &num_requests| {
                b.iter_custom(|num_calls| {
                    let mut took = Duration::ZERO;
                    let num_forwards = num_calls.div_ceil(NUM_LAYERS as u64);
                    for _ in 0..num_forwards {
                        took += bench.forward(num_requests).unwrap_or_else(|error| panic!("{error}"));
                    }
                    took.mul_f64(num_calls as f64 / num_forwards as f64)
                });
            },
        );
    }
    group.finish();
}

/// Pages of a request on this rank, and how they lie: every `step`-th is torn from its neighbour.
const NUM_PAGES: u32 = 700;
const SHAPES: [(&str, u32); 3] = [("each page alone", 1), ("runs of 16", 16), ("one run", NUM_PAGES)];

/// The two lists of pages that become runs.
fn pairs(step: u32) -> [Vec<u32>; 2] {
    let src: Vec<u32> = (0..NUM_PAGES).collect();
    let dst = src.iter().map(|page| page + page / step).collect();
    [src, dst]
}

fn merge([src, dst]: &[Vec<u32>; 2]) -> PageRuns {
    PageRuns::new(src, dst, NUM_PAGES, 2 * NUM_PAGES + 1).unwrap_or_else(|error| panic!("{error}"))
}

/// Pages become runs once a request, and runs become blocks once a layer.
fn blocks(c: &mut Criterion) {
    let layer = |page_bytes| LayerBuffer { addr: 1 << 30, page_bytes };
    let pool = |num_pages| PoolMap { num_pages, layers: vec![vec![layer(41_984), layer(8_448)]] };
    let (src, dst) = (pool(NUM_PAGES), pool(2 * NUM_PAGES + 1));
    let mut group = c.benchmark_group("blocks of a layer, 700 pages, two buffers");
    group.throughput(Throughput::Elements(u64::from(NUM_PAGES)));
    for (name, step) in SHAPES {
        let runs = merge(&pairs(step));
        let mut out: Vec<Block> = Vec::new();
        group.bench_function(name, |b| {
            b.iter(|| {
                out.clear();
                build_layer_blocks(0, &src, &dst, black_box(&runs), &mut out)
                    .unwrap_or_else(|error| panic!("{error}"));
                black_box(out.len())
            });
        });
    }
    group.finish();
    let mut group = c.benchmark_group("pairing and merging, 700 pages, once a request");
    group.throughput(Throughput::Elements(u64::from(NUM_PAGES)));
    for (name, step) in SHAPES {
        let pairs = pairs(step);
        group.bench_function(name, |b| b.iter(|| merge(black_box(&pairs))));
    }
    group.finish();
}

criterion_group!(benches, on_layer_end, blocks);
criterion_main!(benches);
