//! A communicator: all ranks have it, or none does.

use std::ffi::c_void;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::bounded::bounded;
use super::error::NcclError;
use super::handle::{Enter, Handle};
use super::library::{Library, UNIQUE_ID_BYTES, UniqueId};
use super::statement::{Statement, decide, shortened};
use crate::deadline::Deadline;
use crate::group::{Bootstrap, BootstrapError};
use crate::units::Rank;

/// How long a communicator waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For each step of the set-up on this rank. The exchanges between the steps wait twice as long: for ranks that
    /// needed all of it.
    pub setup: Duration,
    /// Until NCCL has put a sum on the stream. It may have to connect ranks first.
    pub queue: Duration,
    /// Until a communicator is ended in order; as long again until it is aborted.
    pub teardown: Duration,
}

/// What became of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queued {
    /// It is on the stream.
    Yes,
    /// The caller gave up first. The communicator is of no use any more.
    GaveUp,
}

enum State {
    Ready(Handle),
    Failed(Handle, NcclError),
    Ended(NcclError),
}

/// One rank's part of a communicator of NCCL, whose states stand above [`the module`](super).
pub struct Communicator {
    state: Mutex<State>,
    gives_up: AtomicBool,
    timeouts: Timeouts,
}

impl Communicator {
    /// Makes a communicator of the ranks of `bootstrap`, if all of them can. Collective. `statement` is this rank's.
    /// `Ok(Err(reason))`: no rank has one, for the same reason.
    ///
    /// # Errors
    /// [`BootstrapError`]; what had been started is aborted.
    pub fn register(
        bootstrap: &dyn Bootstrap,
        statement: &Statement,
        enter: &Enter,
        timeouts: Timeouts,
    ) -> Result<Result<Self, String>, BootstrapError> {
        let gather =
            |call, blob: &[u8]| bootstrap.all_gather(call, blob, Deadline::after(2 * timeouts.setup));
        let blobs = gather(CAN, &statement.encode())?;
        if let Err(reason) = decide(&statements(bootstrap.rank(), &blobs)?) {
            return Ok(Err(reason));
        }
        let id = if bootstrap.rank() == Rank(0) { make_id(timeouts) } else { Vec::new() };
        let id = match read_id(&gather(ID, &id)?[0]) {
            Ok(id) => id,
            Err(reason) => return Ok(Err(reason)),
        };
        let place = (bootstrap.rank(), bootstrap.group_size());
        let started = Library::get().and_then(|library| {
            Handle::start(library, id, place, enter.clone(), [timeouts.setup, timeouts.teardown])
        });
        let outcomes = gather(STARTED, &say_outcome(started.as_ref().err()))?;
        Ok(match (read_outcomes(&outcomes), started) {
            (Ok(()), Ok(handle)) => Ok(Self::new(handle, timeouts)),
            (Err(reason), _) => Err(reason),
            (Ok(()), Err(problem)) => Err(format!("rank {}: {problem}", bootstrap.rank())),
        })
    }

    const fn new(handle: Handle, timeouts: Timeouts) -> Self {
        Self { state: Mutex::new(State::Ready(handle)), gives_up: AtomicBool::new(false), timeouts }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the byte-wise sum of every rank's `bytes` bytes at `addr` on `stream`, in place, and waits until it is on
    /// the stream, or `gives_up`.
    ///
    /// # Safety
    /// `stream` is one of the GPU that `enter` enters, which was entered on this thread; the bytes are its memory, which
    /// nothing but earlier and later work on `stream` touches until the sum has run.
    ///
    /// # Errors
    /// [`NcclError`], of this sum or an earlier one; the first one for ever.
    pub unsafe fn all_reduce_sum(
        &self,
        addr: u64,
        bytes: u64,
        stream: *mut c_void,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<Queued, NcclError> {
        let mut state = self.lock();
        let handle = match &*state {
            State::Ready(handle) => handle,
            State::Failed(_, problem) | State::Ended(problem) => return Err(problem.clone()),
        };
        let gives_up = || self.gives_up.load(Ordering::Acquire) || gives_up();
        let deadline = Deadline::after(self.timeouts.queue);
        // SAFETY: the lock keeps others off the communicator; the rest is the caller's promise.
        let queued = unsafe { handle.all_reduce_sum(addr, bytes, stream, deadline, &gives_up) };
        let (queued, problem) = match queued {
            Ok(true) => return Ok(Queued::Yes),
            Ok(false) => (Ok(Queued::GaveUp), ABORTED),
            Err(problem) => (Err(problem.clone()), problem),
        };
        *state = match mem::replace(&mut *state, State::Ended(ABORTED)) {
            State::Ready(handle) => State::Failed(handle, problem),
            other => other,
        };
        queued
    }

    /// Ends the communicator, whatever it is doing; a sum that another thread waits to queue is given up. What is
    /// queued on streams behind its sums runs on, over bytes that were not summed: poison the group first.
    ///
    /// # Errors
    /// [`NcclError`]. Past the deadline the thread that aborts is left to itself, and the communicator may never end.
    pub fn abort(&self) -> Result<(), NcclError> {
        self.gives_up.store(true, Ordering::Release);
        let mut state = self.lock();
        let handle = match mem::replace(&mut *state, State::Ended(ABORTED)) {
            State::Ready(handle) => Some(handle),
            State::Failed(handle, problem) => {
                *state = State::Ended(problem);
                Some(handle)
            }
            State::Ended(problem) => {
                *state = State::Ended(problem);
                None
            }
        };
        drop(state);
        handle.map_or(Ok(()), Handle::abort)
    }
}

impl Drop for Communicator {
    /// Ends the communicator in order where it is ready, and aborts it where it failed.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::Ready(handle) = mem::replace(state, State::Ended(ABORTED)) {
            // Nobody to tell: where it was not ended in order, it was aborted.
            let _ = handle.finish();
        }
    }
}

const ABORTED: NcclError = NcclError::Aborted { call: "ncclAllReduce" };

/// The exchanges of the set-up.
const CAN: &str = "nccl: which ranks can";
const ID: &str = "nccl: the communicator's id";
const STARTED: &str = "nccl: which ranks started";

fn statements(me: Rank, blobs: &[Vec<u8>]) -> Result<Vec<Statement>, BootstrapError> {
    let statement = |(rank, blob): (usize, &Vec<u8>)| {
        let peer = Rank(rank as u32);
        Statement::decode(blob).ok_or(BootstrapError::BadBlob { call: CAN, rank: me, peer })
    };
    blobs.iter().enumerate().map(statement).collect()
}

/// A new id as rank 0 sends it: `0` and the id, or `1` and why there is none.
fn make_id(timeouts: Timeouts) -> Vec<u8> {
    let make = || Library::get().and_then(Library::unique_id);
    let made = bounded("ncclGetUniqueId", Deadline::after(timeouts.setup), make);
    match made.and_then(|id| id) {
        Ok(id) => [&[0][..], &id.0].concat(),
        Err(problem) => [&[1], shortened(&problem.to_string()).as_bytes()].concat(),
    }
}

fn read_id(blob: &[u8]) -> Result<UniqueId, String> {
    match blob {
        [0, id @ ..] if id.len() == UNIQUE_ID_BYTES => {
            let mut bytes = [0; UNIQUE_ID_BYTES];
            bytes.copy_from_slice(id);
            Ok(UniqueId(bytes))
        }
        [1, reason @ ..] => Err(format!("rank 0: {}", String::from_utf8_lossy(reason))),
        _ => Err("rank 0 sent no id of a communicator".to_owned()),
    }
}

/// How the start went: nothing, or `0` and why this rank failed, or `1` and that it waited in vain.
fn say_outcome(problem: Option<&NcclError>) -> Vec<u8> {
    problem.map_or(Vec::new(), |problem| {
        let in_vain = u8::from(matches!(problem, NcclError::Deadline { .. }));
        [&[in_vain], shortened(&problem.to_string()).as_bytes()].concat()
    })
}

/// Whether all started. Of the ranks that did not, one that failed explains more than those that waited for it.
fn read_outcomes(outcomes: &[Vec<u8>]) -> Result<(), String> {
    let failed = outcomes.iter().enumerate().filter_map(|(rank, outcome)| {
        let (&in_vain, reason) = outcome.split_first()?;
        Some((in_vain, rank, reason))
    });
    failed
        .min()
        .map_or(Ok(()), |(_, rank, reason)| Err(format!("rank {rank}: {}", String::from_utf8_lossy(reason))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_travels_whole_and_a_reason_instead_of_it_is_rank_0s() {
        let id = UniqueId([7; UNIQUE_ID_BYTES]);
        assert_eq!(read_id(&[&[0][..], &id.0].concat()), Ok(id));
        assert_eq!(read_id(b"\x01no network"), Err("rank 0: no network".to_owned()));
        for damaged in [&b""[..], &[0; UNIQUE_ID_BYTES], &[0; UNIQUE_ID_BYTES + 2], &[2]] {
            assert!(read_id(damaged).unwrap_err().contains("no id"));
        }
    }

    #[test]
    fn the_rank_that_failed_is_named_before_those_that_waited_for_it() {
        let waited = NcclError::Deadline { call: "start", waited_ms: 5 };
        let late = say_outcome(Some(&waited));
        let failed = say_outcome(Some(&NcclError::NotFound));
        assert_eq!(read_outcomes(&[say_outcome(None), Vec::new()]), Ok(()));
        assert!(
            read_outcomes(&[late.clone(), late.clone(), failed]).unwrap_err().starts_with("rank 2: no lib")
        );
        assert!(
            read_outcomes(&[Vec::new(), late]).unwrap_err().starts_with("rank 1: start: not done after 5")
        );
    }
}
