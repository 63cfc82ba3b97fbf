//! What an endpoint shows its peers: whether it lives, and how it misbehaves.
//!
//! A lock that is taken last, and under which nothing else is locked.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Faults;

/// The presence of one endpoint.
#[derive(Debug, Default)]
pub(super) struct Presence {
    condition: Mutex<Condition>,
}

#[derive(Debug, Default)]
struct Condition {
    /// For ever: a peer that comes back is another instance.
    dead: bool,
    faults: Faults,
}

impl Presence {
    pub(super) fn new(faults: Faults) -> Self {
        Self { condition: Mutex::new(Condition { dead: false, faults }) }
    }

    fn lock(&self) -> MutexGuard<'_, Condition> {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn die(&self) {
        self.lock().dead = true;
    }

    pub(super) fn is_dead(&self) -> bool {
        self.lock().dead
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.lock().faults.freeze
    }

    pub(super) fn refuses(&self) -> bool {
        self.lock().faults.refuse
    }

    pub(super) fn faults(&self) -> Faults {
        self.lock().faults.clone()
    }

    pub(super) fn change_faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.lock().faults);
    }
}
