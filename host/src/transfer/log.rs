//! What the batches of a transfer did when: for timelines and figures.

use std::sync::{Mutex, PoisonError};

use super::failure::Payload;
use super::ids::RequestId;

/// One request's portion of a batch, from the submit to its completion. Times are of the manager's clock, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSpan {
    /// The request.
    pub request: RequestId,
    /// What was sent.
    pub payload: Payload,
    /// To whom.
    pub worker: u32,
    /// The thread that submitted it: from 1 the manager's, 0 a caller that drives.
    pub thread: u32,
    /// When the engine was asked.
    pub submit_ns: u64,
    /// When it had taken the batch: the same for all portions of one.
    pub submitted_ns: u64,
    /// When it was seen to be complete; `None` where it failed.
    pub done_ns: Option<u64>,
    /// Bytes of payload.
    pub bytes: u64,
    /// Blocks of payload.
    pub num_blocks: u32,
    /// Blocks it would have been without merging.
    pub num_unmerged: u32,
}

/// Collects the spans of batches that ended.
#[derive(Debug, Default)]
pub struct TransferLog {
    spans: Mutex<Vec<BatchSpan>>,
}

impl TransferLog {
    pub(super) fn push(&self, span: BatchSpan) {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).push(span);
    }

    /// The spans so far, in the order in which they ended; the log is empty afterwards.
    pub fn take(&self) -> Vec<BatchSpan> {
        std::mem::take(&mut self.spans.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
