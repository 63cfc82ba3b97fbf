//! The decode side: where pages arrive, how it is known that they have, and who may use them.
//!
//! # Life of a request
//!
//! 1. [`Directory::allocate`] takes pages and an inbox, and makes the [`Offer`](super::Offer) that prefill is sent.
//! 2. Every worker waits for its part: [`DecodeWorker::inbox`], [`Inbox::wait`].
//! 3. Where all workers have theirs, [`Directory::complete`] gives the pages to the caller, who reads them, and gives them
//!    back with [`Directory::free_pages`].
//! 4. Where one fails, or the request is cancelled, [`Directory::abort`]: pages and inbox stay taken until every prefill
//!    rank has said that it writes no more ([`Directory::confirm_quiet`]).

mod arrange;
mod arrival;
mod directory;
mod directory_error;
mod inbox;
mod options;
mod page_states;
mod placement;
mod shard;
mod worker;
mod worker_error;

#[cfg(test)]
mod directory_model;
#[cfg(test)]
mod idle_engine;

pub use arrival::{Arrival, ArrivalError, ArrivalProblem, Expected, judge};
pub use directory::{Cached, Directory, PageCounts, Quarantined};
pub use directory_error::DirectoryError;
pub use inbox::Inbox;
pub use options::DecodeOptions;
pub use worker::DecodeWorker;
pub use worker_error::WorkerError;
