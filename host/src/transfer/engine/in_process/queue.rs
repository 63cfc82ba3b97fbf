//! The batches of one endpoint: what each caller is told, and what is delivered next. Decisions only; the endpoint's lock
//! is held around every call.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::{BatchId, BatchState, EngineProblem, PeerId};
use super::payload::{Around, Ending, Payload, Standing};
use super::{Counters, codes};
use crate::device::DeviceBuffer;
use crate::transfer::Block;

/// What a caller will be told of a batch.
#[derive(Debug)]
enum Outcome {
    InFlight,
    Done,
    Failed(EngineProblem),
}

/// What one look of the delivery thread gave it to copy. It is at work on the batch until [`Queue::end_turn`].
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) pieces: Vec<Block>,
    /// The memory of both sides.
    pub(super) keep: Arc<[DeviceBuffer]>,
}

/// How a batch that was given up stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abandoned {
    /// Nothing is written any more.
    Quiet,
    /// Nothing is, once the turn that is under way has ended.
    EndsWithTurn,
    /// It may be written at any later time.
    Loose,
}

/// The batches of one endpoint. The outcome of a batch and its payload live apart: a completion may be reported before
/// the payload is delivered, and a batch may be given up whose payload goes on.
#[derive(Debug, Default)]
pub(super) struct Queue {
    num_batches: u64,
    /// Of every batch whose end was not told.
    outcomes: BTreeMap<BatchId, (PeerId, Outcome)>,
    /// In order of submission.
    payloads: Vec<Payload>,
    /// The batch of the turn under way.
    copying: Option<BatchId>,
    /// Batches to come that are released already.
    num_released_ahead: usize,
    counters: Counters,
}

impl Queue {
    pub(super) const fn next_id(&self) -> BatchId {
        BatchId(self.num_batches)
    }

    pub(super) const fn counters(&self) -> Counters {
        self.counters
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }

    /// The batches that are not wholly delivered, in order of submission.
    pub(super) fn undelivered(&self) -> impl Iterator<Item = BatchId> {
        self.payloads.iter().map(|payload| payload.id)
    }

    /// Takes a payload in, whose id is [`Queue::next_id`].
    pub(super) fn push(&mut self, mut payload: Payload) {
        self.num_batches += 1;
        let outcome = if payload.reported { Outcome::Done } else { Outcome::InFlight };
        self.outcomes.insert(payload.id, (payload.peer, outcome));
        if self.num_released_ahead > 0 {
            self.num_released_ahead -= 1;
            payload.num_released = usize::MAX;
        }
        self.payloads.push(payload);
    }

    /// Tells a batch's end, once, with the peer that an error concerns.
    pub(super) fn poll(&mut self, batch: BatchId) -> Result<BatchState, (Option<PeerId>, EngineProblem)> {
        match self.outcomes.remove(&batch) {
            None => Err((None, EngineProblem::UnknownBatch)),
            Some((peer, Outcome::InFlight)) => {
                self.outcomes.insert(batch, (peer, Outcome::InFlight));
                Ok(BatchState::InFlight)
            }
            Some((_, Outcome::Done)) => Ok(BatchState::Done),
            Some((peer, Outcome::Failed(problem))) => Err((Some(peer), problem)),
        }
    }

    /// Ends the payloads that can never go on. The turn under way is let be: it ends first.
    pub(super) fn sweep(&mut self, around: Around) {
        let lost: Vec<_> = self
            .payloads
            .iter()
            .filter(|payload| Some(payload.id) != self.copying)
            .filter_map(|payload| match payload.standing(around) {
                Standing::Lost(problem) => Some((payload.id, problem)),
                _ => None,
            })
            .collect();
        for (batch, problem) in lost {
            self.remove(batch);
            self.fail(batch, problem);
        }
    }

    fn ready(&self, around: Around) -> impl Iterator<Item = &Payload> {
        self.payloads.iter().filter(move |payload| payload.standing(around) == Standing::Ready)
    }

    /// Whether something is being delivered, or may be at once.
    pub(super) fn is_busy(&self, around: Around) -> bool {
        self.copying.is_some() || self.ready(around).next().is_some()
    }

    /// Begins a turn of the payload that goes next, where one may.
    pub(super) fn begin_turn(&mut self, around: Around) -> Option<Turn> {
        let next = match around.reorder {
            None => self.ready(around).next(),
            Some(seed) => self.ready(around).min_by_key(|payload| payload.key(seed)),
        };
        let id = next?.id;
        let payload = self.payloads.iter_mut().find(|payload| payload.id == id)?;
        self.copying = Some(id);
        let pieces = payload.take(around.hold);
        self.counters.num_bytes += pieces.iter().map(|piece| piece.bytes).sum::<u64>();
        Some(Turn { pieces, keep: Arc::clone(&payload.keep) })
    }

    /// Ends the turn under way, and its batch where nothing is left to do.
    pub(super) fn end_turn(&mut self, around: Around) {
        let Some(id) = self.copying.take() else { return };
        let payload = self.payloads.iter().find(|payload| payload.id == id);
        let Some(ending) = payload.and_then(|payload| payload.ending(around.hold)) else { return };
        self.remove(id);
        match ending {
            Ending::Delivered => {
                self.counters.num_delivered += 1;
                self.tell(id, Outcome::Done);
            }
            Ending::Failed => {
                let reason = "it was told to fail this batch".into();
                self.fail(id, EngineProblem::Foreign { code: codes::IO, reason });
            }
            Ending::Cancelled => self.counters.num_cancelled += 1,
        }
    }

    /// Gives up a batch. A payload that can be cancelled is.
    pub(super) fn abandon(&mut self, batch: BatchId, around: Around) -> Abandoned {
        self.outcomes.remove(&batch);
        let copying = self.copying == Some(batch);
        let Some(payload) = self.payloads.iter_mut().find(|payload| payload.id == batch) else {
            return Abandoned::Quiet;
        };
        // A frozen side does not hear of it; what was reported as done cannot be taken back.
        if payload.reported || payload.standing(around) == Standing::Stuck {
            return Abandoned::Loose;
        }
        if copying {
            payload.cancelled = true;
            return Abandoned::EndsWithTurn;
        }
        self.remove(batch);
        self.counters.num_cancelled += 1;
        Abandoned::Quiet
    }

    /// Whether nothing of the batch is left to deliver.
    pub(super) fn is_quiet(&self, batch: BatchId) -> bool {
        self.undelivered().all(|id| id != batch)
    }

    /// The peer was removed, or added anew.
    pub(super) fn forget(&mut self, peer: PeerId) {
        for payload in self.payloads.iter_mut().filter(|payload| payload.peer == peer) {
            payload.forgotten = true;
        }
    }

    /// Drops everything; the turn under way ends first.
    pub(super) fn clear(&mut self) {
        self.outcomes.clear();
        self.payloads.retain(|payload| Some(payload.id) == self.copying);
        self.payloads.iter_mut().for_each(|payload| payload.cancelled = true);
    }

    /// Releases the next batches that are not, those to come included.
    pub(super) fn release(&mut self, num_batches: usize) {
        let held = self.payloads.iter_mut().filter(|payload| payload.num_released != usize::MAX);
        let released = held.take(num_batches).map(|payload| payload.num_released = usize::MAX).count();
        self.num_released_ahead += num_batches - released;
    }

    /// Releases `num_blocks` more blocks of a batch; with `usize::MAX` its completion too. Whether there is such a batch.
    pub(super) fn release_blocks(&mut self, batch: BatchId, num_blocks: usize) -> bool {
        let payload = self.payloads.iter_mut().find(|payload| payload.id == batch);
        payload
            .map(|payload| payload.num_released = payload.num_released.saturating_add(num_blocks))
            .is_some()
    }

    /// Nothing to come is released any more.
    pub(super) const fn hold(&mut self) {
        self.num_released_ahead = 0;
    }

    fn remove(&mut self, batch: BatchId) {
        self.payloads.retain(|payload| payload.id != batch);
    }

    fn fail(&mut self, batch: BatchId, problem: EngineProblem) {
        self.counters.num_failed += 1;
        self.tell(batch, Outcome::Failed(problem));
    }

    /// Sets what the caller will be told, unless it was told before, or the batch was given up.
    fn tell(&mut self, batch: BatchId, outcome: Outcome) {
        if let Some((_, before @ Outcome::InFlight)) = self.outcomes.get_mut(&batch) {
            *before = outcome;
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
