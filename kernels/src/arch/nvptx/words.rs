//! Signal words and poison words: one instruction a function, each with its order and system scope spelled out.
//!
//! Rust's atomics are not used: read-modify-writes lose order and scope on their way through LLVM.

use core::arch::asm;

/// Adds to a word of this rank that peers add to as well. Relaxed: orders nothing.
///
/// # Safety
/// `word` is a valid, aligned signal word that is only accessed atomically.
#[inline(always)]
pub(crate) unsafe fn add_relaxed_sys(word: *mut i32, value: i32) {
    // SAFETY: valid and aligned, as required above.
    unsafe {
        asm!(
            "red.relaxed.sys.global.add.s32 [{word}], {value};",
            word = in(reg64) word,
            value = in(reg32) value,
        );
    }
}

/// Adds with release: all this rank wrote before is visible to whoever acquires the sum.
///
/// # Safety
/// As [`add_relaxed_sys`].
#[inline(always)]
pub(crate) unsafe fn add_release_sys(word: *mut i32, value: i32) {
    // SAFETY: valid and aligned, as required above.
    unsafe {
        asm!(
            "red.release.sys.global.add.s32 [{word}], {value};",
            word = in(reg64) word,
            value = in(reg32) value,
        );
    }
}

/// Loads a signal word with acquire: pairs with [`add_release_sys`] of the peer.
///
/// # Safety
/// As [`add_relaxed_sys`].
#[inline(always)]
pub(crate) unsafe fn load_acquire_sys(word: *const i32) -> i32 {
    let value: i32;
    // SAFETY: valid and aligned, as required above.
    unsafe {
        asm!(
            "ld.acquire.sys.global.s32 {value}, [{word}];",
            value = out(reg32) value,
            word = in(reg64) word,
        );
    }
    value
}

/// Loads a poison word with acquire: pairs with [`store_release_sys_u32`] of the poisoner.
///
/// # Safety
/// `word` is a valid, aligned poison word that is only accessed atomically.
#[inline(always)]
pub(crate) unsafe fn load_acquire_sys_u32(word: *const u32) -> u32 {
    let value: u32;
    // SAFETY: valid and aligned, as required above.
    unsafe {
        asm!(
            "ld.acquire.sys.global.u32 {value}, [{word}];",
            value = out(reg32) value,
            word = in(reg64) word,
        );
    }
    value
}

/// Stores a poison word with release: the record written before is visible to whoever acquires it.
///
/// # Safety
/// As [`load_acquire_sys_u32`].
#[inline(always)]
pub(crate) unsafe fn store_release_sys_u32(word: *mut u32, value: u32) {
    // SAFETY: valid and aligned, as required above.
    unsafe {
        asm!(
            "st.release.sys.global.u32 [{word}], {value};",
            word = in(reg64) word,
            value = in(reg32) value,
        );
    }
}

/// Replaces a poison word that is 0; says whether it did. Relaxed: who claims reads nothing, and who does not goes away.
///
/// # Safety
/// As [`load_acquire_sys_u32`].
#[inline(always)]
pub(crate) unsafe fn claim_relaxed_sys_u32(word: *mut u32, value: u32) -> bool {
    let before: u32;
    // SAFETY: valid and aligned, as required above.
    unsafe {
        asm!(
            "atom.relaxed.sys.global.cas.b32 {before}, [{word}], 0, {value};",
            before = out(reg32) before,
            word = in(reg64) word,
            value = in(reg32) value,
        );
    }
    before == 0
}
