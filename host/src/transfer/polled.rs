//! Requests that are finished by polls: between two of them nobody waits, but the engine is asked as if somebody did.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cpkv_kernels::now_ns;

use super::context::Context;
use super::desk::Desk;
use super::finish::Ending;
use super::wait::{LONGEST_BETWEEN_POLLS, Stall};

/// The ends that polls carry on.
#[derive(Default)]
pub(super) struct Polled(Mutex<Vec<(Ending, Stall)>>);

impl Polled {
    /// Begins to carry on the end of a request.
    pub(super) fn insert(&self, desk: &Desk, ending: Ending) {
        let begun_ns = now_ns();
        let mut board = desk.lock();
        // First: another caller may carry it to its end as soon as it is among the others.
        board.pace.begin_wait(begun_ns);
        desk.wake(board);
        self.lock().push((ending, Stall::begin(begun_ns)));
    }

    /// Carries on the end of a request as far as it goes without waiting. Nothing, where no poll began it.
    pub(super) fn advance(&self, desk: &Desk, context: &Arc<Context>) {
        let mut endings = self.lock();
        let Some(idx) = endings.iter().position(|(ending, _)| Arc::ptr_eq(&ending.context, context)) else {
            return;
        };
        let (ending, stall) = &mut endings[idx];
        // Where the engine keeps every worker, somebody else has to look at deadlines.
        let has_threads = desk.shared.options.num_threads > 0;
        if has_threads && stall.lasts(desk.lock().num_looks(), now_ns(), LONGEST_BETWEEN_POLLS) {
            desk.expire();
        }
        if ending.advance(desk) {
            endings.swap_remove(idx);
            drop(endings);
            let mut board = desk.lock();
            board.pace.end_wait();
            // Other callers that finish or drop the same request.
            desk.tell(&mut board);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Ending, Stall)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
