//! What the engine has of a request, and what its answers mean.

use std::sync::Arc;

use super::clock::Until;
use super::context::{Context, State};
use super::engine::{BatchState, EngineError};
use super::engine_batch::EngineBatch;
use super::failure::Cause;
use super::ledger::{Ledger, LedgerError, PartIdx};
use super::log::BatchSpan;

/// The pages of a batch: of which part and layer, by their indices into the part's positions.
pub(super) type Pages = (PartIdx, usize, Vec<u32>);

/// A request's portion of a batch that the engine has, or is being given.
pub(super) struct Flight {
    /// Counts the request's batches.
    pub(super) number: u64,
    /// What the engine has; `None` while it is being asked to take it.
    pub(super) engine_batch: Option<Arc<EngineBatch>>,
    /// The pages, where it is a layer's.
    pub(super) pages: Option<Pages>,
    pub(super) until: Until,
    pub(super) is_late: bool,
    pub(super) span: BatchSpan,
}

/// A batch that the engine is to be asked about.
struct Question {
    number: u64,
    worker: u32,
    engine_batch: Arc<EngineBatch>,
}

impl Context {
    /// Asks the engine about the oldest batch to each worker, and on to the next where that came to its end: while the oldest
    /// is in flight, the later ones mostly are, too. Of a request that failed or was dropped every batch is asked about:
    /// each that ends makes pages quiet. The lock is not held meanwhile: an answer that does not come holds up no other
    /// thread. Whether anything came to its end.
    pub(super) fn poll(&self, look: u64) -> bool {
        let (mut from, mut has_ended, mut busy) = (0, false, Vec::new());
        while let Some(question) = self.next_to_ask(from, &busy) {
            let outcome = question.engine_batch.ask(&*self.shared.engine, look);
            let ended = self.judge(question.number, outcome);
            has_ended |= ended;
            from = question.number + 1;
            if !ended {
                busy.push(question.worker);
            }
        }
        has_ended
    }

    /// The next batch from number `from` on; while the request runs, none to a worker in `busy`, nor behind one that is being
    /// submitted.
    fn next_to_ask(&self, from: u64, busy: &[u32]) -> Option<Question> {
        let mut state = self.lock();
        let runs = state.may_send();
        // By number: batches are added in that order, but taken away in any.
        state.flights.sort_unstable_by_key(|flight| flight.number);
        let (mut held, mut later) =
            (busy.to_vec(), state.flights.iter().filter(|flight| flight.number >= from));
        later.find_map(|flight| {
            let worker = flight.span.worker;
            match &flight.engine_batch {
                _ if runs && held.contains(&worker) => None,
                Some(engine_batch) => {
                    Some(Question { number: flight.number, worker, engine_batch: Arc::clone(engine_batch) })
                }
                None => {
                    held.push(worker);
                    None
                }
            }
        })
    }

    /// What the engine's answer means; whether the batch came to its end.
    fn judge(&self, number: u64, outcome: Result<BatchState, EngineError>) -> bool {
        let mut state = self.lock();
        let Some(idx) = state.flights.iter().position(|flight| flight.number == number) else { return false };
        if outcome == Ok(BatchState::InFlight) {
            return false;
        }
        let mut flight = state.flights.swap_remove(idx);
        match outcome {
            Ok(_) => {
                state.enter(&flight.pages, Ledger::settle);
                flight.span.done_ns = Some(self.shared.clock.now_ns());
            }
            Err(source) => {
                state.enter(&flight.pages, Ledger::lose);
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

    /// Looks at the deadlines of what is in flight, without asking the engine; whether one has passed.
    pub(super) fn expire(&self) -> bool {
        let clock = &*self.shared.clock;
        let mut state = self.lock();
        let late = state.flights.iter_mut().find(|flight| !flight.is_late && flight.until.has_passed(clock));
        let Some(flight) = late else { return false };
        flight.is_late = true;
        let (payload, worker) = (flight.span.payload, flight.span.worker);
        let waited_ms = flight.until.waited_ms(clock);
        state.fail(Cause::TransferTimeout { payload, worker, waited_ms });
        true
    }
}

impl State {
    /// What became of a batch's pages. A ledger that knows otherwise fails the request: it must not be said to be complete.
    pub(super) fn enter(
        &mut self,
        pages: &Option<Pages>,
        change: fn(&mut Ledger, PartIdx, usize, &[u32]) -> Result<(), LedgerError>,
    ) {
        let Some((part, layer, which)) = pages else { return };
        if let Err(error) = change(&mut self.ledger, *part, *layer, which) {
            self.fail(error.into());
        }
    }
}
