//! How often what is in flight is asked about. Every question costs: an engine answers under its own lock, which the thread
//! that moves its bytes wants, too. So all threads of a manager keep one pace. Pure.

use std::time::Duration;

use super::clock::nanos;

/// What a look at everything in flight found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// Nothing is.
    #[default]
    Nothing,
    /// Something is.
    InFlight,
    /// Something came to its end, or is late.
    Ended,
}

/// Between two looks, after something came to its end; doubled as long as nothing does.
const SHORTEST: Duration = Duration::from_micros(100);
/// At most, while somebody waits for the end of a request.
const AWAITED: Duration = Duration::from_micros(800);
/// While nobody does: then it is the deadlines that are looked after, and progress for who asks.
const UNATTENDED: Duration = Duration::from_millis(2);
/// With nothing in flight.
const IDLE: Duration = Duration::from_millis(20);

/// When the next look is due.
#[derive(Default)]
pub(super) struct Pace {
    interval: Duration,
    due_ns: u64,
    /// The last one that told its result, and what that was.
    last: u64,
    found: Look,
    /// When one was asked for that no look which has begun answers.
    wanted_ns: Option<u64>,
    /// Callers that wait for the end of a request.
    num_waiting: u32,
}

impl Pace {
    /// Somebody waits from now on.
    pub(super) fn begin_wait(&mut self, now_ns: u64) {
        self.num_waiting += 1;
        self.interval = SHORTEST;
        self.want(now_ns + nanos(SHORTEST));
    }

    /// He waits no more.
    pub(super) const fn end_wait(&mut self) {
        self.num_waiting = self.num_waiting.saturating_sub(1);
    }

    /// Something was given to the engine: it is looked at soon, where somebody waits for it.
    pub(super) fn sent(&mut self, now_ns: u64) {
        let soon = match self.num_waiting {
            0 => UNATTENDED,
            // What is older is in flight, and asked about first.
            _ if self.found == Look::InFlight => AWAITED,
            _ => SHORTEST,
        };
        self.want(now_ns + nanos(soon));
    }

    /// Whether somebody waits for the end of a request.
    pub(super) const fn is_awaited(&self) -> bool {
        self.num_waiting > 0
    }

    fn want(&mut self, at_ns: u64) {
        let wanted_ns = self.wanted_ns.map_or(at_ns, |wanted_ns| wanted_ns.min(at_ns));
        self.wanted_ns = Some(wanted_ns);
        self.due_ns = self.due_ns.min(wanted_ns);
    }

    /// Whether a look is due. Who hears so is the one to look: for the others, the next one is.
    pub(super) fn claim(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns >= self.due_ns;
        if is_due {
            self.due_ns = now_ns + nanos(self.interval.max(SHORTEST));
            self.wanted_ns = None;
        }
        is_due
    }

    /// What the look of that number found. One that began before another which has told its result knows less.
    pub(super) fn looked(&mut self, number: u64, look: Look, now_ns: u64) {
        if number < self.last {
            if look == Look::Ended {
                self.want(now_ns + nanos(SHORTEST));
            }
            return;
        }
        (self.last, self.found) = (number, look);
        self.interval = match (look, self.num_waiting) {
            (Look::Nothing, _) => IDLE,
            (_, 0) => UNATTENDED,
            (Look::Ended, _) => SHORTEST,
            (Look::InFlight, _) => (2 * self.interval).clamp(SHORTEST, AWAITED),
        };
        let next_ns = now_ns + nanos(self.interval);
        self.due_ns = self.wanted_ns.map_or(next_ns, |wanted_ns| wanted_ns.min(next_ns));
    }

    /// The time until the next look.
    pub(super) fn pause(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.due_ns.saturating_sub(now_ns)).clamp(SHORTEST, IDLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: u64 = 1_000_000_000;

    #[test]
    fn one_thread_looks_however_many_there_are() {
        let mut pace = Pace::default();
        assert!(pace.claim(LATER));
        assert!(!pace.claim(LATER));
        pace.looked(1, Look::InFlight, LATER);
        assert!(!pace.claim(LATER + nanos(UNATTENDED) - 1));
        assert!(pace.claim(LATER + nanos(UNATTENDED)));
    }

    #[test]
    fn who_waits_makes_the_looks_frequent_and_silence_makes_them_rarer() {
        let mut pace = Pace::default();
        pace.looked(1, Look::Nothing, LATER);
        assert_eq!(pace.pause(LATER), IDLE);
        pace.begin_wait(LATER);
        assert_eq!(pace.pause(LATER), SHORTEST);
        assert!(pace.claim(LATER + nanos(SHORTEST)));
        for expected in [2 * SHORTEST, 4 * SHORTEST, AWAITED, AWAITED] {
            pace.looked(1, Look::InFlight, LATER);
            assert_eq!(pace.pause(LATER), expected);
        }
        pace.looked(1, Look::Ended, LATER);
        assert_eq!(pace.pause(LATER), SHORTEST);
        pace.end_wait();
        pace.looked(1, Look::Ended, LATER);
        assert_eq!(pace.pause(LATER), UNATTENDED);
    }

    #[test]
    fn what_is_sent_during_a_look_is_not_left_to_the_next_long_pause() {
        let mut pace = Pace::default();
        assert!(pace.claim(LATER));
        pace.begin_wait(LATER);
        pace.sent(LATER);
        pace.looked(1, Look::Nothing, LATER);
        assert_eq!(pace.pause(LATER), SHORTEST);
    }

    #[test]
    fn a_look_that_began_before_does_not_undo_what_a_later_one_found() {
        let mut pace = Pace::default();
        pace.begin_wait(LATER);
        pace.sent(LATER);
        pace.looked(2, Look::InFlight, LATER);
        let pause = pace.pause(LATER);
        pace.looked(1, Look::Nothing, LATER);
        assert_eq!(pace.pause(LATER), pause);
    }

    #[test]
    fn what_is_sent_is_looked_at_although_nothing_was_in_flight() {
        let mut pace = Pace::default();
        pace.looked(1, Look::Nothing, LATER);
        pace.sent(LATER);
        assert_eq!(pace.pause(LATER), UNATTENDED);
        pace.begin_wait(LATER);
        pace.sent(LATER);
        assert_eq!(pace.pause(LATER), SHORTEST);
    }
}
