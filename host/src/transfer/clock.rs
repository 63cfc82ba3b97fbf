//! The clock that deadlines of transfers are read from: the machine's, or one that a test moves.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use cpkv_kernels::now_ns;

/// A monotonic clock.
pub trait Clock: Send + Sync {
    /// The time now, in nanoseconds since some fixed instant.
    fn now_ns(&self) -> u64;

    /// Waits for a while, `time` at most, before the caller looks again at what it waits for.
    fn pause(&self, time: Duration);
}

/// The machine's monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn pause(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// How long a pause of a clock that nobody moves lasts at most.
const MANUAL_PAUSE: Duration = Duration::from_micros(200);

/// A clock that stands still until it is moved: deadlines pass when a test says so, and nobody sleeps for them.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ns: Mutex<u64>,
    moved: Condvar,
}

impl ManualClock {
    /// Moves the clock on, and wakes whoever pauses.
    pub fn advance(&self, time: Duration) {
        let mut now = self.now_ns.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.saturating_add(nanos(time));
        drop(now);
        self.moved.notify_all();
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        *self.now_ns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pause(&self, time: Duration) {
        let now = self.now_ns.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.moved.wait_timeout(now, time.min(MANUAL_PAUSE));
    }
}

/// `time` in nanoseconds, or as many as fit.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// An instant of a [`Clock`] at which a wait gives up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    begun_ns: u64,
    at_ns: u64,
}

impl Until {
    /// `timeout` from now.
    pub(super) fn after(clock: &dyn Clock, timeout: Duration) -> Self {
        let begun_ns = clock.now_ns();
        Self { begun_ns, at_ns: begun_ns.saturating_add(nanos(timeout)) }
    }

    /// The time left.
    pub(super) fn remaining(self, clock: &dyn Clock) -> Duration {
        Duration::from_nanos(self.at_ns.saturating_sub(clock.now_ns()))
    }

    pub(super) fn has_passed(self, clock: &dyn Clock) -> bool {
        clock.now_ns() >= self.at_ns
    }

    /// How long the wait has lasted so far, in milliseconds: for reports.
    pub(super) fn waited_ms(self, clock: &dyn Clock) -> u64 {
        clock.now_ns().saturating_sub(self.begun_ns) / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::default();
        let until = Until::after(&clock, Duration::from_secs(30));
        clock.pause(Duration::from_secs(60));
        assert!(!until.has_passed(&clock));
        clock.advance(Duration::from_secs(30));
        assert!(until.has_passed(&clock));
        assert_eq!(until.waited_ms(&clock), 30_000);
    }
}
