//! Waits of callers for what workers and the engine do: each to a deadline. The engine is asked by workers alone, so that
//! whatever it does, the caller comes back.

use std::sync::Arc;
use std::time::Duration;

use cpkv_kernels::now_ns;

use super::clock::Until;
use super::context::{Context, Sent, State};
use super::desk::Desk;
use super::failure::{Cause, TransferError};
use super::threads;

/// How long a caller sleeps at most before it looks at its deadline: workers wake it for everything else.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// Workers that have not begun a look for so long are kept by the engine: they look every 20 ms where there is nothing to do.
const STALLED: Duration = Duration::from_millis(500);
/// What the time between two polls counts as at most: several must see no look.
pub(super) const LONGEST_BETWEEN_POLLS: Duration = Duration::from_millis(200);
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

/// Whether workers have stopped looking at what is in flight: the engine keeps them. Then a batch is late at its deadline although
/// nobody could ask about it; sooner, one that is done in time would be called late.
pub(super) struct Stall {
    num_looks: u64,
    seen_ns: u64,
    lasted: Duration,
}

impl Stall {
    pub(super) const fn begin(now_ns: u64) -> Self {
        Self { num_looks: 0, seen_ns: now_ns, lasted: Duration::ZERO }
    }

    /// Whether no look has begun for long. Counts pauses, each with `longest` at most: a process that was stopped for an hour has
    /// not waited for one.
    pub(super) fn lasts(&mut self, num_looks: u64, now_ns: u64, longest: Duration) -> bool {
        let passed = Duration::from_nanos(now_ns.saturating_sub(self.seen_ns)).min(longest);
        let has_looked = std::mem::replace(&mut self.num_looks, num_looks) != num_looks;
        self.seen_ns = now_ns;
        self.lasted = if has_looked { Duration::ZERO } else { self.lasted + passed };
        self.lasted >= STALLED
    }
}

/// Waits until `is_done` says so; whether it did before `until`. Where there are no threads, the caller works.
pub(super) fn await_true(desk: &Desk, until: Until, mut is_done: impl FnMut() -> bool) -> bool {
    if is_done() {
        return true;
    }
    let clock = &*desk.shared.clock;
    let _waiting = Waiting::begin(desk);
    let mut stall = Stall::begin(now_ns());
    loop {
        let num_steps = desk.lock().num_steps;
        if is_done() {
            return true;
        }
        if until.has_passed(clock) {
            return false;
        }
        if desk.shared.options.num_threads > 0 {
            let num_looks = desk.await_step(num_steps, LONGEST_PAUSE.min(until.remaining(clock)));
            if stall.lasts(num_looks, now_ns(), LONGEST_PAUSE) {
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

/// Waits for the answer that another caller of finish will get; carries out what polls began.
pub(super) fn await_outcome(
    desk: &Desk,
    context: &Arc<Context>,
    until: Until,
) -> Result<Sent, TransferError> {
    await_true(desk, until, || {
        desk.polled.advance(desk, context);
        context.lock().outcome.is_some()
    });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::clock::nanos;

    #[test]
    fn workers_that_look_are_not_stalled_and_those_that_do_not_are_after_a_while() {
        let mut stall = Stall::begin(0);
        let pause = nanos(LONGEST_PAUSE);
        assert!(!(1..1000).any(|at| stall.lasts(at, at * pause, LONGEST_PAUSE)));
        let first = (0..1000).position(|at| stall.lasts(1000, (1000 + at) * pause, LONGEST_PAUSE));
        assert_eq!(first, Some(25));
        assert!(!stall.lasts(1001, 3000 * pause, LONGEST_PAUSE), "one look, and it begins anew");
    }

    #[test]
    fn a_process_that_was_stopped_has_not_waited() {
        let mut stall = Stall::begin(0);
        assert!(!stall.lasts(7, 1, LONGEST_BETWEEN_POLLS));
        assert!(!stall.lasts(7, nanos(Duration::from_secs(3600)), LONGEST_BETWEEN_POLLS));
    }

    #[test]
    fn callers_that_are_woken_all_the_time_see_a_stall_as_well() {
        let mut stall = Stall::begin(0);
        stall.lasts(7, 0, LONGEST_PAUSE);
        let first = (1..10_000).position(|at: u64| stall.lasts(7, at * 100_000, LONGEST_PAUSE));
        assert_eq!(first, Some(4999));
    }
}
