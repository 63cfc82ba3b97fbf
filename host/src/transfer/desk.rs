//! The desk: what a manager's threads and its callers share.
//!
//! | field | written by | read by | under |
//! |---|---|---|---|
//! | `board` | hooks, callers, threads | the same | its own lock; a request's may be taken under it, never the other way round |
//! | `work_came` | who puts work on the board, begins a wait, or ends the manager | threads that have nothing to do | the board's |
//! | `stepped`, with `num_steps` of the board | threads behind a job, and behind a look that found something; callers that end or drop a request | callers that wait | the board's |
//! | `polled` | who polls a request, waits for its answer, or drops it | the same | its own; a request's, and the board's, may be taken under it, never the other way round |
//! | `num_open`, `num_hooked` | the forward's thread, and who closes a request | hooks, without a lock | none |
//! | `is_stopping` | who ends the manager, then takes the board's lock once | threads, under the board's lock, before they sleep | none |
//!
//! None of these locks is held while an engine is asked or a stream is waited for. A request's batches in flight have a lock each, the
//! log has one: nothing is taken under those.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cpkv_kernels::now_ns;

use super::board::{Board, Job, Work};
use super::context::Context;
use super::pace::Look;
use super::polled::Polled;
use super::shared::Shared;
use crate::device::Event;

/// What threads and callers share.
pub(super) struct Desk {
    pub(super) shared: Arc<Shared>,
    pub(super) board: Mutex<Board>,
    pub(super) polled: Polled,
    pub(super) work_came: Condvar,
    /// Callers that wait look again.
    pub(super) stepped: Condvar,
    /// Open parts: without one, the end of a forward does nothing.
    pub(super) num_open: AtomicUsize,
    /// Of these, parts whose layers hooks hand in: without one, a hook does nothing.
    pub(super) num_hooked: AtomicUsize,
    pub(super) is_stopping: AtomicBool,
}

impl Desk {
    /// Whether the manager ends.
    pub(super) fn is_stopping(&self) -> bool {
        // Relaxed: who waits is woken under the board's lock, or looks again soon.
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// A part of `context` was opened. Relaxed: parts are opened by the forward's thread, or before it goes on.
    pub(super) fn count_opened(&self, context: &Context) {
        self.num_open.fetch_add(1, Ordering::Relaxed);
        self.num_hooked.fetch_add(usize::from(context.is_per_layer), Ordering::Relaxed);
    }

    /// A part of `context` is open no more, if it was.
    pub(super) fn count_ended(&self, context: &Context, was_open: bool) {
        self.num_open.fetch_sub(usize::from(was_open), Ordering::Relaxed);
        self.num_hooked.fetch_sub(usize::from(was_open && context.is_per_layer), Ordering::Relaxed);
    }

    /// Wakes threads for what was put on `board`.
    pub(super) fn wake(&self, board: MutexGuard<'_, Board>) {
        let wakes = board.num_idle > 0;
        drop(board);
        if wakes {
            self.work_came.notify_all();
        }
    }

    /// Asks the engine about what is in flight, and looks at deadlines.
    pub(super) fn look(&self) {
        let (contexts, look) = self.lock().begin_look();
        let begun_ns = now_ns();
        let look_at = |context: &Arc<Context>| {
            let is_awaited = {
                let mut state = context.lock();
                if !state.claim_look(begun_ns) {
                    return Look::Nothing;
                }
                state.may_send() || state.num_waiting > 0
            };
            let has_ended = context.poll(look);
            // Behind the question: what is done in time is not late because nobody asked.
            let is_late = context.expire();
            match (has_ended || is_late, context.lock().is_idle()) {
                (true, _) => Look::Ended,
                (false, false) if is_awaited => Look::InFlight,
                (false, _) => Look::Nothing,
            }
        };
        let found = contexts.iter().map(look_at).max().unwrap_or(Look::Nothing);
        let mut board = self.lock();
        board.pace.looked(look, found, now_ns());
        if found == Look::Ended {
            self.tell(&mut board);
        }
    }

    /// Something happened that a caller may wait for.
    pub(super) fn tell(&self, board: &mut Board) {
        board.num_steps += 1;
        if board.pace.is_awaited() {
            self.stepped.notify_all();
        }
    }

    /// Sleeps for `time` at most, or until something happens that was not counted in `num_steps`. Looks begun so far.
    pub(super) fn await_step(&self, num_steps: u64, time: Duration) -> u64 {
        let board = self.lock();
        let waited = self.stepped.wait_timeout_while(board, time, |board| board.num_steps == num_steps);
        // Why it ended does not matter: who waits looks again.
        waited.unwrap_or_else(PoisonError::into_inner).0.num_looks()
    }

    /// Looks at deadlines alone, also of what was not sent yet: for callers, while the engine keeps every worker, and nobody can
    /// ask it.
    pub(super) fn expire(&self) {
        let board = self.lock();
        let (contexts, unsent) = (board.contexts(), board.late(&*self.shared.clock));
        drop(board);
        let mut num_late = contexts.iter().filter(|context| context.expire()).count();
        for (context, cause) in unsent {
            let mut state = context.lock();
            if state.may_send() {
                state.fail(cause);
                num_late += 1;
            }
        }
        if num_late > 0 {
            self.tell(&mut self.lock());
        }
    }

    /// Has the workers send more of a request, behind `event`.
    pub(super) fn put(
        &self,
        context: &Arc<Context>,
        works: impl Iterator<Item = Work>,
        event: Option<&Arc<dyn Event>>,
    ) {
        let mut board = self.lock();
        for work in works {
            let (context, event) = (Arc::clone(context), event.map(Arc::clone));
            board.put(Job { context, work, event, until: self.shared.event_until() });
        }
        self.wake(board);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
