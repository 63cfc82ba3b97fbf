//! The symmetric counting barrier. The words and who touches them: see [`crate::signal`].
//!
//! What a rank does in epoch `e`, and what may meet it:
//!
//! | step | action | if poisoned | if a peer never comes |
//! |---|---|---|---|
//! | 1 look | load own poison | go to 4 | - |
//! | 2 enter | peer t's word[me] -= 1 (release); own word[t] += 1, all t | - | - |
//! | 3 wait | until own word[t] <= 0 (acquire), all t | go to 4 | at the timeout: go to 4 |
//! | 4 look | load own poison, then the own words | copy the record to `status`, return | poison own and peers' pads, write `status`, return |
//! | 5 pass | `state.epoch = e + 1` | - | - |
//!
//! Steps 1 to 3 are every lane's, for its own peers; then all lanes meet, and lane 0 alone does the rest.
//!
//! A rank that returns without passing leaves the epoch as it was, and everything behind it on the stream looks
//! at the poison word first and does nothing. A peer may have passed `e` validly before the poison reached it:
//! all had arrived then, so what it gathers is complete.

use core::ptr;

use crate::abi::{BarrierParams, BarrierTiming, GroupState};
use crate::arch;
use crate::signal::{self, CAUSE_BARRIER, FAULT_RECORDED, FaultRecord, SignalPad};

/// Polls of a spinning wait between two looks at the clock.
const POLLS_PER_CLOCK: u32 = 32;

/// Runs the barrier. One team in one block; a peer a lane, or two.
///
/// # Safety
/// The addresses in `params` are valid as documented there; no other barrier of this rank runs.
pub(crate) unsafe fn barrier(params: &BarrierParams) {
    // SAFETY: the table has an entry for every rank.
    let pad = unsafe { signal::pad_addr(params.pads, params.rank) };
    let poison = signal::poison_addr(pad);
    let entered_ns = arch::now_ns();
    // Poison may come while the lanes look, so one may see it and another not. Whoever sees it enters nothing, but
    // comes to `sync_lanes` all the same: what one lane saw before that, lane 0 sees after it.
    // SAFETY: this rank's own pad.
    let saw_all = if unsafe { signal::is_poisoned(poison) } {
        false
    } else {
        // SAFETY: the pads are valid, and this rank is in no other barrier.
        unsafe { enter(params, pad) };
        // SAFETY: as above.
        unsafe { wait(params, pad, entered_ns) }
    };
    let gave_up = arch::team_any(!saw_all);
    arch::sync_lanes();
    if arch::lane() == 0 {
        // SAFETY: as above; every lane has ended its wait.
        unsafe { judge(params, pad, entered_ns, gave_up) };
    }
}

/// Steps 4 and 5, or what happens instead of them. `gave_up`: some lane did not see all its peers.
unsafe fn judge(params: &BarrierParams, pad: u64, entered_ns: u64, gave_up: bool) {
    let poison = signal::poison_addr(pad);
    // SAFETY: this rank's own pad.
    if unsafe { signal::is_poisoned(poison) } {
        // SAFETY: `status` is valid as required.
        return unsafe { signal::report(poison, params.status) };
    }
    // Who was seen once has arrived: only where somebody was not, all words are looked at.
    // SAFETY: as above.
    let missing = if gave_up { unsafe { missing_peers(params, pad) } } else { 0 };
    let state = ptr::with_exposed_provenance_mut::<GroupState>(params.state as usize);
    if missing == 0 {
        let left_ns = arch::now_ns();
        if params.timing != 0 {
            let timing = ptr::with_exposed_provenance_mut::<BarrierTiming>(params.timing as usize);
            // SAFETY: `timing` is valid as required.
            unsafe { timing.write(BarrierTiming { entered_ns, left_ns }) };
        }
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
        elapsed_ns: arch::now_ns().saturating_sub(entered_ns),
        tag: params.tag,
        cause: CAUSE_BARRIER,
    };
    // The own pad and the own host first: a dead peer's memory may be gone, and what touches it fails the kernel.
    // SAFETY: the own record.
    unsafe { signal::raise_fault(poison, record) };
    // What stands in the own pad is what counts: another rank may have written there first.
    // SAFETY: `status` is valid as required.
    unsafe { signal::report(poison, params.status) };
    // SAFETY: the pads are valid.
    unsafe { signal::raise_on_all(params.pads, params.rank, params.num_ranks, record) };
}

/// Step 2.
unsafe fn enter(params: &BarrierParams, pad: u64) {
    let mut peer = arch::lane();
    while peer < params.num_ranks {
        if peer != params.rank {
            // SAFETY: the table has an entry for every rank.
            let peer_pad = unsafe { signal::pad_addr(params.pads, peer) };
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

/// Step 3: until this lane's peers have arrived, the group is poisoned, or the time is over. Whether they have.
unsafe fn wait(params: &BarrierParams, pad: u64, started_ns: u64) -> bool {
    let mut num_polls = 0;
    let mut peer = arch::lane();
    while peer < params.num_ranks {
        // Acquire: pairs with the release in the peer's `enter`.
        // SAFETY: a word of this rank's own pad. The own word stays 0.
        while unsafe { arch::load_acquire_sys(word(pad, peer)) } > 0 {
            // SAFETY: this rank's own pad.
            if unsafe { signal::is_poisoned(signal::poison_addr(pad)) } {
                return false;
            }
            // The clock costs more than a poll: while spinning it is read now and then.
            let reads_clock = num_polls >= params.num_spins || num_polls.is_multiple_of(POLLS_PER_CLOCK);
            if reads_clock && arch::now_ns().saturating_sub(started_ns) >= params.timeout_ns {
                return false;
            }
            arch::pause(num_polls, params.num_spins);
            num_polls = num_polls.saturating_add(1);
        }
        peer += arch::num_lanes();
    }
    true
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

/// Word `peer` of the pad at `pad`.
fn word(pad: u64, peer: u32) -> *mut i32 {
    let offset = core::mem::offset_of!(SignalPad, words) + peer as usize * size_of::<i32>();
    ptr::with_exposed_provenance_mut(pad as usize + offset)
}
