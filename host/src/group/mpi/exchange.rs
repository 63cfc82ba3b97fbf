//! One exchange among the processes: a message to and from every peer, polled until the deadline.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use mpi::ffi;

use super::error::{MpiError, check};
use super::world::{MpiTurn, MpiWorld};
use crate::deadline::Deadline;
use crate::group::bootstrap::{BootstrapError, MAX_BLOB_BYTES};
use crate::group::frame::{MAX_OVERHEAD_BYTES, Position};
use crate::group::turn::Turn;
use crate::units::{GroupSize, Rank, RankSet};

/// The one tag in use: messages of one sender arrive in the order they were sent.
const TAG: c_int = 0x0c9;

/// Polls before the first sleep: an exchange among ranks that run takes microseconds.
const NUM_SPINS: u32 = 64;

/// The longest sleep between two polls: many ranks may share few cores.
const MAX_SLEEP: Duration = Duration::from_micros(500);

/// The exchanges of one world: one at a time, counted, and none after a failed one.
#[derive(Default)]
pub(super) struct Exchanges {
    pub(super) turn: Turn,
    pub(super) progress: Mutex<Progress>,
}

#[derive(Default)]
pub(super) struct Progress {
    pub(super) num_exchanges: u64,
    pub(super) failed: Option<BootstrapError>,
}

impl Exchanges {
    /// How many exchanges have been started.
    pub(super) fn num_exchanges(&self) -> u64 {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).num_exchanges
    }
}

/// A message on its way, and the buffer MPI reads or writes meanwhile.
///
/// MPI may touch the buffer until the request is complete, so only a complete message frees it. One that is
/// dropped before - after the deadline, or in a panic - leaks its buffer and its request on purpose: cancelling
/// would need the peer that does not answer.
struct Message {
    peer: Rank,
    request: ffi::MPI_Request,
    buffer: ManuallyDrop<Vec<u8>>,
    is_receive: bool,
    is_done: bool,
}

/// The frames of all ranks, by rank; `mine` at this rank's place.
pub(super) fn all_gather(
    world: &MpiWorld,
    position: Position,
    mine: Vec<u8>,
    deadline: Deadline,
) -> Result<Vec<Vec<u8>>, BootstrapError> {
    let (call, rank) = (position.call, position.rank);
    let busy = || BootstrapError::Busy { call, rank, waited_ms: deadline.waited_ms() };
    let foreign = |error: MpiError| match error {
        MpiError::Call { function, code } => {
            BootstrapError::Foreign { call, function, rank, code: i64::from(code) }
        }
        _ => busy(),
    };
    let (mut receives, mut sends) = {
        let turn = world.turn(deadline).ok_or_else(busy)?;
        post(&turn, world.size(), rank, &mine).map_err(foreign)?
    };
    let mut num_polls = 0;
    let mut had_turn = true;
    while receives.iter().chain(&sends).any(|message| !message.is_done) {
        if deadline.expired() && num_polls > 0 {
            if !had_turn {
                return Err(busy());
            }
            let open = receives.iter().chain(&sends).filter(|message| !message.is_done);
            let missing: RankSet = open.map(|message| message.peer).collect();
            return Err(BootstrapError::Missing { call, rank, missing, waited_ms: deadline.waited_ms() });
        }
        back_off(num_polls, deadline);
        num_polls += 1;
        let Some(turn) = world.turn(deadline) else {
            had_turn = false;
            continue;
        };
        had_turn = true;
        for message in receives.iter_mut().chain(&mut sends) {
            message.poll(&turn).map_err(foreign)?;
        }
    }
    let mut frames: Vec<Vec<u8>> = receives.into_iter().map(Message::into_buffer).collect();
    sends.into_iter().for_each(|message| drop(message.into_buffer()));
    frames.insert(rank.idx(), mine);
    Ok(frames)
}

/// First spins, giving the core away; then sleeps, longer and longer.
fn back_off(num_polls: u32, deadline: Deadline) {
    match num_polls {
        0 => {}
        1..NUM_SPINS => thread::yield_now(),
        _ => {
            let sleep = Duration::from_micros(20 + 10 * u64::from(num_polls - NUM_SPINS));
            thread::sleep(sleep.min(MAX_SLEEP).min(deadline.remaining()));
        }
    }
}

/// Starts one receive from and one send to every peer.
fn post(
    turn: &MpiTurn<'_>,
    size: GroupSize,
    me: Rank,
    mine: &[u8],
) -> Result<(Vec<Message>, Vec<Message>), MpiError> {
    let mut receives = Vec::with_capacity(size.len());
    for peer in size.peers(me) {
        receives.push(Message::receive(turn, peer)?);
    }
    let mut sends = Vec::with_capacity(size.len());
    for peer in size.peers(me) {
        sends.push(Message::send(turn, peer, mine.to_vec())?);
    }
    Ok((receives, sends))
}

/// The datatype of one byte.
fn byte() -> ffi::MPI_Datatype {
    // SAFETY: a constant of the MPI library, never written after it is loaded.
    unsafe { ffi::RSMPI_UINT8_T }
}

impl Message {
    fn idle(peer: Rank, buffer: Vec<u8>, is_receive: bool) -> Self {
        // SAFETY: a constant of the MPI library, never written after it is loaded.
        let request = unsafe { ffi::RSMPI_REQUEST_NULL };
        Self { peer, request, buffer: ManuallyDrop::new(buffer), is_receive, is_done: false }
    }

    fn receive(turn: &MpiTurn<'_>, peer: Rank) -> Result<Self, MpiError> {
        let mut message = Self::idle(peer, vec![0; MAX_OVERHEAD_BYTES + MAX_BLOB_BYTES], true);
        let (buffer, count) = (message.buffer.as_mut_ptr().cast::<c_void>(), message.buffer.len() as c_int);
        // SAFETY: the buffer holds `count` bytes, is touched by nobody and freed only once the request is done;
        // the turn makes this the only MPI call.
        let code = unsafe {
            ffi::MPI_Irecv(buffer, count, byte(), peer.0 as c_int, TAG, turn.comm(), &mut message.request)
        };
        check("MPI_Irecv", code).map(|()| message)
    }

    fn send(turn: &MpiTurn<'_>, peer: Rank, frame: Vec<u8>) -> Result<Self, MpiError> {
        let mut message = Self::idle(peer, frame, false);
        let (buffer, count) = (message.buffer.as_ptr().cast::<c_void>(), message.buffer.len() as c_int);
        // SAFETY: the buffer holds `count` bytes, is written by nobody and freed only once the request is done;
        // the turn makes this the only MPI call.
        let code = unsafe {
            ffi::MPI_Isend(buffer, count, byte(), peer.0 as c_int, TAG, turn.comm(), &mut message.request)
        };
        check("MPI_Isend", code).map(|()| message)
    }

    /// Looks whether the message has gone through; cuts a received buffer to its length.
    fn poll(&mut self, _turn: &MpiTurn<'_>) -> Result<(), MpiError> {
        if self.is_done {
            return Ok(());
        }
        let mut is_done = 0;
        // SAFETY: `MPI_Status` is a plain C structure of integers: any bytes are a value.
        let mut status: ffi::MPI_Status = unsafe { std::mem::zeroed() };
        // SAFETY: the request was started by this message and is not complete; flag and status outlive the call;
        // the turn makes this the only MPI call.
        let code = unsafe { ffi::MPI_Test(&mut self.request, &mut is_done, &mut status) };
        check("MPI_Test", code)?;
        if is_done == 0 {
            return Ok(());
        }
        self.is_done = true;
        if self.is_receive {
            let mut num_bytes = 0;
            // SAFETY: the status was filled by the call above; the result outlives this one.
            let code = unsafe { ffi::MPI_Get_count(&status, byte(), &mut num_bytes) };
            check("MPI_Get_count", code)?;
            self.buffer.truncate(usize::try_from(num_bytes).unwrap_or(0));
        }
        Ok(())
    }

    /// The buffer of a message that is done.
    fn into_buffer(mut self) -> Vec<u8> {
        debug_assert!(self.is_done, "MPI still has the buffer");
        std::mem::take(&mut *self.buffer)
    }
}
