//! What the engine has of a request, and what its answers mean.

use super::clock::Until;
use super::context::Context;
use super::engine::{BatchId, BatchState, EngineError};
use super::failure::Cause;
use super::ledger::PartIdx;
use super::log::BatchSpan;

/// The pages of a batch: of which part and layer, by their indices into the part's positions.
pub(super) type Pages = (PartIdx, usize, Vec<u32>);

/// A batch that the engine has, or is being given.
pub(super) struct Flight {
    /// Counts the request's batches.
    pub(super) number: u64,
    /// The engine's; `None` while it is being asked to take it.
    pub(super) batch: Option<BatchId>,
    /// The pages, where it is a layer's.
    pub(super) pages: Option<Pages>,
    pub(super) until: Until,
    pub(super) is_late: bool,
    /// A thread is asking the engine about it.
    pub(super) is_asked: bool,
    pub(super) span: BatchSpan,
}

impl Context {
    /// Asks the engine about everything in flight, one batch at a time: one whose answer does not come holds up no other
    /// thread's question. Whether anything came to its end.
    pub(super) fn poll(&self) -> bool {
        let (mut from, mut has_ended) = (0, false);
        while let Some((number, batch)) = self.next_to_ask(from) {
            let outcome = self.shared.engine.poll(batch);
            has_ended |= self.judge(number, outcome);
            from = number + 1;
        }
        has_ended
    }

    /// The next batch that nobody is asking about, from number `from` on.
    fn next_to_ask(&self, from: u64) -> Option<(u64, BatchId)> {
        let mut state = self.lock();
        let waiting = state.flights.iter_mut().filter(|flight| flight.number >= from && !flight.is_asked);
        let next = waiting.filter(|flight| flight.batch.is_some()).min_by_key(|flight| flight.number)?;
        next.is_asked = true;
        Some((next.number, next.batch?))
    }

    /// What the engine's answer means; whether the batch came to its end.
    fn judge(&self, number: u64, outcome: Result<BatchState, EngineError>) -> bool {
        let mut state = self.lock();
        let Some(idx) = state.flights.iter().position(|flight| flight.number == number) else { return false };
        if outcome == Ok(BatchState::InFlight) {
            state.flights[idx].is_asked = false;
            return false;
        }
        let mut flight = state.flights.swap_remove(idx);
        match outcome {
            Ok(_) => {
                if let Some((part, layer, which)) = &flight.pages {
                    state.ledger.settle(*part, *layer, which);
                }
                flight.span.done_ns = Some(self.shared.clock.now_ns());
            }
            Err(source) => {
                if let Some((part, layer, which)) = &flight.pages {
                    state.ledger.lose(*part, *layer, which);
                }
                state.num_lost += 1;
                state.fail(Cause::Transfer { payload: flight.span.payload, source });
            }
        }
        // Before anybody can see that it ended.
        if let Some(log) = &self.shared.options.log {
            log.push(flight.span);
        }
        true
    }

    /// Looks at the deadlines of what is in flight, without asking the engine.
    pub(super) fn expire(&self) {
        let clock = &*self.shared.clock;
        let mut state = self.lock();
        let late = state.flights.iter_mut().find(|flight| !flight.is_late && flight.until.has_passed(clock));
        if let Some(flight) = late {
            flight.is_late = true;
            let (payload, worker) = (flight.span.payload, flight.span.worker);
            let waited_ms = flight.until.waited_ms(clock);
            state.fail(Cause::TransferTimeout { payload, worker, waited_ms });
        }
    }
}
