//! The bulk copy engine: copies between global and shared memory that a thread issues and the hardware does.
//!
//! Shared memory is addressed with 32 bits from the start of its window.

use core::arch::{asm, global_asm};

// The block's dynamic shared memory. The launch says how long it is.
global_asm!(".extern .shared .align 128 .b8 cpkv_shared[];");

/// Address of the block's dynamic shared memory, aligned to 128.
#[inline(always)]
pub(crate) fn shared_base() -> u32 {
    let base: u32;
    // SAFETY: takes an address.
    unsafe { asm!("mov.u32 {base}, cpkv_shared;", base = out(reg32) base) };
    base
}

/// Makes an mbarrier at `mbarrier`, phase 0, that one arrival a phase completes.
///
/// # Safety
/// 8 bytes of this block's shared memory, aligned to 8, that nothing else uses.
#[inline(always)]
pub(crate) unsafe fn mbarrier_init(mbarrier: u32) {
    // SAFETY: valid and aligned, as required above.
    unsafe { asm!("mbarrier.init.shared::cta.b64 [{mbarrier}], 1;", mbarrier = in(reg32) mbarrier) };
}

/// Orders what this thread wrote or acquired before, in any memory, before what it lets the engine do afterwards.
#[inline(always)]
pub(crate) fn fence_before_bulk() {
    // SAFETY: orders accesses.
    unsafe { asm!("fence.proxy.async;") };
}

/// Starts a copy of `bytes` from global to shared memory; the phase of `mbarrier` completes with it.
///
/// # Safety
/// `bytes`, a multiple of 16, are readable at `src` and writable at `dst`, both aligned to 16; nobody else touches
/// them until the phase is complete. `mbarrier` was made by [`mbarrier_init`], fenced since, and no copy is in flight
/// on it.
#[inline(always)]
pub(crate) unsafe fn bulk_load(dst: u32, src: u64, bytes: u32, mbarrier: u32) {
    // The arrival announces the bytes first: the phase cannot complete without them.
    // SAFETY: as required above.
    unsafe {
        asm!(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{mbarrier}], {bytes};",
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{dst}], [{src}], {bytes}, [{mbarrier}];",
            dst = in(reg32) dst,
            src = in(reg64) src,
            bytes = in(reg32) bytes,
            mbarrier = in(reg32) mbarrier,
        );
    }
}

/// Waits a moment (the hardware's choice) for the phase of `mbarrier` with this parity; says whether it is complete.
/// Acquire: what was loaded can be read.
///
/// # Safety
/// `mbarrier` was made by [`mbarrier_init`].
#[inline(always)]
pub(crate) unsafe fn mbarrier_try_wait(mbarrier: u32, parity: u32) -> bool {
    let is_complete: u32;
    // SAFETY: as required above.
    unsafe {
        asm!(
            "{{",
            ".reg .pred %complete;",
            "mbarrier.try_wait.parity.shared::cta.b64 %complete, [{mbarrier}], {parity};",
            "selp.u32 {is_complete}, 1, 0, %complete;",
            "}}",
            is_complete = out(reg32) is_complete,
            mbarrier = in(reg32) mbarrier,
            parity = in(reg32) parity,
        );
    }
    is_complete != 0
}

/// Starts a copy of `bytes` from shared to global memory, as a group of its own.
///
/// # Safety
/// `bytes`, a multiple of 16, are readable at `src` and writable at `dst`, both aligned to 16; nobody writes `src`
/// until [`bulk_wait_reads`] and nobody touches `dst` until [`bulk_wait_all`].
#[inline(always)]
pub(crate) unsafe fn bulk_store(dst: u64, src: u32, bytes: u32) {
    // SAFETY: as required above.
    unsafe {
        asm!(
            "cp.async.bulk.global.shared::cta.bulk_group [{dst}], [{src}], {bytes};",
            "cp.async.bulk.commit_group;",
            dst = in(reg64) dst,
            src = in(reg32) src,
            bytes = in(reg32) bytes,
        );
    }
}

/// Waits until all of this thread's stores but the latest one have read their source.
#[inline(always)]
pub(crate) fn bulk_wait_reads_but_one() {
    // SAFETY: waits.
    unsafe { asm!("cp.async.bulk.wait_group.read 1;") };
}

/// Waits until all of this thread's stores are written.
#[inline(always)]
pub(crate) fn bulk_wait_all() {
    // SAFETY: waits.
    unsafe { asm!("cp.async.bulk.wait_group 0;") };
}
