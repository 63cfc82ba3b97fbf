//! The decode side against the prefill side: real managers, the in-process engine, every byte looked at.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cpkv::device::{CpuDevice, Device, DeviceBuffer, Stream};
use cpkv::group::PoisonGate;
use cpkv::model::ModelSpec;
use cpkv::pages::Ownership;
use cpkv::transfer::decode::{Arrival, ArrivalError, Cached, PageCounts};
use cpkv::transfer::{
    DecodeGroup, DecodeOptions, DecodeWorker, Delivery, Destination, Directory, EndpointOptions, Fabric,
    Geometry, InProcessEngine, LayerBuffer, ManagerOptions, ManagerParts, ManualClock, Offer, PoolMap, Quiet,
    RequestId, RequestRun, RequestSpec, Source, SystemClock, TransferEngine, TransferEpoch, TransferManager,
    WorkerRoute, sends,
};
use cpkv::units::{GroupSize, PageId, Rank, RankSet};

const LONG: Duration = Duration::from_secs(60);
const RANKS: u32 = 2;
const WORKERS: u32 = 3;
const PREFILL_PAGES: u32 = 24;
const POISON: u8 = 0xA5;
const REQUEST: RequestId = RequestId(7);

struct PrefillRank {
    engine: Arc<InProcessEngine>,
    stream: Arc<dyn Stream>,
    manager: TransferManager,
    decode: Arc<DecodeGroup>,
}

struct World {
    model: ModelSpec,
    ranks: Vec<PrefillRank>,
    workers: Vec<DecodeWorker>,
    directory: Directory,
}

/// The byte that a page is filled with.
fn stamp(layer: usize, buffer_idx: usize, page: PageId) -> u8 {
    (64 * layer + 32 * buffer_idx) as u8 ^ page.0 as u8
}

/// The request's pages in the prefill pool, by position.
fn request_pages() -> Vec<PageId> {
    (0..10).map(|position| PageId(position * 7 % PREFILL_PAGES as i32)).collect()
}

impl World {
    fn new(delivery: Delivery) -> Self {
        let model = ModelSpec::preset("tiny").unwrap();
        let fabric = Fabric::new();
        let start = |worker| {
            let engine: Arc<dyn TransferEngine> =
                Arc::new(fabric.endpoint(&format!("worker {worker}")).unwrap());
            let options = DecodeOptions {
                worker: Rank(worker),
                num_workers: GroupSize::new(WORKERS).unwrap(),
                num_pages: 30,
                prefill_group_size: GroupSize::new(RANKS).unwrap(),
                num_inboxes: 2,
                num_words: 8,
            };
            let worker = DecodeWorker::start(Arc::new(CpuDevice), &engine, &model, options).unwrap();
            worker.fill_pages(POISON).unwrap();
            worker
        };
        let workers: Vec<_> = (0..WORKERS).map(start).collect();
        let hellos: Vec<_> = workers.iter().map(|worker| worker.hello().clone()).collect();
        let directory = Directory::new(&hellos, TransferEpoch(100)).unwrap();
        let rank = |rank| {
            let options = EndpointOptions { delivery, ..EndpointOptions::default() };
            let engine = Arc::new(fabric.endpoint_with(&format!("rank {rank}"), options).unwrap());
            PrefillRank::start(rank, &model, engine, &workers)
        };
        let ranks = (0..RANKS).map(rank).collect();
        Self { model, ranks, workers, directory }
    }

    /// Takes pages for all but the first two positions, and registers and computes the request on every rank.
    fn offer(&mut self) -> Offer {
        let pages = request_pages();
        let offer = self.directory.allocate(REQUEST, pages.len() as u32, Cached::Leading(2)).unwrap();
        for rank in &self.ranks {
            rank.compute(&offer, &pages, self.model.num_layers());
        }
        offer
    }

    fn arrivals(&self, offer: &Offer) -> Vec<Arrival> {
        self.workers.iter().map(|worker| worker.inbox(offer).unwrap().look().unwrap()).collect()
    }

    /// The bytes of a page in every buffer of every layer.
    fn page(&self, place: Destination) -> Vec<(usize, usize, Vec<u8>)> {
        let worker = &self.workers[place.worker as usize];
        let buffers =
            |layer| (0..self.model.buffers_of(layer).len()).map(move |buffer_idx| (layer, buffer_idx));
        let buffers = (0..self.model.num_layers()).flat_map(buffers);
        let read = |(layer, buffer_idx)| {
            let page = worker.page(layer, buffer_idx, place).unwrap();
            let mut bytes = vec![0; page.bytes() as usize];
            CpuDevice.read(&page, &mut bytes).unwrap();
            (layer, buffer_idx, bytes)
        };
        buffers.map(read).collect()
    }

    fn is_untouched(&self, place: Destination) -> bool {
        self.page(place).iter().all(|(.., bytes)| bytes.iter().all(|&byte| byte == POISON))
    }

    /// All pages of the offer are there, byte for byte, and nothing else was touched.
    fn expect_exactly(&self, offer: &Offer) {
        let mut others: Vec<_> = (0..WORKERS)
            .flat_map(|worker| (0..10).map(move |page_idx| Destination { worker, page_idx }))
            .collect();
        for (place, page) in offer.destinations.iter().zip(request_pages()) {
            let Some(place) = *place else { continue };
            others.retain(|&other| other != place);
            for (layer, buffer_idx, bytes) in self.page(place) {
                let expected = stamp(layer, buffer_idx, page);
                assert!(bytes.iter().all(|&byte| byte == expected), "{page} in layer {layer}");
            }
        }
        assert_eq!(others.len(), 22);
        assert!(others.into_iter().all(|place| self.is_untouched(place)));
    }
}

impl PrefillRank {
    fn start(rank: u32, model: &ModelSpec, engine: Arc<InProcessEngine>, workers: &[DecodeWorker]) -> Self {
        let group_size = GroupSize::new(RANKS).unwrap();
        let num_pages = Ownership::new(group_size).num_shard_pages(PREFILL_PAGES);
        let mut source = Source { rank: Rank(rank), group_size, pool: PoolMap::default() };
        source.pool.num_pages = num_pages;
        for layer in 0..model.num_layers() {
            let buffers = model.buffers_of(layer).iter().enumerate().map(|(buffer_idx, &id)| {
                let page_bytes = model.buffer(id).unwrap().spec.page_bytes();
                let memory = CpuDevice.alloc(u64::from(num_pages) * page_bytes).unwrap();
                write_stamps(&source, &memory, page_bytes, |page| stamp(layer, buffer_idx, page));
                engine.register(&memory).unwrap();
                LayerBuffer { addr: memory.addr(), page_bytes }
            });
            let buffers = buffers.collect();
            source.pool.layers.push(buffers);
        }
        let geometry = Geometry::of(model).unwrap();
        let route = |worker: &DecodeWorker| {
            let hello = worker.hello();
            hello.check(&geometry, engine.info().name).unwrap();
            hello.check_group_size(group_size).unwrap();
            let peer = engine.add_peer(&hello.engine_metadata).unwrap();
            WorkerRoute { peer, pool: hello.pool.clone() }
        };
        let decode = DecodeGroup::new(&source, workers.iter().map(route).collect()).unwrap();
        let stream = CpuDevice.stream().unwrap();
        let parts = ManagerParts {
            engine: Arc::clone(&engine) as _,
            device: Arc::new(CpuDevice),
            stream: Arc::clone(&stream),
            gate: PoisonGate::default(),
            source,
        };
        let options = ManagerOptions { min_prompt_tokens: 0, ..ManagerOptions::default() };
        let manager = TransferManager::start(parts, options).unwrap();
        Self { engine, stream, manager, decode: Arc::new(decode) }
    }

    /// Registers the request, and goes through a forward whose hooks all fire.
    fn compute(&self, offer: &Offer, pages: &[PageId], num_layers: usize) {
        let (offer, decode) = (offer.clone(), Arc::clone(&self.decode));
        let spec = RequestSpec { offer, decode, prompt_tokens: 40, prefix: RequestRun::default() };
        self.manager.register(spec).unwrap();
        self.manager.open_chunk(REQUEST, &RequestRun { first: 0, pages: pages.to_vec() }).unwrap();
        for layer in 0..num_layers {
            self.manager.on_layer_end(layer).unwrap();
        }
        self.manager.end_forward().unwrap();
        assert_eq!(self.stream.num_host_syncs(), 0);
    }
}

/// Fills the pages that `source` owns.
fn write_stamps(source: &Source, memory: &DeviceBuffer, page_bytes: u64, stamp: impl Fn(PageId) -> u8) {
    let ownership = Ownership::new(source.group_size);
    for page in (0..PREFILL_PAGES as i32).map(PageId).filter(|&page| sends(source, page)) {
        let start = ownership.shard_idx(page) as u64 * page_bytes;
        let place = memory.slice(start..start + page_bytes).unwrap();
        CpuDevice.write(&vec![stamp(page); page_bytes as usize], &place).unwrap();
    }
}

fn all_ranks() -> RankSet {
    (0..RANKS).map(Rank).collect()
}

#[test]
fn a_request_arrives_whole_at_every_worker_and_nowhere_else() {
    let mut world = World::new(Delivery::BeforeCompletion);
    let offer = world.offer();
    for rank in &world.ranks {
        rank.manager.finish(REQUEST, &[], LONG).unwrap();
    }
    for worker in &world.workers {
        worker.inbox(&offer).unwrap().wait(&SystemClock, LONG).unwrap();
    }
    let places = world.directory.complete(REQUEST).unwrap();
    assert!(offer.destinations.iter().flatten().eq(&places));
    world.expect_exactly(&offer);
    world.directory.free_pages(&places).unwrap();
    assert_eq!(world.directory.counts(), PageCounts { num_free: 30, ..PageCounts::default() });
}

#[test]
fn nothing_is_complete_while_one_rank_has_not_finished() {
    let mut world = World::new(Delivery::BeforeCompletion);
    let offer = world.offer();
    world.ranks[0].manager.finish(REQUEST, &[], LONG).unwrap();
    for worker in &world.workers {
        let error = worker.inbox(&offer).unwrap().wait(&ManualClock::default(), Duration::ZERO).unwrap_err();
        let ArrivalError::Deadline { missing, late, .. } = error else { panic!("{error}") };
        assert_eq!((missing, late), ([Rank(1)].into_iter().collect(), RankSet::default()));
    }
}

/// Case 19.
#[test]
fn payload_that_arrives_after_the_engine_reported_completion_is_not_read_early() {
    let mut world = World::new(Delivery::InOrder);
    world.ranks.iter().for_each(|rank| rank.engine.hold());
    let offer = world.offer();
    for rank in &world.ranks {
        rank.manager.finish(REQUEST, &[], LONG).unwrap();
    }
    let nothing = Arrival { missing: all_ranks(), ..Arrival::default() };
    assert_eq!(world.arrivals(&offer), vec![nothing; WORKERS as usize]);
    // The records, which were submitted last, overtake all payload.
    let deadline = || cpkv::deadline::Deadline::after(LONG);
    for rank in &world.ranks {
        let batches = rank.engine.undelivered();
        let records = &batches[batches.len() - WORKERS as usize..];
        assert!(records.iter().all(|&record| rank.engine.release_batch(record)));
        rank.engine.settle(deadline()).unwrap();
    }
    let late = Arrival { late: all_ranks(), ..Arrival::default() };
    assert_eq!(world.arrivals(&offer), vec![late; WORKERS as usize]);
    world.ranks[0].engine.release_all();
    world.ranks[0].engine.settle(deadline()).unwrap();
    let late = Arrival { late: [Rank(1)].into_iter().collect(), ..Arrival::default() };
    assert_eq!(world.arrivals(&offer), vec![late; WORKERS as usize]);
    world.ranks[1].engine.release_all();
    for worker in &world.workers {
        worker.inbox(&offer).unwrap().wait(&SystemClock, LONG).unwrap();
    }
    world.expect_exactly(&offer);
}

/// Case 24, with writes that do come late.
#[test]
fn late_writes_of_an_aborted_request_meet_no_page_of_the_next() {
    let mut world = World::new(Delivery::BeforeCompletion);
    world.ranks[1].engine.freeze();
    let offer = world.offer();
    world.ranks[0].manager.finish(REQUEST, &[], LONG).unwrap();
    // Rank 1 has all layers of the three workers in flight.
    let begun = Instant::now();
    while world.ranks[1].engine.submits().len() < 12 {
        assert!(begun.elapsed() < LONG);
        std::thread::yield_now();
    }
    assert_eq!(world.directory.abort(REQUEST), Ok(false));
    let quiet = world.ranks[1].manager.drop_request(REQUEST, Duration::ZERO).unwrap();
    assert!(matches!(quiet, Quiet::Quarantined { .. }), "{quiet:?}");
    assert_eq!(world.directory.confirm_quiet(REQUEST, offer.epoch, Rank(0)), Ok(false));
    // All that is left goes to the next request.
    let next = world.directory.allocate(RequestId(8), 22, Cached::Leading(0)).unwrap();
    assert!(world.directory.allocate(RequestId(9), 1, Cached::Leading(0)).is_err());
    let is_offered = |place: &Destination| offer.destinations.contains(&Some(*place));
    let count_written = |world: &World| {
        offer.destinations.iter().flatten().filter(|&&place| !world.is_untouched(place)).count()
    };
    let before = count_written(&world);
    world.ranks[1].engine.thaw();
    assert_eq!(world.ranks[1].manager.drop_request(REQUEST, LONG).unwrap(), Quiet::Confirmed);
    assert!(count_written(&world) > before, "nothing came late");
    assert!(next.destinations.iter().flatten().all(|place| !is_offered(place) && world.is_untouched(*place)));
    assert_eq!(world.directory.confirm_quiet(REQUEST, offer.epoch, Rank(1)), Ok(true));
    assert_eq!(world.directory.counts().num_free, 8);
}
