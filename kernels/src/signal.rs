//! Signal words and poison, as they lie in symmetric memory.
//!
//! | word | writer | reader | order | at rest | reset |
//! |---|---|---|---|---|---|
//! | `words[t]` of rank me | t: -1 on entering; me: +1 on entering | me | t's -1 release.sys, my load acquire.sys; my +1 relaxed | 0; -1, for a moment -2, while t is ahead | never: both adds cancel |
//! | `fault.word` of rank me | any rank that gives up: 0 -> 1 (claims the record) -> 2 (record complete) | me, every kernel and the host | claim relaxed.sys; store release.sys, load acquire.sys | 0 | never: a poisoned pad is not used again |
//! | `fault` fields | the claimer, between 1 and 2 | whoever read 2 | ordered by `word` | 0 | never |
//! | `status` (rank-local, host-readable) | the own barrier and poison kernels, from the own pad's record | the own host | as `fault.word` | 0 | never |
//! | `GroupState.epoch` (rank-local) | the own barrier, on passing | fill and gather behind it on the stream | stream order | count of barriers passed | never |
//!
use core::ptr;

use crate::arch;

/// Ranks a pad has words for.
pub const MAX_RANKS: usize = 64;

/// No fault.
pub const FAULT_NONE: u32 = 0;
/// Some rank is writing the record.
pub const FAULT_CLAIMED: u32 = 1;
/// The record can be read.
pub const FAULT_RECORDED: u32 = 2;

/// A barrier's timeout.
pub const CAUSE_BARRIER: u32 = 1;
/// A host that gave up waiting for its stream.
pub const CAUSE_HOST: u32 = 2;
/// A host that gave up waiting for the other ranks' part of an exchange.
pub const CAUSE_EXCHANGE: u32 = 3;
/// A stream that failed.
pub const CAUSE_STREAM: u32 = 4;
/// Somebody claimed the record and never wrote it.
pub const CAUSE_UNRECORDED: u32 = 5;

/// How long a record that is being written is waited for, in nanoseconds.
const RECORD_WAIT_NS: u64 = 100_000_000;

/// Who gave up, when, and for whom it waited.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRecord {
    /// [`FAULT_NONE`], [`FAULT_CLAIMED`] or [`FAULT_RECORDED`].
    pub word: u32,
    /// The rank that gave up first.
    pub by_rank: u32,
    /// The ranks it waited for, as a bit mask.
    pub missing: u64,
    /// The epoch of its barrier.
    pub epoch: u64,
    /// How long it waited, in nanoseconds.
    pub elapsed_ns: u64,
    /// What its caller called the barrier.
    pub tag: u32,
    /// [`CAUSE_BARRIER`], [`CAUSE_HOST`], [`CAUSE_EXCHANGE`], [`CAUSE_STREAM`] or [`CAUSE_UNRECORDED`].
    pub cause: u32,
}

/// One rank's part of the group's signals.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct SignalPad {
    /// One counting word a peer.
    pub words: [i32; MAX_RANKS],
    /// The poison word and its record.
    pub fault: FaultRecord,
}

const _: () = {
    assert!(size_of::<FaultRecord>() == 64);
    assert!(core::mem::offset_of!(FaultRecord, missing) == 8);
    assert!(core::mem::offset_of!(SignalPad, fault) == 256);
    assert!(size_of::<SignalPad>() == 384);
};

/// Address of the poison word of the pad at `pad`.
pub const fn poison_addr(pad: u64) -> u64 {
    pad + core::mem::offset_of!(SignalPad, fault) as u64
}

/// Whether the group is poisoned, by the poison word at `word` (0: there is none).
///
/// # Safety
/// `word` is 0 or the address of a poison word.
pub unsafe fn is_poisoned(word: u64) -> bool {
    if word == 0 {
        return false;
    }
    let word = ptr::with_exposed_provenance::<u32>(word as usize);
    // SAFETY: a poison word is only accessed atomically.
    let word = unsafe { arch::load_acquire_sys_u32(word) };
    word != FAULT_NONE
}

/// Writes `record` at `dst` unless a record is there already.
///
/// # Safety
/// `dst` is the address of a [`FaultRecord`] whose word is only accessed atomically.
pub unsafe fn raise_fault(dst: u64, record: FaultRecord) {
    let dst = ptr::with_exposed_provenance_mut::<FaultRecord>(dst as usize);
    let word = dst.cast::<u32>();
    // SAFETY: `word` is the record's first field.
    if !unsafe { arch::claim_relaxed_sys_u32(word, FAULT_CLAIMED) } {
        return;
    }
    let FaultRecord { word: _, by_rank, missing, epoch, elapsed_ns, tag, cause } = record;
    // The fields one by one, so that the word itself is written by atomics alone.
    // SAFETY: the claim gave this rank the fields, here and in the five below.
    unsafe { (*dst).by_rank = by_rank };
    // SAFETY: as above.
    unsafe { (*dst).missing = missing };
    // SAFETY: as above.
    unsafe { (*dst).epoch = epoch };
    // SAFETY: as above.
    unsafe { (*dst).elapsed_ns = elapsed_ns };
    // SAFETY: as above.
    unsafe { (*dst).tag = tag };
    // SAFETY: as above.
    unsafe { (*dst).cause = cause };
    // SAFETY: a poison word; release pairs with the acquire of `read_fault` and `is_poisoned`.
    unsafe { arch::store_release_sys_u32(word, FAULT_RECORDED) };
}

/// The record at `src`: `None` while there is no fault, its word [`FAULT_CLAIMED`] while it is being written.
///
/// # Safety
/// As [`raise_fault`].
pub unsafe fn read_fault(src: u64) -> Option<FaultRecord> {
    let src = ptr::with_exposed_provenance::<FaultRecord>(src as usize);
    // SAFETY: `word` is the record's first field.
    match unsafe { arch::load_acquire_sys_u32(src.cast()) } {
        FAULT_NONE => None,
        // SAFETY: `src` is a record, and complete.
        FAULT_RECORDED => Some(unsafe { read_fields(src) }),
        word => Some(FaultRecord { word, ..FaultRecord::default() }),
    }
}

/// Copies the record that stands at `poison`, if one does, to where the host reads it, `status`. One that is being
/// written is waited for, and reported as [`CAUSE_UNRECORDED`] where its writer never ends: it may have died.
///
/// # Safety
/// Both are addresses of a [`FaultRecord`] whose word is only accessed atomically.
pub(crate) unsafe fn report(poison: u64, status: u64) {
    let started_ns = arch::now_ns();
    let mut num_polls = 0;
    let found = loop {
        // SAFETY: a record, as required.
        match unsafe { read_fault(poison) } {
            None => return,
            Some(record) if record.word == FAULT_RECORDED => break record,
            Some(_) => {}
        }
        if arch::now_ns().saturating_sub(started_ns) >= RECORD_WAIT_NS {
            break FaultRecord { word: FAULT_RECORDED, cause: CAUSE_UNRECORDED, ..FaultRecord::default() };
        }
        arch::pause(num_polls, 0);
        num_polls = num_polls.saturating_add(1);
    };
    // SAFETY: a record, as required.
    unsafe { raise_fault(status, found) };
}

/// Raises `record` on every rank, `rank` first.
///
/// # Safety
/// `pads` is a table `[num_ranks]` of the addresses of pads.
pub(crate) unsafe fn raise_on_all(pads: u64, rank: u32, num_ranks: u32, record: FaultRecord) {
    for step in 0..num_ranks {
        // SAFETY: the table has an entry for every rank.
        let pad = unsafe { pad_addr(pads, (rank + step) % num_ranks) };
        // SAFETY: a record in that rank's pad.
        unsafe { raise_fault(poison_addr(pad), record) };
    }
}

/// Entry `rank` of the table of pads at `pads`.
///
/// # Safety
/// The table has such an entry.
pub(crate) unsafe fn pad_addr(pads: u64, rank: u32) -> u64 {
    let table = ptr::with_exposed_provenance::<u64>(pads as usize);
    // SAFETY: inside the table, as required.
    let entry = unsafe { table.add(rank as usize) };
    // SAFETY: as above.
    unsafe { entry.read() }
}

/// A record whose word is [`FAULT_RECORDED`]; the word itself is left to atomics.
unsafe fn read_fields(src: *const FaultRecord) -> FaultRecord {
    FaultRecord {
        word: FAULT_RECORDED,
        // SAFETY: a record, as the caller promised; complete, and never written again.
        by_rank: unsafe { (*src).by_rank },
        // SAFETY: as above.
        missing: unsafe { (*src).missing },
        // SAFETY: as above.
        epoch: unsafe { (*src).epoch },
        // SAFETY: as above.
        elapsed_ns: unsafe { (*src).elapsed_ns },
        // SAFETY: as above.
        tag: unsafe { (*src).tag },
        // SAFETY: as above.
        cause: unsafe { (*src).cause },
    }
}

/// The signal word at `word`.
///
/// # Safety
/// `word` is the address of such a word.
pub unsafe fn read_word(word: u64) -> i32 {
    // SAFETY: these words are only accessed atomically.
    unsafe { arch::load_acquire_sys(ptr::with_exposed_provenance(word as usize)) }
}
