//! The meeting point of a group's threads: everyone brings a value and leaves with everyone's.
//!
//! State table, all behind one mutex (so every store below happens before every load that sees it):
//!
//! | word | who writes | who reads | at rest |
//! |---|---|---|---|
//! | `num_done` | the last rank of a round | waiters, to know their round is over | rounds completed |
//! | `arrived[r]` | rank r; emptied by the last rank of the round | waiters, to name the missing | `None` |
//! | `done` | the last rank of a round | every rank of that round, before it leaves | the last round |
//! | `gone` | a rank that drops its seat | waiters | empty |
//! | `failure` | the first rank that gives up, once | everyone, before anything else | `None` |
//!
//! One `done` is enough: round n+1 needs every rank, so it cannot end before the slowest has left round n.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::turn::Turn;
use crate::deadline::Deadline;
use crate::units::{GroupSize, Rank, RankSet};

/// One rank's place at the meeting point. Dropping it tells the others that this rank will not come again.
#[derive(Debug)]
pub(crate) struct Seat<T> {
    rank: Rank,
    /// One exchange of this rank at a time.
    turn: Turn,
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    size: GroupSize,
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    num_done: u64,
    arrived: Vec<Option<(&'static str, T)>>,
    done: Arc<[T]>,
    gone: RankSet,
    failure: Option<Failure>,
}

/// Why an exchange failed. The first failure is final: every later exchange of every rank returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// `rank` waited in `call` for `missing`, which did not come in time or have left.
    Missing { call: &'static str, rank: Rank, missing: RankSet, waited_ms: u64 },
    /// The ranks met in different calls, by rank.
    Diverged { calls: Arc<[&'static str]> },
    /// Another thread of the same rank was in an exchange until the deadline. Not final.
    Busy { waited_ms: u64 },
}

impl<T: Clone> Seat<T> {
    /// A meeting point and its seats, by rank.
    pub(crate) fn group(size: GroupSize) -> Vec<Self> {
        let state = State {
            num_done: 0,
            arrived: size.ranks().map(|_| None).collect(),
            done: Arc::new([]),
            gone: RankSet::default(),
            failure: None,
        };
        let shared = Arc::new(Shared { size, state: Mutex::new(state), changed: Condvar::new() });
        size.ranks().map(|rank| Self { rank, turn: Turn::default(), shared: Arc::clone(&shared) }).collect()
    }

    /// Brings `value` and waits for everyone's, by rank.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) fn exchange(
        &self,
        call: &'static str,
        value: T,
        deadline: Deadline,
    ) -> Result<Arc<[T]>, Failure> {
        let Some(_turn) = self.turn.take(deadline) else {
            return Err(Failure::Busy { waited_ms: deadline.waited_ms() });
        };
        let mut state = self.shared.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let round = state.num_done;
        state.arrived[self.rank.idx()] = Some((call, value));
        if state.arrived.iter().all(Option::is_some) {
            state.complete();
            self.shared.changed.notify_all();
        }
        loop {
            // A completed round is handed out even where a faster rank has failed the next one meanwhile.
            if state.num_done > round {
                return Ok(Arc::clone(&state.done));
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let missing = state.missing();
            let left = deadline.remaining();
            // Only those who left are blamed before the deadline: the others may still be on their way.
            let blamed = RankSet(missing.0 & if left.is_zero() { u64::MAX } else { state.gone.0 });
            if !blamed.is_empty() {
                let failure = Failure::Missing {
                    call,
                    rank: self.rank,
                    missing: blamed,
                    waited_ms: deadline.waited_ms(),
                };
                state.failure = Some(failure.clone());
                self.shared.changed.notify_all();
                return Err(failure);
            }
            (state, _) =
                self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Seat<T> {
    /// Whose seat it is.
    pub(crate) fn rank(&self) -> Rank {
        self.rank
    }

    /// How many seats there are.
    pub(crate) fn group_size(&self) -> GroupSize {
        self.shared.size
    }
}

#[cfg(test)]
impl<T> Seat<T> {
    /// Whether this rank is in an exchange that others have not come to.
    pub(super) fn is_waiting(&self) -> bool {
        self.shared.lock().arrived[self.rank.idx()].is_some()
    }
}

impl<T> Drop for Seat<T> {
    fn drop(&mut self) {
        self.shared.lock().gone.insert(self.rank);
        self.shared.changed.notify_all();
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A panic under the lock can only come from a failed allocation, before anything was changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    /// Ends a round in which everyone has arrived.
    fn complete(&mut self) {
        let (calls, values): (Vec<_>, Vec<_>) =
            self.arrived.iter_mut().filter_map(Option::take).collect::<Vec<_>>().into_iter().unzip();
        if calls.windows(2).any(|pair| pair[0] != pair[1]) {
            self.failure = Some(Failure::Diverged { calls: calls.into() });
        } else {
            self.done = values.into();
            self.num_done += 1;
        }
    }

    fn missing(&self) -> RankSet {
        let absent = self.arrived.iter().zip(0..).filter(|(value, _)| value.is_none());
        absent.map(|(_, rank)| Rank(rank)).collect()
    }
}
