//! "This piece of work is finished": what streams, events and waiting callers share.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::lock;

/// Whether a piece of work on a stream has finished, and when. It finishes once, also when it is given up.
#[derive(Default)]
pub(super) struct Done {
    at: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Done {
    /// Not finished yet.
    pub(super) fn pending() -> Arc<Done> {
        Arc::new(Done::default())
    }

    /// Finishes it.
    pub(super) fn finish(&self) {
        lock::mutex(&self.at).get_or_insert_with(Instant::now);
        self.changed.notify_all();
    }

    /// When it finished.
    pub(super) fn at(&self) -> Option<Instant> {
        *lock::mutex(&self.at)
    }

    /// Whether it has finished.
    pub(super) fn is_finished(&self) -> bool {
        self.at().is_some()
    }

    /// Waits for it for a while; whether it has finished.
    pub(super) fn wait(&self, at_most: Duration) -> bool {
        let guard = lock::mutex(&self.at);
        if guard.is_some() {
            return true;
        }
        lock::wait(&self.changed, guard, at_most).is_some()
    }
}
