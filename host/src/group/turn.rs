//! The turn: a lock that can be waited for with a deadline.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::deadline::Deadline;

/// One holder at a time, and no wait past a deadline (the standard mutex has no timed lock).
///
/// The state is one `bool` behind a mutex: at rest `false`, set by the holder, reset when its guard drops. The
/// mutex orders everything done under one turn before everything done under the next.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    taken: Mutex<bool>,
    freed: Condvar,
}

/// A taken turn; given back when dropped.
#[derive(Debug)]
pub(crate) struct TurnGuard<'turn> {
    turn: &'turn Turn,
}

impl Turn {
    /// Waits for the turn; `None` once the deadline has passed. A free turn is had even with nothing left.
    pub(crate) fn take(&self, deadline: Deadline) -> Option<TurnGuard<'_>> {
        // The mutex guards one `bool`, which is valid whatever panicked: poison carries no news here.
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken {
            let left = deadline.remaining();
            if left.is_zero() {
                return None;
            }
            (taken, _) = self.freed.wait_timeout(taken, left).unwrap_or_else(PoisonError::into_inner);
        }
        *taken = true;
        Some(TurnGuard { turn: self })
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        *self.turn.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.turn.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_taken_turn_is_refused_at_the_deadline_and_free_after_the_drop() {
        let turn = Turn::default();
        let guard = turn.take(Deadline::after(Duration::ZERO)).unwrap();
        assert!(turn.take(Deadline::after(Duration::from_millis(5))).is_none());
        drop(guard);
        assert!(turn.take(Deadline::after(Duration::ZERO)).is_some());
    }

    #[test]
    fn a_waiter_gets_the_turn_when_it_is_given_back() {
        let turn = Turn::default();
        let guard = turn.take(Deadline::after(Duration::ZERO));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| turn.take(Deadline::after(Duration::from_secs(20))).is_some());
            std::thread::sleep(Duration::from_millis(10));
            drop(guard);
            assert!(waiter.join().unwrap());
        });
    }
}
