//! Why a directory cannot be made, or refuses a call.

use thiserror::Error;

use crate::transfer::{Destination, HandshakeError, RequestId, TransferEpoch};
use crate::units::Rank;

/// Why a directory cannot be made, or refuses a call. A refused call changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// No worker, or not all of them.
    #[error(
        "directory: {got} workers said hello, worker {worker} is one of {expected}: gather every worker's hello"
    )]
    NumWorkers {
        /// The worker whose number differs.
        worker: u32,
        /// Workers that its group has.
        expected: u32,
        /// Hellos that were given.
        got: usize,
    },
    /// Nobody said hello.
    #[error("directory: no worker said hello: gather every worker's hello")]
    NoWorker,
    /// Two hellos of one worker.
    #[error("directory: worker {worker} said hello twice: start each worker with a number of its own")]
    WorkerTwice {
        /// The worker.
        worker: u32,
    },
    /// Workers whose pages differ, or a hello that cannot be.
    #[error("directory, compared with the first worker: {0}")]
    Handshake(#[from] HandshakeError),
    /// Workers that were started with different options.
    #[error(
        "directory: worker {worker} has {field} {got}, the first worker {expected}: start all workers with the same options"
    )]
    Options {
        /// The worker.
        worker: u32,
        /// The option.
        field: &'static str,
        /// The first worker's value.
        expected: u32,
        /// This worker's.
        got: u32,
    },
    /// More pages than page ids.
    #[error(
        "directory: all workers together have {got} pages, at most {max} can be named: use fewer pages a worker"
    )]
    TooManyPages {
        /// Pages of all workers.
        got: u64,
        /// The limit.
        max: u32,
    },
    /// Too few pages are free.
    #[error(
        "request {request}: {needed} pages are needed, {num_free} are free ({num_taken} are being received, {num_draining} \
         drain, {num_held} are in use): wait until some are freed, or start the workers with more pages"
    )]
    NotEnoughPages {
        /// The request.
        request: RequestId,
        /// Pages that it needs.
        needed: u32,
        /// Free pages.
        num_free: u32,
        /// Pages of transfers.
        num_taken: u32,
        /// Pages of aborted transfers that are not quiet.
        num_draining: u32,
        /// Pages of the caller.
        num_held: u32,
    },
    /// No inbox is free.
    #[error(
        "request {request}: all {num_inboxes} inboxes are taken, {num_draining} of them drain: wait until a transfer ends, \
         or start the workers with more inboxes"
    )]
    NoInbox {
        /// The request.
        request: RequestId,
        /// Inboxes of a worker.
        num_inboxes: u32,
        /// Those of aborted transfers that are not quiet.
        num_draining: u32,
    },
    /// All epochs were used.
    #[error("directory: no epoch is left after {last}: restart the workers and the directory")]
    NoEpoch {
        /// The last one.
        last: TransferEpoch,
    },
    /// The request has a transfer already.
    #[error("request {request} is being received, or drains: its id is free when that has ended")]
    InUse {
        /// The request.
        request: RequestId,
    },
    /// A cached position outside the request.
    #[error("request {request}: position {got} cannot be cached, it has {num_positions} pages")]
    CachedPosition {
        /// The request.
        request: RequestId,
        /// Pages of the request.
        num_positions: u32,
        /// The refused position, or number of leading ones.
        got: u32,
    },
    /// No such transfer.
    #[error("{call}: request {request} has no transfer: it has ended, or never began")]
    UnknownRequest {
        /// The call.
        call: &'static str,
        /// The request.
        request: RequestId,
    },
    /// The transfer was aborted.
    #[error("complete: request {request} was aborted, its pages are freed when all prefill ranks are quiet")]
    Aborted {
        /// The request.
        request: RequestId,
    },
    /// A message about another transfer of the same request.
    #[error(
        "confirm quiet: request {request} is in transfer {expected}, the message is about transfer {got}: drop it"
    )]
    OtherEpoch {
        /// The request.
        request: RequestId,
        /// The epoch of its transfer.
        expected: TransferEpoch,
        /// The message's.
        got: TransferEpoch,
    },
    /// No such prefill rank.
    #[error("confirm quiet: request {request} is sent by {group_size} ranks, there is no rank {rank}")]
    NoSuchRank {
        /// The request.
        request: RequestId,
        /// The refused rank.
        rank: Rank,
        /// Prefill ranks.
        group_size: u32,
    },
    /// A page that the caller does not have.
    #[error(
        "free pages: page {} of worker {} is not the caller's: it is free, named twice, or of a transfer",
        page.page_idx, page.worker
    )]
    NotHeld {
        /// The page.
        page: Destination,
    },
}
