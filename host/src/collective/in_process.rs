//! The sum-all-reduce of ranks that are threads of one process: through each other's pointers.

use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::{Collective, CollectiveError};
use crate::deadline::Deadline;
use crate::device::{DeviceBuffer, DeviceError, Stream};
use crate::group::PoisonGate;
use crate::group::rendezvous::{Failure, Seat};
use crate::units::{GroupSize, Rank};

/// The call's name, in errors and reports.
const CALL: &str = "in-process all-reduce";

/// What is summed at a time, in bytes: the block of every rank of a group of 8 stays in a core's cache.
const BLOCK_BYTES: usize = 16 << 10;

/// The share of a rank is a multiple of this, in bytes, so that no two ranks write the same cache line.
const LINE_BYTES: u64 = 128;

/// An all-reduce among the threads of one process, over memory that the host can address.
///
/// Three steps, each wait with a deadline: all ranks meet and show their buffers; rank r sums its share (the r-th
/// of as many equal shares as there are ranks) block by block over all buffers and writes the sum into all of
/// them; all ranks meet again. Only rank r touches anybody's r-th share in between, so every byte is read once
/// and written once. A rank that gives up leaves its buffer alive as long as a peer may still be at it; it must
/// not touch the buffer itself any more, which a failed stream does not.
#[derive(Debug)]
pub struct InProcessCollective {
    seat: Arc<Seat<Option<DeviceBuffer>>>,
    timeout: Duration,
}

impl InProcessCollective {
    /// The collectives of a group of `size` threads, by rank; each wait of a call lasts `timeout` at most.
    pub fn group(size: GroupSize, timeout: Duration) -> Vec<Self> {
        Seat::group(size).into_iter().map(|seat| Self { seat: Arc::new(seat), timeout }).collect()
    }
}

impl Collective for InProcessCollective {
    fn name(&self) -> &'static str {
        "in-process"
    }

    /// The queued work fails with [`DeviceError::CollectiveTimeout`], and for good, where a rank does not come;
    /// with [`DeviceError::CollectiveMismatch`] where the ranks' buffers differ in size or share memory.
    unsafe fn all_reduce_sum(
        &self,
        stream: &dyn Stream,
        buffer: &DeviceBuffer,
        gate: &PoisonGate,
    ) -> Result<(), CollectiveError> {
        let (seat, mine, timeout) = (Arc::clone(&self.seat), buffer.clone(), self.timeout);
        let gate = gate.clone();
        let call = move || match gate.is_poisoned() {
            true => Ok(()),
            false => all_reduce(&seat, mine, timeout),
        };
        stream
            .host_call(CALL, Box::new(call))
            .map_err(|source| CollectiveError::Stream { bytes: buffer.bytes(), source })
    }
}

fn all_reduce(
    seat: &Seat<Option<DeviceBuffer>>,
    mine: DeviceBuffer,
    timeout: Duration,
) -> Result<(), DeviceError> {
    let me = seat.rank();
    let shown = seat
        .exchange("show buffers", Some(mine), Deadline::after(timeout))
        .map_err(|failure| device_error(failure, me))?;
    let buffers: Vec<&DeviceBuffer> = shown.iter().flatten().collect();
    check(me, &buffers)?;
    let bytes = buffers[me.idx()].bytes();
    let share = share_of(me, seat.group_size(), bytes);
    let addrs: Vec<u64> = buffers.iter().map(|buffer| buffer.addr() + share.start).collect();
    // SAFETY: `shown` keeps every buffer alive; all have `bytes` bytes and share none (checked), and the share
    // lies inside. Every rank has shown its buffer, so it is inside this call until the second meeting, and there
    // only this rank touches the share.
    unsafe { sum_into_all(&addrs, me.idx(), (share.end - share.start) as usize) };
    seat.exchange("leave buffers", None, Deadline::after(timeout))
        .map_err(|failure| device_error(failure, me))
        .map(drop)
}

/// The failure as rank `me` reports it.
pub(super) fn device_error(failure: Failure, me: Rank) -> DeviceError {
    match failure {
        Failure::Missing { rank, missing, waited_ms, .. } => {
            DeviceError::CollectiveTimeout { call: CALL, rank: rank.0, waited_ms, missing }
        }
        // The calls of this file: all ranks show or all leave, unless one of two streams overtakes the other.
        Failure::Diverged { .. } => DeviceError::HostCall { call: CALL, code: EINVAL, rank: me.0 },
        Failure::Busy { waited_ms } => {
            let missing = [me].into_iter().collect();
            DeviceError::CollectiveTimeout { call: CALL, rank: me.0, waited_ms, missing }
        }
    }
}

/// The system's code of an invalid argument.
const EINVAL: i64 = 22;

/// All buffers have one size and share no byte. The same answer on every rank, so all go on or none.
pub(super) fn check(me: Rank, buffers: &[&DeviceBuffer]) -> Result<(), DeviceError> {
    let bytes = buffers[me.idx()].bytes();
    let apart = |a: &DeviceBuffer, b: &DeviceBuffer| a.addr().abs_diff(b.addr()) >= bytes;
    for (peer, buffer) in buffers.iter().enumerate() {
        // Sizes first, so that every rank finds a difference in size before a shared byte.
        if buffer.bytes() != bytes {
            let (rank, peer, peer_bytes) = (me.0, peer as u32, buffer.bytes());
            return Err(DeviceError::CollectiveMismatch { call: CALL, rank, bytes, peer, peer_bytes });
        }
    }
    for (second, buffer) in buffers.iter().enumerate() {
        if buffers[..second].iter().any(|first| !apart(first, buffer)) {
            let peer = second as u32;
            return Err(DeviceError::CollectiveMismatch {
                call: CALL,
                rank: me.0,
                bytes,
                peer,
                peer_bytes: bytes,
            });
        }
    }
    Ok(())
}

/// The bytes that `rank` sums: equal shares of whole lines, the last ones shorter or empty.
fn share_of(rank: Rank, size: GroupSize, bytes: u64) -> Range<u64> {
    let share_bytes = bytes.div_ceil(LINE_BYTES).div_ceil(u64::from(size.get())) * LINE_BYTES;
    let start = (share_bytes * u64::from(rank.0)).min(bytes);
    start..(start + share_bytes).min(bytes)
}

/// Writes the byte-wise wrapping sum of the ranges of `len` bytes at `addrs` into each of them.
///
/// # Safety
/// Each range is readable and writable memory of this process, no two share a byte, `me < addrs.len()`, and
/// nobody else touches any of them during the call.
unsafe fn sum_into_all(addrs: &[u64], me: usize, len: usize) {
    for start in (0..len).step_by(BLOCK_BYTES) {
        let block_bytes = BLOCK_BYTES.min(len - start);
        let block = |addr: u64| ptr::with_exposed_provenance_mut::<u8>(addr as usize + start);
        // SAFETY: inside this rank's range, which the caller gives to this call alone.
        let sum = unsafe { std::slice::from_raw_parts_mut(block(addrs[me]), block_bytes) };
        let peers = || addrs.iter().enumerate().filter(|&(rank, _)| rank != me).map(|(_, &addr)| block(addr));
        for peer in peers() {
            // SAFETY: inside the peer's range, which the caller gives to this call alone and which is not `sum`.
            let addend = unsafe { std::slice::from_raw_parts(peer, block_bytes) };
            for (sum, addend) in sum.iter_mut().zip(addend) {
                *sum = sum.wrapping_add(*addend);
            }
        }
        for peer in peers() {
            // SAFETY: as above; the slice of the loop before has ended.
            unsafe { ptr::copy_nonoverlapping(sum.as_ptr(), peer, block_bytes) };
        }
    }
}

#[cfg(test)]
#[path = "in_process_tests.rs"]
mod tests;
