//! What a caller says of a request, and is told of it.

use std::sync::Arc;

use super::record::Offer;
use super::route::{DecodeGroup, RequestRun};
use crate::units::PageId;

/// A request to be transferred.
#[derive(Clone, Debug)]
pub struct RequestSpec {
    /// The decode side's answer: where its pages go.
    pub offer: Offer,
    /// The workers that the offer is of.
    pub decode: Arc<DecodeGroup>,
    /// Tokens of the whole prompt: short ones go as a whole at the end.
    pub prompt_tokens: u32,
    /// Pages that were in the pool before the forward, computed or being loaded on the stream.
    pub prefix: RequestRun,
}

/// How far a request is on this rank, in (layer, page) pairs: what its [ledger](super::ledger) holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The engine was not asked to send them.
    pub unsent: u64,
    /// The engine has them.
    pub in_flight: u64,
    /// Complete.
    pub sent: u64,
    /// They failed: nobody knows what was written.
    pub unknown: u64,
    /// Whether nothing of the request touches memory on either side.
    pub is_quiet: bool,
    /// Whether all layers that were handed in are complete: pages of which every layer was may be written again. Never of a request
    /// that failed, or goes as a whole.
    pub is_caught_up: bool,
    /// Batches that the engine took so far.
    pub num_batches: u64,
}

/// What a manager has to do yet, for callers that admit no more than the links carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests registered.
    pub num_requests: usize,
    /// Layers, aux blocks and records that wait for their event, or for a thread.
    pub num_queued: usize,
    /// Batches that the engine has, or is being given; one that several requests share counts for each.
    pub num_batches: usize,
    /// Their bytes, without epoch words.
    pub bytes: u64,
}

/// How a dropped request left its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quiet {
    /// Nothing of it touches memory on either side any more: as far as this rank goes, its pages may be reused. (With an
    /// engine that [delivers late](super::Delivery::InOrder), of a finished request, once the decode side has it all.)
    Confirmed,
    /// Batches of it could not be confirmed quiet: they may be read, and their destinations written, yet.
    Quarantined {
        /// The pages among what they send; aux blocks and records are none.
        pages: Vec<PageId>,
        /// The batches.
        num_batches: u64,
    },
}
