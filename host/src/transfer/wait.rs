//! Waits of callers for what workers and the engine do: each to a deadline. The engine is asked by workers alone, so that
//! whatever it does, the caller comes back.

use std::time::Duration;

use cpkv_kernels::now_ns;

use super::clock::Until;
use super::context::{Context, Sent, State};
use super::desk::Desk;
use super::failure::{Cause, TransferError};
use super::threads;

/// How long a caller sleeps at most before it looks at its deadline: workers wake it for everything else.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// The pause of a caller that works itself, where there is nothing to do.
const DRIVEN_PAUSE: Duration = Duration::from_micros(100);

/// Somebody waits: until this is dropped, workers ask the engine more often, and wake him.
struct Waiting<'a>(&'a Desk);

impl<'a> Waiting<'a> {
    fn begin(desk: &'a Desk) -> Self {
        let mut board = desk.lock();
        board.pace.begin_wait(now_ns());
        // A worker may be in a long pause.
        desk.wake(board);
        Self(desk)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().pace.end_wait();
    }
}

/// Waits until `is_done` says so; whether it did before `until`. Where there are no threads, the caller works.
pub(super) fn await_true(desk: &Desk, until: Until, mut is_done: impl FnMut() -> bool) -> bool {
    if is_done() {
        return true;
    }
    let clock = &*desk.shared.clock;
    let _waiting = Waiting::begin(desk);
    loop {
        let num_steps = desk.lock().num_steps;
        if is_done() {
            return true;
        }
        if until.has_passed(clock) {
            return false;
        }
        if desk.shared.options.num_threads > 0 {
            if !desk.await_step(num_steps, LONGEST_PAUSE.min(until.remaining(clock))) {
                // The engine may hold up every worker.
                desk.expire();
            }
        } else if !threads::step(desk) {
            desk.look();
            clock.pause(DRIVEN_PAUSE);
        }
    }
}

/// Waits until the engine has nothing of a stopped request. What was lost does not become quiet by waiting.
pub(super) fn await_idle(desk: &Desk, context: &Context, until: Until) {
    context.lock().num_waiting += 1;
    await_true(desk, until, || context.lock().is_idle());
    context.lock().num_waiting -= 1;
}

/// Waits for the answer that another caller of finish will get.
pub(super) fn await_outcome(desk: &Desk, context: &Context, until: Until) -> Result<Sent, TransferError> {
    await_true(desk, until, || context.lock().outcome.is_some());
    let state = context.lock();
    if let Some(outcome) = &state.outcome {
        return outcome.clone();
    }
    let late = late(desk, &state, until);
    let cause = Box::new(state.failure().cloned().unwrap_or(late));
    Err(TransferError { request: context.id(), cause, counts: context.counts(&state) })
}

/// What a wait for a request did not see in time.
pub(super) fn late(desk: &Desk, state: &State, until: Until) -> Cause {
    let (payload, worker) = state.awaited();
    Cause::Deadline { payload, worker, waited_ms: until.waited_ms(&*desk.shared.clock) }
}
