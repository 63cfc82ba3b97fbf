//! The symmetric counting barrier. The words and who touches them: see [`crate::signal`].
//!
//! What a rank does in epoch `e`, and what may meet it:
//!
//! | step | action | if poisoned | if a peer never comes |
//! |---|---|---|---|
//! | 1 look | load own poison | copy the record to `status`, return | - |
//! | 2 enter | peer t's word[me] -= 1 (release); own word[t] += 1, all t | - | - |
//! | 3 wait | until own word[t] <= 0 (acquire), all t | as 1 | at the timeout: poison own and peers' pads, write `status`, return |
//! | 4 look | load own poison | as 1 | - |
//! | 5 pass | `state.epoch = e + 1` | - | - |
//!
//! A rank that returns without passing leaves the epoch as it was, and everything behind it on the stream looks
//! at the poison word first and does nothing. A peer may have passed `e` validly before the poison reached it:
//! all had arrived then, so what it gathers is complete.

use core::ptr;

use crate::abi::{BarrierParams, GroupState};
use crate::arch;
use crate::signal::{self, CAUSE_BARRIER, FAULT_RECORDED, FaultRecord, SignalPad};

/// Polls of a spinning wait between two looks at the clock.
const POLLS_PER_CLOCK: u32 = 32;

/// Runs the barrier. One lane a peer.
///
/// # Safety
/// The addresses in `params` are valid as documented there; no other barrier of this rank runs.
pub(crate) unsafe fn barrier(params: &BarrierParams) {
    // SAFETY: the table has an entry for every rank.
    let pad = unsafe { pad_addr(params, params.rank) };
    let poison = signal::poison_addr(pad);
    // SAFETY: this rank's own pad.
    if unsafe { signal::is_poisoned(poison) } {
        // SAFETY: `status` is valid as required.
        return unsafe { report_poison(params, poison) };
    }
    // SAFETY: the pads are valid, and this rank is in no other barrier.
    unsafe { enter(params, pad) };
    let started_ns = arch::now_ns();
    // SAFETY: as above.
    unsafe { wait(params, pad, started_ns) };
    arch::sync_lanes();
    if arch::lane() != 0 {
        return;
    }
    // SAFETY: this rank's own pad.
    if unsafe { signal::is_poisoned(poison) } {
        // SAFETY: `status` is valid as required.
        return unsafe { report_poison(params, poison) };
    }
    // SAFETY: as above.
    let missing = unsafe { missing_peers(params, pad) };
    let state = ptr::with_exposed_provenance_mut::<GroupState>(params.state as usize);
    if missing == 0 {
        // SAFETY: this rank's own state, which only its barrier writes.
        return unsafe { (*state).epoch += 1 };
    }
    // SAFETY: as above.
    let epoch = unsafe { (*state).epoch };
    let record = FaultRecord {
        word: FAULT_RECORDED,
        by_rank: params.rank,
        missing,
        epoch,
        elapsed_ns: arch::now_ns() - started_ns,
        tag: params.tag,
        cause: CAUSE_BARRIER,
    };
    // SAFETY: the pads are valid.
    unsafe { poison_group(params, record) };
    // SAFETY: `status` is valid as required. What stands in the own pad is what counts: another rank may have
    // written there first.
    unsafe { report_poison(params, poison) };
}

/// Step 2.
unsafe fn enter(params: &BarrierParams, pad: u64) {
    let mut peer = arch::lane();
    while peer < params.num_ranks {
        if peer != params.rank {
            // SAFETY: the table has an entry for every rank.
            let peer_pad = unsafe { pad_addr(params, peer) };
            // The peer's word first: it is what the peer waits for. Release: pairs with the acquire in its `wait`.
            // SAFETY: this rank's word in the peer's pad.
            unsafe { arch::add_release_sys(word(peer_pad, params.rank), -1) };
            // Relaxed: the reader is this rank. Where the peer's -1 came first, this read-modify-write continues its
            // release sequence, so the load in `wait` still acquires what the peer released.
            // SAFETY: a word of this rank's own pad.
            unsafe { arch::add_relaxed_sys(word(pad, peer), 1) };
        }
        peer += arch::num_lanes();
    }
}

/// Step 3: until this lane's peers have arrived, the group is poisoned, or the time is over.
unsafe fn wait(params: &BarrierParams, pad: u64, started_ns: u64) {
    let mut num_polls = 0;
    let mut peer = arch::lane();
    while peer < params.num_ranks {
        // Acquire: pairs with the release in the peer's `enter`.
        // SAFETY: a word of this rank's own pad. The own word stays 0.
        while unsafe { arch::load_acquire_sys(word(pad, peer)) } > 0 {
            // SAFETY: this rank's own pad.
            if unsafe { signal::is_poisoned(signal::poison_addr(pad)) } {
                return;
            }
            // The clock costs more than a poll: while spinning it is read now and then.
            let reads_clock = num_polls >= params.num_spins || num_polls.is_multiple_of(POLLS_PER_CLOCK);
            if reads_clock && arch::now_ns() - started_ns >= params.timeout_ns {
                return;
            }
            arch::pause(num_polls, params.num_spins);
            num_polls = num_polls.saturating_add(1);
        }
        peer += arch::num_lanes();
    }
}

/// The peers that have not arrived, as a mask. Looks at all of them at one time, after the wait: a peer that came
/// at the last moment is not blamed, and if all did, the barrier is passed.
unsafe fn missing_peers(params: &BarrierParams, pad: u64) -> u64 {
    let mut missing = 0;
    for peer in 0..params.num_ranks {
        // Acquire: pairs with the release in the peer's `enter`.
        // SAFETY: a word of this rank's own pad.
        if unsafe { arch::load_acquire_sys(word(pad, peer)) } > 0 {
            missing |= 1 << peer;
        }
    }
    missing
}

/// Poisons every rank's pad, this rank's first.
unsafe fn poison_group(params: &BarrierParams, record: FaultRecord) {
    for step in 0..params.num_ranks {
        let rank = (params.rank + step) % params.num_ranks;
        // SAFETY: the table has an entry for every rank.
        let pad = unsafe { pad_addr(params, rank) };
        // SAFETY: a record in that rank's pad.
        unsafe { signal::raise_fault(signal::poison_addr(pad), record) };
    }
}

/// Copies the record that stands in the own pad to where the host reads it. One that is still being written is left
/// there: the host finds it in the pad.
unsafe fn report_poison(params: &BarrierParams, poison: u64) {
    if arch::lane() != 0 {
        return;
    }
    // SAFETY: this rank's own record.
    match unsafe { signal::read_fault(poison) } {
        // SAFETY: `status` is a record.
        Some(record) if record.word == FAULT_RECORDED => unsafe {
            signal::raise_fault(params.status, record)
        },
        _ => {}
    }
}

/// Entry `rank` of the table of pads.
unsafe fn pad_addr(params: &BarrierParams, rank: u32) -> u64 {
    let table = ptr::with_exposed_provenance::<u64>(params.pads as usize);
    // SAFETY: `rank` is below the table's length.
    let entry = unsafe { table.add(rank as usize) };
    // SAFETY: inside the table.
    unsafe { entry.read() }
}

/// Word `peer` of the pad at `pad`.
fn word(pad: u64, peer: u32) -> *mut i32 {
    let offset = core::mem::offset_of!(SignalPad, words) + peer as usize * size_of::<i32>();
    ptr::with_exposed_provenance_mut(pad as usize + offset)
}
