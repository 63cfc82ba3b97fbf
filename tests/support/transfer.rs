//! What the transfer tests share: prefill ranks and decode workers of one process over the in-process engine, stamped pools,
//! and the proof of what arrived.

#![allow(dead_code, reason = "each test file uses its part")]

#[path = "manual_stream.rs"]
pub(crate) mod manual_stream;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use cpkv::device::{CpuDevice, Device, DeviceBuffer, Stream};
use cpkv::group::PoisonGate;
use cpkv::pages::Ownership;
use cpkv::transfer::record::{RECORD_BYTES, WORD_BYTES};
use cpkv::transfer::{
    CompletionRecord, DecodeGroup, Destination, EndpointOptions, Fabric, InProcessEngine, InboxMap,
    LayerBuffer, ManagerOptions, ManagerParts, ManualClock, Offer, PoolMap, RequestId, RequestRun,
    RequestSpec, Source, TransferEngine, TransferEpoch, TransferManager, WorkerRoute, sends,
};
use cpkv::units::{GroupSize, PageId, Rank};
use manual_stream::ManualStream;

/// Enough for any wait that ends well.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Of a world's clock: passed by no test that moves the clock on until something else happens, however late threads come.
pub(crate) const FOREVER: Duration = Duration::from_secs(1_000_000);
/// How long a test program may take.
const WATCHDOG: Duration = Duration::from_secs(600);
/// What decode memory holds before anything arrives.
pub(crate) const POISON: u8 = 0xA5;
/// Page bytes of the first buffer of every layer, and of the second, which even layers have.
const PAGE_BYTES: [u64; 2] = [96, 40];
/// Memory for inboxes of each worker.
const INBOX_BYTES: u64 = 1 << 20;

/// The shape of a test's world.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) ranks: u32,
    pub(crate) workers: u32,
    pub(crate) layers: usize,
    pub(crate) prefill_pages: u32,
    pub(crate) decode_pages: u32,
}

/// Three ranks, two workers, a few pages.
pub(crate) const SMALL: Shape =
    Shape { ranks: 3, workers: 2, layers: 3, prefill_pages: 24, decode_pages: 48 };

/// One prefill rank.
pub(crate) struct PrefillRank {
    pub(crate) engine: Arc<InProcessEngine>,
    pub(crate) stream: Arc<ManualStream>,
    pub(crate) manager: TransferManager,
    pub(crate) source: Source,
    memory: DeviceBuffer,
    decode: Mutex<Option<Arc<DecodeGroup>>>,
}

/// One decode worker.
pub(crate) struct Worker {
    pub(crate) engine: Arc<InProcessEngine>,
    pub(crate) pool: PoolMap,
    memory: DeviceBuffer,
    inboxes: DeviceBuffer,
    inbox_end: AtomicU64,
}

/// Ranks and workers.
pub(crate) struct World {
    pub(crate) shape: Shape,
    pub(crate) fabric: Fabric,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) ranks: Vec<PrefillRank>,
    pub(crate) workers: Vec<Worker>,
    epoch: AtomicU64,
}

/// What a world is made with beside its shape.
pub(crate) struct Making {
    pub(crate) options: ManagerOptions,
    pub(crate) endpoint: EndpointOptions,
    pub(crate) gate: PoisonGate,
    pub(crate) stream: Option<Arc<dyn Stream>>,
}

impl Default for Making {
    fn default() -> Self {
        Self {
            options: ManagerOptions { min_prompt_tokens: 0, ..ManagerOptions::default() },
            endpoint: EndpointOptions::default(),
            gate: PoisonGate::default(),
            stream: None,
        }
    }
}

/// Ends a test program that hangs: the clock of these tests stands still, and no deadline passes by itself.
fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        std::thread::spawn(|| {
            std::thread::sleep(WATCHDOG);
            eprintln!("a test hangs: it did not end within {WATCHDOG:?}");
            std::process::abort();
        });
    });
}

fn pool(memory: &DeviceBuffer, num_pages: u32, layers: usize) -> PoolMap {
    let mut addr = memory.addr();
    let mut layer = |layer: usize| {
        let buffers = PAGE_BYTES.iter().take(1 + usize::from(layer.is_multiple_of(2)));
        buffers
            .map(|&page_bytes| {
                let buffer = LayerBuffer { addr, page_bytes };
                addr += u64::from(num_pages) * page_bytes;
                buffer
            })
            .collect()
    };
    PoolMap { num_pages, layers: (0..layers).map(&mut layer).collect() }
}

fn pool_bytes(num_pages: u32, layers: usize) -> u64 {
    let layer_bytes =
        |layer: usize| -> u64 { PAGE_BYTES.iter().take(1 + usize::from(layer.is_multiple_of(2))).sum() };
    u64::from(num_pages) * (0..layers).map(layer_bytes).sum::<u64>()
}

/// The bytes of a page: every word says where it belongs. `generation` is the write.
pub(crate) fn stamp(layer: usize, buffer: usize, page: PageId, generation: u64, bytes: u64) -> Vec<u8> {
    let word = |idx: u64| {
        let place =
            (layer as u64) << 48 | (buffer as u64) << 44 | (page.0 as u64) << 20 | idx << 8 | generation;
        (place ^ 0x5bd1_e995).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
    };
    (0..bytes / 8).flat_map(word).collect()
}

impl World {
    pub(crate) fn new(shape: Shape) -> Self {
        Self::with(shape, |_| Making::default())
    }

    /// A world whose ranks are made with what `making` gives; the managers' clock is the world's.
    pub(crate) fn with(shape: Shape, making: impl Fn(u32) -> Making) -> Self {
        watch();
        let fabric = Fabric::new();
        let clock = Arc::new(ManualClock::default());
        let workers = (0..shape.workers).map(|worker| Worker::start(&fabric, &shape, worker)).collect();
        let ranks = (0..shape.ranks).map(|rank| {
            let making = making(rank);
            PrefillRank::start(&fabric, &shape, rank, making, Arc::clone(&clock))
        });
        let ranks = ranks.collect();
        Self { shape, fabric, clock, ranks, workers, epoch: AtomicU64::new(1) }
    }

    /// The decode workers, as `rank` came to know them.
    pub(crate) fn decode(&self, rank: usize) -> Arc<DecodeGroup> {
        let mut decode = self.ranks[rank].decode.lock().unwrap();
        Arc::clone(decode.get_or_insert_with(|| self.connect(rank)))
    }

    /// A worker was started anew: `rank` gets to know them all again.
    pub(crate) fn reconnect(&self, rank: usize) {
        *self.ranks[rank].decode.lock().unwrap() = Some(self.connect(rank));
    }

    fn connect(&self, rank: usize) -> Arc<DecodeGroup> {
        let rank = &self.ranks[rank];
        let route = |worker: &Worker| WorkerRoute {
            peer: rank.engine.add_peer(&worker.engine.metadata().unwrap()).unwrap(),
            pool: worker.pool.clone(),
        };
        Arc::new(DecodeGroup::new(&rank.source, self.workers.iter().map(route).collect()).unwrap())
    }

    /// An offer of decode pages from `first_page` on, by position; `None` for the positions in `cached`.
    pub(crate) fn offer(&self, request: u64, num_positions: u32, first_page: u32, cached: &[u32]) -> Offer {
        let place = |position: u32| {
            let page = first_page + position;
            let placed =
                Destination { worker: page % self.shape.workers, page_idx: page / self.shape.workers };
            (!cached.contains(&position)).then_some(placed)
        };
        // Relaxed: numbers that differ are enough.
        let epoch = TransferEpoch(self.epoch.fetch_add(1, Ordering::Relaxed));
        let inbox = |worker: &Worker| worker.take_inbox(self.shape.ranks, 4 * self.shape.layers as u32 + 4);
        Offer {
            request: RequestId(request),
            epoch,
            destinations: (0..num_positions).map(place).collect(),
            inboxes: self.workers.iter().map(inbox).collect(),
        }
    }

    /// Registers the request on every rank.
    pub(crate) fn register(&self, offer: &Offer, prefix: &RequestRun) {
        for rank in 0..self.ranks.len() {
            let spec = RequestSpec {
                offer: offer.clone(),
                decode: self.decode(rank),
                prompt_tokens: 4096,
                prefix: prefix.clone(),
            };
            self.ranks[rank].manager.register(spec).unwrap();
        }
    }

    /// Opens a chunk on every rank.
    pub(crate) fn open(&self, request: u64, first: u32, pages: &[PageId]) {
        let run = RequestRun { first, pages: pages.to_vec() };
        for rank in &self.ranks {
            rank.manager.open_chunk(RequestId(request), &run).unwrap();
        }
    }

    /// Every rank writes `layer` of its `pages`.
    pub(crate) fn write(&self, layer: usize, pages: &[PageId], generation: u64) {
        for rank in &self.ranks {
            rank.write(layer, pages, generation);
        }
    }

    /// Every rank writes every layer of its `pages`.
    pub(crate) fn write_all(&self, pages: &[PageId], generation: u64) {
        (0..self.shape.layers).for_each(|layer| self.write(layer, pages, generation));
    }

    /// What stands at the destination of `position`, by layer and buffer.
    pub(crate) fn arrived(&self, offer: &Offer, position: u32) -> Option<Vec<Vec<Vec<u8>>>> {
        let destination = offer.destinations[position as usize]?;
        Some(self.workers[destination.worker as usize].page(destination.page_idx))
    }

    /// Every byte of `pages`, which are the request's from position `first` on, is there; `generation` by layer.
    pub(crate) fn expect(
        &self,
        offer: &Offer,
        first: u32,
        pages: &[PageId],
        generation: impl Fn(usize) -> u64,
    ) {
        for (position, &page) in (first..).zip(pages) {
            let Some(arrived) = self.arrived(offer, position) else { continue };
            for (layer, buffers) in arrived.iter().enumerate() {
                for (buffer, bytes) in buffers.iter().enumerate() {
                    let expected = stamp(layer, buffer, page, generation(layer), bytes.len() as u64);
                    assert_eq!(bytes, &expected, "position {position}, layer {layer}, buffer {buffer}");
                }
            }
        }
    }

    /// Nothing arrived for `position`.
    pub(crate) fn expect_untouched(&self, offer: &Offer, position: u32) {
        let arrived = self.arrived(offer, position).unwrap();
        assert!(arrived.iter().flatten().flatten().all(|byte| *byte == POISON), "position {position}");
    }

    /// The records of the offer, by worker and rank.
    pub(crate) fn records(&self, offer: &Offer) -> BTreeMap<(u32, u32), CompletionRecord> {
        let mut records = BTreeMap::new();
        for (worker, inbox) in (0..).zip(&offer.inboxes) {
            for rank in 0..self.shape.ranks {
                let bytes = self.workers[worker as usize].read(inbox.record_addr(rank), RECORD_BYTES);
                let record = CompletionRecord::from_bytes(&bytes.try_into().unwrap());
                if let Some(record) = record.filter(|record| record.epoch == offer.epoch.0) {
                    records.insert((worker, rank), record);
                }
            }
        }
        records
    }

    /// Whether the decode side would read: every record, and every word that the records count.
    pub(crate) fn is_complete(&self, offer: &Offer) -> bool {
        let records = self.records(offer);
        let all = (self.shape.ranks * self.shape.workers) as usize;
        let words_are_there = |(&(worker, rank), record): (&(u32, u32), &CompletionRecord)| {
            (0..record.num_words).all(|i| {
                let addr = offer.inboxes[worker as usize].word_addr(rank, i);
                let bytes = self.workers[worker as usize].read(addr, WORD_BYTES);
                u64::from_le_bytes(bytes.try_into().unwrap()) == offer.epoch.0
            })
        };
        records.len() == all && records.iter().all(words_are_there)
    }

    /// (layer, page) pairs of `pages` that are to arrive.
    pub(crate) fn num_pairs(&self, offer: &Offer, first: u32, pages: &[PageId]) -> u64 {
        let wanted =
            (first..).zip(pages).filter(|(position, _)| offer.destinations[*position as usize].is_some());
        (wanted.count() * self.shape.layers) as u64
    }
}

impl PrefillRank {
    fn start(fabric: &Fabric, shape: &Shape, rank: u32, making: Making, clock: Arc<ManualClock>) -> Self {
        let Making { options, endpoint, gate, stream } = making;
        let group_size = GroupSize::new(shape.ranks).unwrap();
        let num_pages = Ownership::new(group_size).num_shard_pages(shape.prefill_pages);
        let memory = CpuDevice.alloc(pool_bytes(num_pages, shape.layers)).unwrap();
        let engine = Arc::new(fabric.endpoint_with(&format!("rank {rank}"), endpoint).unwrap());
        engine.register(&memory).unwrap();
        let source = Source { rank: Rank(rank), group_size, pool: pool(&memory, num_pages, shape.layers) };
        let manual = Arc::new(ManualStream::default());
        let parts = ManagerParts {
            engine: Arc::clone(&engine) as _,
            device: Arc::new(CpuDevice),
            stream: stream.unwrap_or_else(|| Arc::clone(&manual) as _),
            gate,
            source: source.clone(),
        };
        let manager = TransferManager::start(parts, ManagerOptions { clock, ..options }).unwrap();
        Self { engine, stream: manual, manager, source, memory, decode: Mutex::default() }
    }

    /// Writes `layer` of those of `pages` that this rank owns.
    pub(crate) fn write(&self, layer: usize, pages: &[PageId], generation: u64) {
        let ownership = Ownership::new(self.source.group_size);
        for &page in pages.iter().filter(|page| sends(&self.source, **page)) {
            for (idx, buffer) in self.source.pool.layers[layer].iter().enumerate() {
                let start =
                    buffer.addr - self.memory.addr() + ownership.shard_idx(page) as u64 * buffer.page_bytes;
                let place = self.memory.slice(start..start + buffer.page_bytes).unwrap();
                CpuDevice.write(&stamp(layer, idx, page, generation, buffer.page_bytes), &place).unwrap();
            }
        }
    }
}

impl Worker {
    pub(crate) fn start(fabric: &Fabric, shape: &Shape, worker: u32) -> Self {
        let num_pages = shape.decode_pages.div_ceil(shape.workers);
        let memory = CpuDevice.alloc(pool_bytes(num_pages, shape.layers)).unwrap();
        CpuDevice.write(&vec![POISON; memory.bytes() as usize], &memory).unwrap();
        let inboxes = CpuDevice.alloc(INBOX_BYTES).unwrap();
        let engine = Arc::new(fabric.endpoint(&format!("worker {worker}")).unwrap());
        engine.register(&memory).unwrap();
        engine.register(&inboxes).unwrap();
        let pool = pool(&memory, num_pages, shape.layers);
        Self { engine, pool, memory, inboxes, inbox_end: AtomicU64::new(0) }
    }

    fn take_inbox(&self, group_size: u32, num_words: u32) -> InboxMap {
        let bytes = InboxMap::bytes_for(group_size, num_words);
        // Relaxed: numbers that differ are enough.
        let start = self.inbox_end.fetch_add(bytes, Ordering::Relaxed);
        assert!(start + bytes <= INBOX_BYTES, "no more inboxes");
        InboxMap { addr: self.inboxes.addr() + start, group_size, num_words }
    }

    fn read(&self, addr: u64, bytes: u64) -> Vec<u8> {
        let start = addr - self.inboxes.addr();
        read(&self.inboxes.slice(start..start + bytes).unwrap())
    }

    /// A page's bytes by layer and buffer.
    pub(crate) fn page(&self, page_idx: u32) -> Vec<Vec<Vec<u8>>> {
        let of_buffer = |buffer: &LayerBuffer| {
            let start = buffer.addr - self.memory.addr() + u64::from(page_idx) * buffer.page_bytes;
            read(&self.memory.slice(start..start + buffer.page_bytes).unwrap())
        };
        self.pool.layers.iter().map(|layer| layer.iter().map(of_buffer).collect()).collect()
    }
}

fn read(memory: &DeviceBuffer) -> Vec<u8> {
    let mut bytes = vec![0; memory.bytes() as usize];
    CpuDevice.read(memory, &mut bytes).unwrap();
    bytes
}

/// Pages `first..first + num`.
pub(crate) fn pages(first: i32, num: i32) -> Vec<PageId> {
    (first..first + num).map(PageId).collect()
}

/// Waits for what another thread brings about.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
