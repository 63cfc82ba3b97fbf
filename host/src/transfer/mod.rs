//! Per-layer transfer: each finished layer's pages leave for the decode workers while the next layer is computed.
//!
//! The engine underneath is an existing one, behind [`TransferEngine`].
//!
//! # Life of a request
//!
//! | prefill ranks | decode side |
//! |---|---|
//! | | [`Directory::allocate_along`]: pages, inboxes, an epoch: the [`Offer`] |
//! | [`TransferManager::register`] with the offer: cached pages go at once | |
//! | [`TransferManager::open_chunk`], the forward with [`TransferManager::on_layer_end`], [`TransferManager::end_forward`] | |
//! | [`TransferManager::finish`] or [`TransferManager::poll_finish`]: the rest, then a record to every worker | [`decode::Inbox::wait`]: all records, all words; then it may read |
//! | [`TransferManager::drop_request`], then [`agree_quiet`] of the group: pages are free | [`Directory::complete`], later [`Directory::free_pages`] |
//!
//! A request that fails leaves no record: the prefill side says so by the caller's own means, and [`Directory::abort`] keeps
//! its pages until every rank has confirmed that it writes no more.
//!
//! # Example: two prefill ranks as threads, one decode worker
//!
//! What goes over the caller's own network here is moved between threads: a [`WorkerHello`] when a worker starts, an
//! [`Offer`] for each request.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use cpkv::compose::{Composer, ComposerOptions, LayerInputs, SharedPool, StrategyChoice};
//! use cpkv::device::{CpuDevice, Device};
//! use cpkv::group::{Group, GroupOptions, ThreadBootstrap};
//! use cpkv::model::{BufferId, ModelSpec};
//! use cpkv::plan::{Batch, RequestPages};
//! use cpkv::symm::LocalBackend;
//! use cpkv::transfer::decode::Cached;
//! use cpkv::transfer::*;
//! use cpkv::units::{GroupSize, PageId, Rank};
//! # type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;
//!
//! const SOON: Duration = Duration::from_secs(10);
//! const PAGES: [PageId; 3] = [PageId(5), PageId(2), PageId(9)];
//!
//! fn prefill(bootstrap: ThreadBootstrap, engine: InProcessEngine, hello: WorkerHello, offer: Offer) -> Outcome {
//!     let (device, model) = (Arc::new(CpuDevice), ModelSpec::preset("tiny")?.take_layers(2)?);
//!     let options = GroupOptions::default();
//!     let group = Group::register(Arc::new(bootstrap), device.clone(), Arc::new(LocalBackend), options)?;
//!     let pool = SharedPool::register(&group, model.clone(), 16)?;
//!
//!     // Start: the pool's memory is made known to the engine, and where its pages lie to the manager.
//!     let engine: Arc<dyn TransferEngine> = Arc::new(engine);
//!     engine.register(&pool.own_memory())?;
//!     let source = Source { rank: group.rank(), group_size: group.group_size(), pool: pool.own_map() };
//!     // Refused where the decode side has another model, page size, engine or version.
//!     let decode = Arc::new(DecodeGroup::connect(&source, &*engine, &Geometry::of(&model)?, &[hello])?);
//!     let (stream, gate) = (group.stream_handle(), group.gate());
//!     let parts = ManagerParts { engine, device: device.clone(), stream, gate, source };
//!     // Prompts below `min_prompt_tokens` would go as a whole, at finish.
//!     let manager = TransferManager::start(parts, ManagerOptions { min_prompt_tokens: 0, ..Default::default() })?;
//!     let mut composer = Composer::register(group, pool, None, ComposerOptions::default())?;
//!
//!     // A request without cached pages, whose 10 tokens the next forward computes.
//!     let request = offer.request;
//!     manager.register(RequestSpec { offer, decode, prompt_tokens: 10, prefix: RequestRun::default() })?;
//!     manager.open_chunk(request, &RequestRun { first: 0, pages: PAGES.to_vec() })?;
//!     let pages = RequestPages { new_tokens: 10, current_pages: PAGES.to_vec(), ..Default::default() };
//!     let mut flight = composer.begin(&Batch { requests: vec![pages], num_pad_slots: 0 }, StrategyChoice::Auto)?;
//!     let num_rows = flight.plan().rows.num_rows() as usize;
//!     for layer in 0..2 {
//!         let mut inputs = LayerInputs::default();
//!         for (buffer, row_bytes) in [(BufferId::TOKEN_KV, 32), (BufferId::INDEX_K, 2 * 128)] {
//!             let rows = device.alloc((num_rows * row_bytes) as u64)?;
//!             flight.stream().upload(vec![7; num_rows * row_bytes], &rows)?;
//!             if model.buffers_of(layer).contains(&buffer) {
//!                 inputs = inputs.with(buffer, rows);
//!             }
//!         }
//!         flight.compose_layer(layer, &inputs)?;
//!         flight.persist_layer(layer)?;
//!         // Behind persist: the layer's pages are on their way while the next layer is computed.
//!         manager.on_layer_end(layer)?;
//!     }
//!     manager.end_forward()?;
//!     flight.finish()?;
//!     manager.finish(request, &[], SOON)?;
//!     assert_eq!(manager.drop_request(request, SOON)?, Quiet::Confirmed);
//!     composer.close()?;
//!     Ok(())
//! }
//!
//! let fabric = Fabric::new();
//! let engine: Arc<dyn TransferEngine> = Arc::new(fabric.endpoint("decode")?);
//! let model = ModelSpec::preset("tiny")?.take_layers(2)?;
//! let worker = DecodeWorker::start(Arc::new(CpuDevice), &engine, &model, DecodeOptions {
//!     worker: Rank(0),
//!     num_workers: GroupSize::new(1)?,
//!     num_pages: 16,
//!     prefill_group_size: GroupSize::new(2)?,
//!     num_inboxes: 4,
//!     num_words: 2 * (1 + 1) + 1,
//! })?;
//! let mut directory = Directory::new(std::slice::from_ref(worker.hello()), TransferEpoch(1))?;
//! let offer = directory.allocate_along(RequestId(7), &PAGES, Cached::Leading(0))?;
//! let mut ranks = Vec::new();
//! for (rank, bootstrap) in (0..).zip(ThreadBootstrap::group(GroupSize::new(2)?)) {
//!     let engine = fabric.endpoint(&format!("prefill {rank}"))?;
//!     let (hello, offer) = (worker.hello().clone(), offer.clone());
//!     ranks.push(std::thread::spawn(move || prefill(bootstrap, engine, hello, offer)));
//! }
//! for rank in ranks {
//!     rank.join().expect("no panic")?;
//! }
//! // Every rank's record and every word is there: the worker may read.
//! worker.inbox(&offer)?.wait(&SystemClock, SOON)?;
//! let pages = directory.complete(RequestId(7))?;
//! let page = worker.page(0, 0, pages[0])?;
//! let mut bytes = vec![0; page.bytes() as usize];
//! CpuDevice.read(&page, &mut bytes)?;
//! assert_eq!(bytes, [7; 4 * 32]);
//! directory.free_pages(&pages)?;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

pub mod blocks;
mod board;
pub mod clock;
mod connect;
mod context;
pub mod decode;
mod desk;
mod ends;
pub mod engine;
mod engine_batch;
mod extras;
mod failure;
mod finish;
mod flight;
pub mod handshake;
mod ids;
mod inspect;
pub mod ledger;
pub mod lifetime;
mod log;
mod manager;
mod options;
mod outbox;
mod pace;
mod polled;
pub mod record;
mod request;
mod route;
mod send;
mod shared;
mod start_error;
mod threads;
mod wait;

pub use blocks::{Block, BlockError, PageRuns, build_layer_blocks};
pub use clock::{Clock, ManualClock, SystemClock};
pub use connect::ConnectError;
pub use context::Sent;
pub use decode::{DecodeOptions, DecodeWorker, Directory};
pub use engine::{
    BatchId, BatchState, CallbackEngine, CallbackFailure, Delivery, EndpointOptions, EngineCallbacks,
    EngineError, EngineInfo, EngineProblem, Fabric, Faults, InProcessEngine, PeerId, RegistrationId,
    SubmitRecord, TransferEngine,
};
pub use extras::AuxBlock;
pub use failure::{Cause, Counts, Payload, TransferError};
pub use handshake::{Geometry, HandshakeError, WorkerHello};
pub use ids::{RequestId, TransferEpoch};
pub use ledger::{Ledger, LedgerError, PageState};
pub use lifetime::{HeldPages, agree_quiet};
pub use log::{BatchSpan, TransferLog};
pub use manager::TransferManager;
pub use options::ManagerOptions;
pub use record::{CompletionRecord, Destination, InboxMap, Offer};
pub use request::{Load, Progress, Quiet, RequestSpec};
pub use route::{DecodeGroup, RequestRun, Source, WorkerRoute, sends};
pub use shared::ManagerParts;
pub use start_error::StartError;

pub use crate::pages::{LayerBuffer, PoolMap, PoolMapError};
