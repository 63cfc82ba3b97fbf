//! Why a transfer failed: the layer, the reason, and the counts that explain a hang.

use std::fmt;

use thiserror::Error;

use super::blocks::BlockError;
use super::engine::EngineError;
use super::ids::RequestId;
use super::ledger::LedgerError;
use crate::device::DeviceError;
use crate::group::Fault;
use crate::pages::PoolMapError;

/// What was being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Payload {
    /// A layer's pages.
    Layer(usize),
    /// The request's small extra buffers.
    Aux,
    /// The completion record.
    Record,
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layer(layer) => write!(f, "layer {layer}"),
            Self::Aux => f.write_str("aux blocks"),
            Self::Record => f.write_str("completion record"),
        }
    }
}

fn in_flight_to(worker: Option<u32>) -> String {
    worker.map_or(String::new(), |worker| format!(", in flight to decode worker {worker},"))
}

/// How far a request's layers are on this rank. A layer counts once for each part of the request (prefix, chunks).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Layers handed to the workers: by hooks, and by `finish`.
    pub enqueued: u32,
    /// Of these, layers that the workers are through with.
    pub processed: u32,
    /// Batches that the engine did not take.
    pub submit_failures: u32,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { enqueued, processed, submit_failures } = self;
        write!(f, "processed {processed} of {enqueued} layers, {submit_failures} submits failed")
    }
}

/// A request that could not be transferred. Nothing more is sent for it. Where the completion records themselves failed, some
/// workers may have theirs: a request is complete when all workers say so, and the decode side gives it up by its epoch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("request {request}: {cause} ({counts})")]
pub struct TransferError {
    /// The request.
    pub request: RequestId,
    /// Why.
    pub cause: Box<Cause>,
    /// How far it was.
    pub counts: Counts,
}

/// The first thing that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Cause {
    /// The event behind a layer's writes did not fire.
    #[error(
        "{payload}: its write event did not fire within {waited_ms} ms: see what the compute stream waits for"
    )]
    EventTimeout {
        /// What waited for it.
        payload: Payload,
        /// How long, in milliseconds.
        waited_ms: u64,
    },
    /// No transfer thread came to send it.
    #[error(
        "{payload}: no transfer thread came to send it within {waited_ms} ms: the engine keeps them all: see what it waits for, \
         or start more of them"
    )]
    NoThread {
        /// What is not sent.
        payload: Payload,
        /// How long since it was handed in, in milliseconds.
        waited_ms: u64,
    },
    /// The compute stream failed before the event.
    #[error("{payload}: the compute stream failed before its write event: {source}")]
    Event {
        /// What waited for it.
        payload: Payload,
        /// The stream's error.
        source: DeviceError,
    },
    /// The engine did not take a batch.
    #[error("{payload}: {source}")]
    Submit {
        /// What was to be sent.
        payload: Payload,
        /// The engine's error.
        source: EngineError,
    },
    /// A batch failed on its way.
    #[error("{payload}, on its way: {source}")]
    Transfer {
        /// What was being sent.
        payload: Payload,
        /// The engine's error.
        source: EngineError,
    },
    /// A batch was not done in time.
    #[error(
        "{payload} to decode worker {worker} was not done after {waited_ms} ms: is the worker stopped? Or does a call of the \
         engine not return? Its pages stay quarantined until the engine is done with them"
    )]
    TransferTimeout {
        /// What was being sent.
        payload: Payload,
        /// To whom.
        worker: u32,
        /// How long, in milliseconds.
        waited_ms: u64,
    },
    /// `finish` gave up waiting.
    #[error("{payload}{} was not complete within the {waited_ms} ms that finish was given", in_flight_to(*worker))]
    Deadline {
        /// The first that was not.
        payload: Payload,
        /// The decode worker that it is in flight to, if it is.
        worker: Option<u32>,
        /// How long, in milliseconds.
        waited_ms: u64,
    },
    /// The group is poisoned: what its kernels wrote is not to be trusted.
    #[error("{payload} was not sent: {fault}")]
    Poisoned {
        /// What was to be sent.
        payload: Payload,
        /// The group's fault.
        fault: Fault,
    },
    /// A page would have been sent twice.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Pages that no blocks can be made of.
    #[error(transparent)]
    Blocks(#[from] BlockError),
    /// The decode side's pages are not like this side's.
    #[error("decode worker {worker}: {source}")]
    Pool {
        /// Which worker.
        worker: usize,
        /// The difference.
        source: PoolMapError,
    },
    /// The offer is not one for this group and these workers.
    #[error("the decode side's offer {problem}")]
    Offer {
        /// What is wrong with it.
        problem: String,
    },
    /// More batches than the decode side has epoch words for.
    #[error(
        "{payload}: the decode side's inbox has {num_words} words a rank, all used: ask it for more (layers, times \
         chunks and one, and one for aux blocks)"
    )]
    Words {
        /// What was to be sent.
        payload: Payload,
        /// Words of the inbox.
        num_words: u32,
    },
    /// Pages were added to the request while it was being finished.
    #[error("{missing} (layer, page) pairs were not sent: open no chunk of a request that is being finished")]
    Incomplete {
        /// How many.
        missing: u64,
    },
    /// A chunk was opened of a request that is finished or dropped.
    #[error("it is being finished or dropped: open its chunks before")]
    Closed,
    /// The forward that computes a part of it has not ended: what would be sent may not be written yet.
    #[error("a forward is under way: call end_forward behind its last layer before this")]
    ForwardOpen,
    /// Nobody can say yet that its pages are quiet.
    #[error("its pages cannot be confirmed quiet: {reason}")]
    Unconfirmable {
        /// Why, and what to do.
        reason: &'static str,
    },
    /// An aux block for a worker that is not there.
    #[error("an aux block is for decode worker {worker}, but the request has {num_workers}")]
    AuxWorker {
        /// The worker it names.
        worker: u32,
        /// Workers of the request.
        num_workers: usize,
    },
    /// The request was dropped.
    #[error("it was dropped")]
    Dropped,
    /// No request of that number was registered, or it was dropped.
    #[error("it is not registered: register it before the forward, and ask before it is dropped")]
    NotRegistered,
    /// The number is taken.
    #[error("it is registered already: finish and drop it first")]
    Registered,
    /// The manager has no room for another request.
    #[error(
        "{max_requests} requests are registered, as many as there is room for: drop finished ones, or raise max_requests"
    )]
    Full {
        /// The limit.
        max_requests: u32,
    },
    /// Memory for its record could not be written.
    #[error("its completion record: {0}")]
    Device(#[from] DeviceError),
}
