//! What the compose tests share: small models, shuffled batches, ranks as threads, and the proof of a batch.

#![allow(dead_code, reason = "each test file uses its part")]

#[path = "platform.rs"]
pub(crate) mod platform;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cpkv::collective::Collective;
use cpkv::compose::{
    BatchInFlight, ComposeError, Composer, ComposerOptions, LayerInputs, SharedPool, StrategyChoice,
};
use cpkv::deadline::Deadline;
use cpkv::device::{Device, DeviceBuffer};
use cpkv::group::{Bootstrap, Group, GroupOptions, ThreadBootstrap};
use cpkv::model::{BufferId, LayerSpec, ModelSpec, NamedBuffer};
use cpkv::pages::{BufferKind, BufferSpec};
use cpkv::plan::{Batch, RequestPages, Strategy};
use cpkv::symm::SharedBackend;
use cpkv::units::{GroupSize, PageId, Rank};
use cpkv::verify::Oracle;

/// What dense buffers hold before each compose.
pub(crate) const POISON: u8 = 0xC3;
/// Enough for any wait that ends well.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// What one rank of a test starts from.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) bootstrap: Arc<dyn Bootstrap>,
    pub(crate) backend: SharedBackend,
    pub(crate) collective: Arc<dyn Collective>,
}

impl Setup {
    pub(crate) fn rank(&self) -> Rank {
        self.bootstrap.rank()
    }
}

/// The ranks of a group of threads.
pub(crate) fn thread_setups(num_ranks: u32) -> Vec<Setup> {
    let size = GroupSize::new(num_ranks).unwrap();
    let parts = platform::of_threads(size, LONG);
    let setups = ThreadBootstrap::group(size).into_iter().zip(parts).map(|(bootstrap, parts)| {
        let (device, backend, collective) = parts;
        Setup { device, bootstrap: Arc::new(bootstrap), backend, collective }
    });
    setups.collect()
}

/// Runs `body` on `num_ranks` threads; returns what they returned, by rank.
pub(crate) fn on_threads<T: Send>(num_ranks: u32, body: impl Fn(Setup) -> T + Sync) -> Vec<T> {
    on_setups(thread_setups(num_ranks), body)
}

/// Runs `body` on a thread for each of `setups`.
pub(crate) fn on_setups<T: Send>(setups: Vec<Setup>, body: impl Fn(Setup) -> T + Sync) -> Vec<T> {
    let body = &body;
    thread::scope(|scope| {
        let ranks: Vec<_> = setups.into_iter().map(|setup| scope.spawn(move || body(setup))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Options for a test: checked, and a barrier that gives up after `barrier_timeout`.
pub(crate) fn group_options(barrier_timeout: Duration) -> GroupOptions {
    GroupOptions {
        barrier_timeout,
        host_timeout: LONG,
        bootstrap_timeout: LONG,
        checked: true,
        num_spins: None,
    }
}

/// A model of `num_layers` layers: rows of 20 bytes, `page_size` tokens a page (a multiple of 4), index-K in layers
/// 0, 2, 4, ...
pub(crate) fn model(num_layers: usize, page_size: u32) -> ModelSpec {
    let spec = |kind| BufferSpec::new(kind, page_size).unwrap();
    let buffers = vec![
        NamedBuffer { name: "token-kv".to_owned(), spec: spec(BufferKind::TokenKv { row_bytes: 20 }) },
        NamedBuffer { name: "index-k".to_owned(), spec: spec(BufferKind::IndexK) },
    ];
    let layers = (0..num_layers).map(|layer| LayerSpec {
        buffers: if layer % 2 == 0 {
            vec![BufferId::TOKEN_KV, BufferId::INDEX_K]
        } else {
            vec![BufferId::TOKEN_KV]
        },
        draft: false,
    });
    ModelSpec { name: "test".to_owned(), page_size, buffers, layers: layers.collect() }
}

/// Every strategy's needs: symmetric dense buffers of `symm_dense_slots`, staging as large as the pool.
pub(crate) fn composer_options(symm_dense_slots: u32) -> ComposerOptions {
    ComposerOptions { symm_dense_slots: Some(symm_dense_slots), ..ComposerOptions::default() }
}

/// A composer and the oracle that knows its pool.
pub(crate) struct Bench {
    pub(crate) composer: Composer,
    pub(crate) oracle: Oracle,
    pub(crate) model: ModelSpec,
    pub(crate) device: Arc<dyn Device>,
}

impl Bench {
    /// Registers everything. Collective.
    pub(crate) fn new(
        setup: &Setup,
        model: ModelSpec,
        num_pages: u32,
        group_options: GroupOptions,
        options: ComposerOptions,
    ) -> Result<Self, ComposeError> {
        let device = Arc::clone(&setup.device);
        let group = Group::register(
            Arc::clone(&setup.bootstrap),
            Arc::clone(&device),
            Arc::clone(&setup.backend),
            group_options,
        )?;
        let pool = SharedPool::register(&group, model.clone(), num_pages)?;
        let composer = Composer::register(group, pool, Some(Arc::clone(&setup.collective)), options)?;
        let oracle = Oracle::new(model.clone(), num_pages, 7);
        Ok(Self { composer, oracle, model, device })
    }

    /// A bench with the usual options.
    pub(crate) fn usual(setup: &Setup, model: ModelSpec, num_pages: u32) -> Self {
        Self::new(setup, model, num_pages, group_options(LONG), composer_options(2 * num_pages)).unwrap()
    }

    /// Composes every layer of `batch` into poisoned memory, compares every byte, persists every layer and compares
    /// every page this rank owns. Every call stamps other bytes. The oracle's pool stays as it was: call [`Bench::persisted`] when done.
    pub(crate) fn prove(&mut self, batch: &Batch, choice: StrategyChoice) -> Result<(), ComposeError> {
        let (oracle, model, device) = (&mut self.oracle, &self.model, &*self.device);
        let mut flight = self.composer.begin(batch, choice)?;
        oracle.restamp();
        for layer in 0..model.num_layers() {
            poison(&flight, model, layer)?;
            let inputs = layer_inputs(&flight, oracle, device, model, layer);
            flight.compose_layer(layer, &inputs)?;
            flight.persist_layer(layer)?;
            flight.synchronize()?;
            compare(&flight, oracle, model, layer);
        }
        let slots = flight.plan().slots.clone();
        flight.finish()?;
        let mut after = oracle.clone();
        after.persisted(&slots);
        for layer in 0..model.num_layers() {
            for &buffer in model.buffers_of(layer) {
                for &page in &slots.current_pages {
                    let page = PageId(page);
                    if let Some(bytes) = self.pool_page(layer, buffer, page) {
                        assert_eq!(bytes, after.pool_page(layer, buffer, page), "layer {layer}, page {page}");
                    }
                }
            }
        }
        Ok(())
    }

    /// The bytes of `page` in this rank's shard, where it owns it.
    pub(crate) fn pool_page(&self, layer: usize, buffer: BufferId, page: PageId) -> Option<Vec<u8>> {
        self.composer.pool().page(layer, buffer, page).map(|page| read(&*self.device, &page))
    }

    /// [`Bench::prove`] with each of `strategies` in turn, then the next batch may come.
    pub(crate) fn prove_all(&mut self, batch: &Batch, strategies: &[Strategy]) {
        for &strategy in strategies {
            self.prove(batch, StrategyChoice::Exactly(strategy))
                .unwrap_or_else(|error| panic!("{strategy}: {error}"));
        }
        self.persisted(batch);
    }

    /// The batch is in the pool.
    pub(crate) fn persisted(&mut self, batch: &Batch) {
        let plan =
            cpkv::plan::BatchPlan::build(self.composer.pool().shape(), self.composer.group().rank(), batch)
                .unwrap();
        self.oracle.persisted(&plan.slots);
    }
}

/// The bytes of `memory`, whatever the streams do.
pub(crate) fn read(device: &dyn Device, memory: &DeviceBuffer) -> Vec<u8> {
    let mut bytes = vec![0; memory.bytes() as usize];
    device.read(memory, &mut bytes).unwrap();
    bytes
}

/// Fills the memory the next compose of `layer` will fill with poison.
pub(crate) fn poison(
    flight: &BatchInFlight<'_>,
    model: &ModelSpec,
    layer: usize,
) -> Result<(), ComposeError> {
    for &buffer in model.buffers_of(layer) {
        let dense = flight.next_dense(buffer)?;
        flight.stream().upload(vec![POISON; dense.bytes() as usize], &dense)?;
    }
    Ok(())
}

/// This rank's stamped rows of `layer`.
pub(crate) fn layer_inputs(
    flight: &BatchInFlight<'_>,
    oracle: &Oracle,
    device: &dyn Device,
    model: &ModelSpec,
    layer: usize,
) -> LayerInputs {
    let mut inputs = LayerInputs::default();
    for &buffer in model.buffers_of(layer) {
        let bytes = oracle.inputs(flight.plan(), layer, buffer);
        let memory = device.alloc(bytes.len() as u64).unwrap();
        flight.stream().upload(bytes, &memory).unwrap();
        inputs = inputs.with(buffer, memory);
    }
    inputs
}

/// Compares the dense buffers of `layer` with the oracle, every byte.
pub(crate) fn compare(flight: &BatchInFlight<'_>, oracle: &Oracle, model: &ModelSpec, layer: usize) {
    for &buffer in model.buffers_of(layer) {
        let bytes = dense_bytes(flight, buffer);
        let compared = oracle.compare(&flight.plan().slots, layer, buffer, &bytes);
        compared.unwrap_or_else(|difference| panic!("{}: {difference}", flight.strategy()));
    }
}

/// The dense buffer of `buffer` on the host.
pub(crate) fn dense_bytes(flight: &BatchInFlight<'_>, buffer: BufferId) -> Vec<u8> {
    let dense = flight.dense(buffer).unwrap();
    let mut bytes = vec![0; dense.bytes() as usize];
    flight.stream().download(&dense, &mut bytes, Deadline::after(LONG)).unwrap();
    bytes
}

/// Makes batches from a pool whose free pages are in a shuffled order, the same on every rank.
pub(crate) struct BatchMaker {
    free: VecDeque<PageId>,
    page_size: u32,
}

impl BatchMaker {
    pub(crate) fn new(num_pages: u32, page_size: u32) -> Self {
        let mut pages: Vec<_> = (0..num_pages as i32).map(PageId).collect();
        // A fixed permutation: the order of a multiplicative hash.
        pages.sort_by_key(|page| (page.0 as u32).wrapping_mul(0x9E37_79B1));
        Self { free: pages.into(), page_size }
    }

    /// `num_pages` free pages.
    pub(crate) fn take(&mut self, num_pages: u32) -> Vec<PageId> {
        (0..num_pages).map(|_| self.free.pop_front().expect("a pool large enough for the test")).collect()
    }

    /// Gives pages back, to be handed out again after all others.
    pub(crate) fn give_back(&mut self, pages: &[PageId]) {
        self.free.extend(pages);
    }

    /// A request of `new_tokens` tokens on top of `prefix_pages`, which hold `prefix_tokens`.
    pub(crate) fn request(
        &mut self,
        prefix_pages: &[PageId],
        prefix_tokens: u32,
        new_tokens: u32,
    ) -> RequestPages {
        let first = prefix_tokens / self.page_size;
        let num_current = match new_tokens {
            0 => 0,
            new => (prefix_tokens + new).div_ceil(self.page_size) - first,
        };
        RequestPages {
            prefix_tokens,
            new_tokens,
            prefix_pages: prefix_pages.to_vec(),
            current_pages: self.take(num_current),
        }
    }

    /// A batch of requests without prefix.
    pub(crate) fn fresh(&mut self, new_tokens: &[u32]) -> Batch {
        let requests = new_tokens.iter().map(|&new| self.request(&[], 0, new)).collect();
        Batch { requests, num_pad_slots: 0 }
    }
}

/// Every strategy.
pub(crate) const ALL: [Strategy; 6] = Strategy::ALL;
