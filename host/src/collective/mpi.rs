//! The sum-all-reduce of processes: MPI's own, which is also a baseline of the benchmarks.
//!
//! MPI's collectives block, and have no deadline: a rank that does not come keeps the others waiting. What reports it
//! is the deadline of the host's `Stream::synchronize`, which names this call as the one that runs; the process
//! must then leave with `leave_without_finalize`. While such a call runs it holds the turn with MPI, and
//! an exchange of the bootstrap says that MPI is busy at its own deadline.
//!
//! **Sums that overflow a byte are not the same everywhere.** MPI leaves them open; Open MPI's vectorised sum of
//! small integers stops at the largest value where its scalar one wraps (open-mpi/ompi issue 8045, closed as
//! "won't fix"). Compose is not touched by it: its bytes have one producer, so a sum never exceeds a byte.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use cpkv_kernels::now_ns;
use mpi::ffi;

use super::{Collective, CollectiveError, HostReduce};
use crate::deadline::Deadline;
use crate::device::{DeviceBuffer, DeviceError, Stream};
use crate::group::PoisonGate;
use crate::group::mpi::{LOCK_TIMEOUT, MpiError, MpiTurn, MpiWorld, check, in_place};
use crate::units::Rank;

/// The call's name, in errors and reports.
const CALL: &str = "MPI_Allreduce";

/// What one call reduces, in bytes: MPI counts in signed 32-bit numbers.
const PIECE_BYTES: u64 = 1 << 30;

/// What one call reduces where the library's value of `MPI_IN_PLACE` is not known, in bytes: through a copy.
const COPIED_PIECE_BYTES: u64 = 4 << 20;

/// An all-reduce among the processes of an MPI world, over memory that the host can address.
#[derive(Clone)]
pub struct MpiCollective {
    world: Arc<MpiWorld>,
}

impl MpiCollective {
    /// The collective of the processes of `world`.
    pub fn new(world: Arc<MpiWorld>) -> Self {
        Self { world }
    }
}

impl Collective for MpiCollective {
    fn name(&self) -> &'static str {
        "mpi"
    }

    /// The queued work fails with [`DeviceError::HostCall`] and MPI's code. Exact where every byte is non-zero
    /// on one rank at most; other sums may stop at 255 instead of wrapping.
    unsafe fn all_reduce_sum(
        &self,
        stream: &dyn Stream,
        buffer: &DeviceBuffer,
        gate: &PoisonGate,
    ) -> Result<(), CollectiveError> {
        let (reduce, mine, gate) = (self.clone(), buffer.clone(), gate.clone());
        let call = move || match gate.is_poisoned() {
            true => Ok(()),
            // SAFETY: that the host reaches the buffer and nothing else touches it is the caller's promise.
            false => unsafe { reduce.sum(&mine) },
        };
        stream
            .host_call(CALL, Box::new(call))
            .map_err(|source| CollectiveError::Stream { bytes: buffer.bytes(), source })
    }
}

/// For [`StagedCollective`](super::StagedCollective): the host's part alone.
impl HostReduce for MpiCollective {
    fn name(&self) -> &'static str {
        "mpi, through host memory"
    }

    fn call(&self) -> &'static str {
        CALL
    }

    fn rank(&self) -> Rank {
        self.world.rank()
    }

    unsafe fn sum(&self, buffer: &DeviceBuffer) -> Result<(), DeviceError> {
        // SAFETY: `buffer` keeps its memory alive, and the caller keeps everybody else off it.
        let outcome = unsafe { all_reduce_bytes(&self.world, buffer.addr(), buffer.bytes()) };
        let rank = self.world.rank().0;
        outcome.map_err(|error| match error {
            MpiError::Call { function, code } => {
                DeviceError::HostCall { call: function, code: i64::from(code), rank }
            }
            _ => DeviceError::HostCall { call: "turn with MPI", code: EBUSY, rank },
        })
    }
}

/// The system's code of a busy resource.
const EBUSY: i64 = 16;

/// Sums `bytes` bytes at `addr` over all ranks, in place.
///
/// # Safety
/// The range is readable and writable memory of this process that nobody else touches during the call.
unsafe fn all_reduce_bytes(world: &MpiWorld, addr: u64, bytes: u64) -> Result<(), MpiError> {
    let in_place = in_place();
    let piece_bytes = if in_place.is_some() { PIECE_BYTES } else { COPIED_PIECE_BYTES };
    for start in (0..bytes).step_by(piece_bytes as usize) {
        let count = piece_bytes.min(bytes - start) as c_int;
        let piece = ptr::with_exposed_provenance_mut::<u8>((addr + start) as usize);
        let turn = turn(world)?;
        if let Some(in_place) = in_place {
            // SAFETY: the piece lies in the range, which the caller gives to this call alone.
            unsafe { all_reduce_piece(&turn, in_place, piece, count) }?;
        } else {
            // SAFETY: as above; the copy ends before the piece is written.
            let copy = unsafe { std::slice::from_raw_parts(piece, count as usize) }.to_vec();
            // SAFETY: as above; the copy lives until the call is over and is not the piece.
            unsafe { all_reduce_piece(&turn, copy.as_ptr().cast(), piece, count) }?;
        }
    }
    Ok(())
}

/// # Safety
/// `piece` is `count` bytes that nobody else touches during the call; `send` is `count` other readable bytes,
/// or `MPI_IN_PLACE`.
unsafe fn all_reduce_piece(
    turn: &MpiTurn<'_>,
    send: *const c_void,
    piece: *mut u8,
    count: c_int,
) -> Result<(), MpiError> {
    // SAFETY: constants of the MPI library, never written after it is loaded.
    let (byte, sum) = unsafe { (ffi::RSMPI_UINT8_T, ffi::RSMPI_SUM) };
    // SAFETY: the buffers are the caller's; the turn makes this the only MPI call.
    check(CALL, unsafe { ffi::MPI_Allreduce(send, piece.cast(), count, byte, sum, turn.comm()) })
}

fn turn(world: &MpiWorld) -> Result<MpiTurn<'_>, MpiError> {
    let deadline = Deadline::after(LOCK_TIMEOUT);
    world.turn(deadline).ok_or_else(|| MpiError::Busy { waited_ms: deadline.waited_ms() })
}

/// A baseline: `MPI_Allgatherv` of bytes. Rank r's `send` lands at `recv[displs[r]..][..counts[r]]` of every rank.
/// Blocks, without a deadline, until all ranks have called it.
///
/// # Errors
/// [`MpiError`]; [`MpiError::Layout`] where counts and offsets do not fit, before anything is sent.
pub fn allgatherv_bytes(
    world: &MpiWorld,
    send: &[u8],
    recv: &mut [u8],
    counts: &[i32],
    displs: &[i32],
) -> Result<(), MpiError> {
    const FUNCTION: &str = "MPI_Allgatherv";
    let num_ranks = world.size().get();
    let fits = |(&count, &displ): (&i32, &i32)| {
        let (count, displ) = (usize::try_from(count).ok()?, usize::try_from(displ).ok()?);
        recv.get(displ..displ.checked_add(count)?).map(drop)
    };
    let right_lengths = counts.len() == world.size().len() && displs.len() == counts.len();
    let send_count = c_int::try_from(send.len()).ok();
    if !right_lengths
        || counts.iter().zip(displs).map(fits).any(|fit| fit.is_none())
        || send_count != counts.get(world.rank().idx()).copied()
    {
        return Err(MpiError::Layout { function: FUNCTION, num_ranks, buffer_bytes: recv.len() });
    }
    let turn = turn(world)?;
    // SAFETY: a constant of the MPI library, never written after it is loaded.
    let byte = unsafe { ffi::RSMPI_UINT8_T };
    // SAFETY: `send` has the count of this rank, every range of `recv` lies inside it (checked above), there is
    // one count and one offset for each rank, and the turn makes this the only MPI call.
    let code = unsafe {
        ffi::MPI_Allgatherv(
            send.as_ptr().cast(),
            send.len() as c_int,
            byte,
            recv.as_mut_ptr().cast(),
            counts.as_ptr(),
            displs.as_ptr(),
            byte,
            turn.comm(),
        )
    };
    check(FUNCTION, code)
}

/// A baseline: passes `num_barriers` times `MPI_Barrier` and returns how long each took on this rank, in nanoseconds.
/// Blocks, without a deadline, until all ranks have called it.
///
/// # Errors
/// [`MpiError`].
pub fn time_barriers(world: &MpiWorld, num_barriers: u32) -> Result<Vec<u64>, MpiError> {
    let turn = turn(world)?;
    let timed = (0..num_barriers).map(|_| {
        let entered_ns = now_ns();
        // SAFETY: the communicator is the library's own; the turn makes this the only MPI call.
        check("MPI_Barrier", unsafe { ffi::MPI_Barrier(turn.comm()) })?;
        Ok(now_ns() - entered_ns)
    });
    timed.collect()
}

/// A baseline: `MPI_Allreduce` of bytes (their sum), in place; exact where every byte is non-zero on one rank at
/// most. Blocks, without a deadline, until all ranks have called it with as many bytes.
///
/// # Errors
/// [`MpiError`].
pub fn allreduce_bytes(world: &MpiWorld, bytes: &mut [u8]) -> Result<(), MpiError> {
    let addr = bytes.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: the slice is borrowed to this call alone.
    unsafe { all_reduce_bytes(world, addr, bytes.len() as u64) }
}
