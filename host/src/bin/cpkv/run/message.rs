//! What rank 0 and a decode worker say to each other: one JSON value a line.

use cpkv::transfer::{Offer, WorkerHello};
use cpkv::units::PageId;
use serde::{Deserialize, Serialize};

use super::args::RunArgs;

/// The first line that a worker's process gets: what it must know to form the same batches.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SetUp {
    /// The arguments of the run.
    pub(crate) args: RunArgs,
    /// Prefill ranks.
    pub(crate) group_size: u32,
    /// The worker's number.
    pub(crate) worker: u32,
}

/// What a worker is asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Make what the pages of `offer` hold wrong in every byte. Nothing of it is in flight.
    Poison { offer: Offer },
    /// Wait until everything of `offer` has arrived, then look at its pages: position `i` holds page `pages[i]` of the prefill
    /// pool.
    Verify { offer: Offer, pages: Vec<PageId> },
    /// The next batch was persisted.
    Persisted { batch_idx: usize },
    /// A new round begins, with other stamps.
    Restart { seed: u64 },
}

/// What it answers. The first answer, a [`Greeting`], is to its start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// It has started.
    Hello(Box<Greeting>),
    /// It was done.
    Done,
    /// What the pages of a request hold at this worker.
    Seen(Seen),
    /// It could not be done.
    Failed { message: String },
}

/// How a worker can be reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// The library's part.
    pub(crate) hello: WorkerHello,
    /// Where its small extra buffers lie.
    pub(crate) aux_addr: u64,
    /// The process it runs in.
    pub(crate) pid: u32,
}

/// What the pages of a request hold at one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// By position: a hash of the page in all layers. Positions of other workers are left out.
    pub(crate) digests: Vec<(u32, String)>,
    /// Bytes that were compared with the oracle's.
    pub(crate) checked_bytes: u64,
    /// The first that was wrong.
    pub(crate) difference: Option<String>,
}
