//! A batch that the engine has: of one request, or of several that send the same layer to the same worker.
//!
//! | state | leaves by |
//! |---|---|
//! | *in flight* | the engine's answer: ended; the last request that held it gave it up: abandoned |
//! | *ended* | never: every request that holds it gets the same answer |
//! | *abandoned* | never; nobody holds it |

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::engine::{BatchId, BatchState, EngineError, TransferEngine, guarded};

/// A batch, held by the requests whose pages are in it.
pub(super) struct EngineBatch {
    batch: BatchId,
    state: Mutex<State>,
}

struct State {
    /// Requests that did not give it up.
    num_holders: usize,
    /// A thread is asking the engine.
    is_asked: bool,
    /// Nobody holds it any more.
    is_given_up: bool,
    /// The look in which it was asked about last.
    asked_in: u64,
    outcome: Option<Result<(), EngineError>>,
}

impl EngineBatch {
    /// What the engine took, for `num_holders` requests.
    pub(super) const fn new(batch: BatchId, num_holders: usize) -> Self {
        let state = State { num_holders, is_asked: false, is_given_up: false, asked_in: 0, outcome: None };
        Self { batch, state: Mutex::new(state) }
    }

    /// What the engine panicked over: nobody knows what it has, and it is not asked.
    pub(super) const fn unknown(error: EngineError, num_holders: usize) -> Self {
        let outcome = Some(Err(error));
        let state = State { num_holders, is_asked: false, is_given_up: false, asked_in: 0, outcome };
        Self { batch: BatchId(u64::MAX), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far it is. The engine is asked by one thread at a time, and once in a `look`: for the others it is in flight.
    pub(super) fn ask(&self, engine: &dyn TransferEngine, look: u64) -> Result<BatchState, EngineError> {
        let mut state = self.lock();
        match &state.outcome {
            Some(Ok(())) => return Ok(BatchState::Done),
            Some(Err(error)) => return Err(error.clone()),
            // Given up: who asks began to before that, and does not hold it any more.
            None if state.is_given_up || state.is_asked || state.asked_in == look => {
                return Ok(BatchState::InFlight);
            }
            None => (state.is_asked, state.asked_in) = (true, look),
        }
        drop(state);
        let answer = guarded::poll(engine, self.batch);
        let mut state = self.lock();
        state.is_asked = false;
        if answer != Ok(BatchState::InFlight) {
            state.outcome = Some(answer.clone().map(|_| ()));
        } else if state.is_given_up {
            drop(state);
            guarded::abandon(engine, self.batch);
        }
        answer
    }

    /// A request gives it up. With the last one that does, the engine lets go of it, unless it has ended; where a thread is
    /// asking the engine, that one tells it: engines are not asked twice about a batch at a time.
    pub(super) fn give_up(&self, engine: &dyn TransferEngine) {
        let mut state = self.lock();
        state.num_holders = state.num_holders.saturating_sub(1);
        state.is_given_up = state.num_holders == 0;
        let is_left = state.is_given_up && state.outcome.is_none() && !state.is_asked;
        drop(state);
        if is_left {
            guarded::abandon(engine, self.batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::deadline::Deadline;
    use crate::device::{CpuDevice, Device};
    use crate::transfer::{Block, Fabric, InProcessEngine};

    struct Pair {
        sender: InProcessEngine,
        _receiver: InProcessEngine,
        batch: BatchId,
    }

    /// A batch that is held back; with `fails`, it fails once it is not.
    fn pair(fails: bool) -> Pair {
        let fabric = Fabric::new();
        let (sender, receiver) = (fabric.endpoint("prefill").unwrap(), fabric.endpoint("decode").unwrap());
        let (src, dst) = (CpuDevice.alloc(8).unwrap(), CpuDevice.alloc(8).unwrap());
        sender.register(&src).unwrap();
        receiver.register(&dst).unwrap();
        sender.hold();
        if fails {
            sender.inject(|faults| faults.fail_batches.extend([(0, 0)]));
        }
        let peer = sender.add_peer(&receiver.metadata().unwrap()).unwrap();
        let block = Block { src: src.addr(), dst: dst.addr(), bytes: 8 };
        let batch = sender.submit(peer, &[block]).unwrap();
        Pair { sender, _receiver: receiver, batch }
    }

    #[test]
    fn the_engine_is_asked_once_a_look_and_every_holder_gets_the_answer() {
        let pair = pair(false);
        let engine_batch = EngineBatch::new(pair.batch, 2);
        for look in [1, 1, 2] {
            assert_eq!(engine_batch.ask(&pair.sender, look), Ok(BatchState::InFlight));
        }
        assert_eq!(pair.sender.counters().num_polls, 2);
        pair.sender.release_all();
        pair.sender.settle(Deadline::after(Duration::from_secs(10))).unwrap();
        // The engine forgets a batch that it said is done.
        for look in [3, 3, 4] {
            assert_eq!(engine_batch.ask(&pair.sender, look), Ok(BatchState::Done));
        }
        assert_eq!(pair.sender.counters().num_polls, 3);
    }

    #[test]
    fn a_batch_that_another_request_holds_is_not_abandoned() {
        let pair = pair(false);
        let engine_batch = EngineBatch::new(pair.batch, 2);
        engine_batch.give_up(&pair.sender);
        assert_eq!(engine_batch.ask(&pair.sender, 1), Ok(BatchState::InFlight));
        assert_eq!(pair.sender.counters().num_cancelled, 0);
        engine_batch.give_up(&pair.sender);
        assert_eq!(pair.sender.counters().num_cancelled, 1);
        // A look that had begun by then.
        assert_eq!(engine_batch.ask(&pair.sender, 2), Ok(BatchState::InFlight));
        assert_eq!(pair.sender.counters().num_polls, 1, "the engine was asked about a batch it abandoned");
    }

    #[test]
    fn a_batch_that_failed_fails_for_every_holder() {
        let pair = pair(true);
        pair.sender.release_all();
        let engine_batch = EngineBatch::new(pair.batch, 2);
        pair.sender.settle(Deadline::after(Duration::from_secs(10))).unwrap();
        let first = engine_batch.ask(&pair.sender, 1).unwrap_err();
        assert_eq!(engine_batch.ask(&pair.sender, 2), Err(first));
    }
}
