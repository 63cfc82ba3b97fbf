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
//! | [`TransferManager::finish`]: the rest, then a record to every worker | [`decode::Inbox::wait`]: all records, all words; then it may read |
//! | [`TransferManager::drop_request`], then [`agree_quiet`] of the group: pages are free | [`Directory::complete`], later [`Directory::free_pages`] |
//!
//! A request that fails leaves no record: the prefill side says so by the caller's own means, and [`Directory::abort`] keeps
//! its pages until every rank has confirmed that it writes no more.

pub mod blocks;
mod board;
pub mod clock;
mod context;
pub mod decode;
mod desk;
pub mod engine;
mod extras;
mod failure;
mod finish;
mod flight;
pub mod handshake;
mod ids;
pub mod ledger;
pub mod lifetime;
mod log;
mod manager;
mod outbox;
mod pace;
mod parcel;
mod pool_map;
pub mod record;
mod request;
mod route;
mod send;
mod shared;
mod threads;
mod wait;

pub use blocks::{Block, BlockError, PageRuns, build_layer_blocks};
pub use clock::{Clock, ManualClock, SystemClock};
pub use context::Sent;
pub use decode::{DecodeOptions, DecodeWorker, Directory};
pub use engine::{
    BatchId, BatchState, CallbackEngine, CallbackFailure, Delivery, EndpointOptions, EngineCallbacks,
    EngineError, EngineInfo, EngineProblem, Fabric, Faults, InProcessEngine, PeerId, RegistrationId,
    SubmitRecord, TransferEngine,
};
pub use failure::{Cause, Counts, Payload, TransferError};
pub use finish::AuxBlock;
pub use handshake::{Geometry, HandshakeError, WorkerHello};
pub use ids::{RequestId, TransferEpoch};
pub use ledger::{Ledger, LedgerError, PageState};
pub use lifetime::{HeldPages, agree_quiet};
pub use log::{BatchSpan, TransferLog};
pub use manager::TransferManager;
pub use outbox::OutboxError;
pub use pool_map::{Destination, LayerBuffer, PoolMap, PoolMapError};
pub use record::{CompletionRecord, InboxMap, Offer};
pub use request::{Progress, Quiet, RequestSpec};
pub use route::{DecodeGroup, RequestRun, Source, WorkerRoute, sends};
pub use shared::{ManagerOptions, ManagerParts};
