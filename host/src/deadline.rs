//! A deadline: the instant at which a wait gives up.

use std::time::{Duration, Instant};

/// The instant after which a wait returns an error. Made from a timeout (a duration).
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    started: Instant,
    timeout: Duration,
}

impl Deadline {
    /// A deadline `timeout` from now.
    pub fn after(timeout: Duration) -> Self {
        Self { started: Instant::now(), timeout }
    }

    /// The time left; zero once expired.
    pub fn remaining(&self) -> Duration {
        self.timeout.saturating_sub(self.started.elapsed())
    }

    /// Whether nothing is left.
    pub fn expired(&self) -> bool {
        self.remaining().is_zero()
    }

    /// How long the wait has lasted so far, in milliseconds: for reports.
    pub fn waited_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
