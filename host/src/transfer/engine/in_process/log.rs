//! What an endpoint saw: for tests and reports.

use super::super::{BatchId, EngineProblem};
use crate::transfer::Block;

/// One call of `submit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitRecord {
    /// When it was called, by the counter of the fabric: [`Fabric::tick`](super::Fabric::tick).
    pub tick: u64,
    /// The peer's name; empty where there is no such peer.
    pub peer: Box<str>,
    /// What was to be written.
    pub blocks: Vec<Block>,
    /// What the caller was told.
    pub outcome: Result<BatchId, EngineProblem>,
}

/// An endpoint's counts, from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls of `submit`.
    pub num_submits: u64,
    /// Calls of `submit` that failed.
    pub num_refused: u64,
    /// Calls of `poll`.
    pub num_polls: u64,
    /// Batches of which every byte was written.
    pub num_delivered: u64,
    /// Batches that failed after they were submitted.
    pub num_failed: u64,
    /// Batches that were cancelled before they were delivered.
    pub num_cancelled: u64,
    /// Bytes written, those of batches that failed included.
    pub num_bytes: u64,
}
