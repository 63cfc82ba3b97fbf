//! The CPU: a kernel is one thread's work, so it is the only lane of the only team of the only block.

use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use rustix::thread::{nanosleep, sched_yield};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// This thread's position in its block. A block shares a barrier, or a page.
pub(crate) const fn lane() -> u32 {
    0
}

/// Threads of a block.
pub(crate) const fn num_lanes() -> u32 {
    1
}

/// This block's position in the grid.
pub(crate) const fn block() -> u32 {
    0
}

/// Blocks of the grid.
pub(crate) const fn num_blocks() -> u32 {
    1
}

/// Waits for all lanes of the block: what each acquired before is ordered before what any does after.
pub(crate) const fn sync_lanes() {}

/// Threads of a team. A team shares a row.
pub(crate) const TEAM_LANES: usize = 1;

/// This thread's position in its team.
pub(crate) const fn team_lane() -> usize {
    0
}

/// This team's position in the grid.
pub(crate) const fn team() -> u32 {
    0
}

/// Teams of the grid.
pub(crate) const fn num_teams() -> u32 {
    1
}

/// The largest of the team's values; every lane gets it.
pub(crate) const fn team_max(value: u16) -> u16 {
    value
}

/// Whether any lane of the team says so; every lane gets it.
pub(crate) const fn team_any(value: bool) -> bool {
    value
}

/// Nanoseconds of a monotonic clock that all ranks of this machine share.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Yields of a wait before it sleeps, at least: as many as a barrier takes among ranks that arrive together and share cores.
const MIN_YIELDS: u32 = 128;
/// How long a wait then sleeps between two polls.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

/// Called between two polls. Spins `num_spins` times, then gives the processor away: several ranks may share it. A wait that
/// lasts sleeps: who yields without end stays in the way of those whom it waits for.
pub(crate) fn pause(num_polls: u32, num_spins: u32) {
    if num_polls < num_spins {
        core::hint::spin_loop();
    } else if num_polls - num_spins < (4 * num_spins).max(MIN_YIELDS) {
        sched_yield();
    } else {
        // Woken early, it polls early.
        let _ = nanosleep(&NAP);
    }
}

/// Adds to a word of this rank that peers add to as well. Relaxed: orders nothing.
///
/// # Safety
/// `word` is a valid, aligned signal word that is only accessed atomically.
pub(crate) unsafe fn add_relaxed_sys(word: *mut i32, value: i32) {
    // SAFETY: valid, aligned and accessed atomically only, as required above.
    unsafe { AtomicI32::from_ptr(word) }.fetch_add(value, Ordering::Relaxed);
}

/// Adds with release: all this rank wrote before is visible to whoever acquires the sum.
///
/// # Safety
/// As [`add_relaxed_sys`].
pub(crate) unsafe fn add_release_sys(word: *mut i32, value: i32) {
    // SAFETY: valid, aligned and accessed atomically only, as required above.
    unsafe { AtomicI32::from_ptr(word) }.fetch_add(value, Ordering::Release);
}

/// Loads a signal word with acquire: pairs with [`add_release_sys`] of the peer.
///
/// # Safety
/// As [`add_relaxed_sys`].
pub(crate) unsafe fn load_acquire_sys(word: *const i32) -> i32 {
    // SAFETY: valid, aligned and accessed atomically only, as required above.
    unsafe { AtomicI32::from_ptr(word.cast_mut()) }.load(Ordering::Acquire)
}

/// Loads a poison word with acquire: pairs with [`store_release_sys_u32`] of the poisoner.
///
/// # Safety
/// `word` is a valid, aligned poison word that is only accessed atomically.
pub(crate) unsafe fn load_acquire_sys_u32(word: *const u32) -> u32 {
    // SAFETY: valid, aligned and accessed atomically only, as required above.
    unsafe { AtomicU32::from_ptr(word.cast_mut()) }.load(Ordering::Acquire)
}

/// Stores a poison word with release: the record written before is visible to whoever acquires it.
///
/// # Safety
/// As [`load_acquire_sys_u32`].
pub(crate) unsafe fn store_release_sys_u32(word: *mut u32, value: u32) {
    // SAFETY: valid, aligned and accessed atomically only, as required above.
    unsafe { AtomicU32::from_ptr(word) }.store(value, Ordering::Release);
}

/// Replaces a poison word that is 0; says whether it did. Relaxed: who claims reads nothing, and who does not goes away.
///
/// # Safety
/// As [`load_acquire_sys_u32`].
pub(crate) unsafe fn claim_relaxed_sys_u32(word: *mut u32, value: u32) -> bool {
    // SAFETY: valid, aligned and accessed atomically only, as required above.
    let word = unsafe { AtomicU32::from_ptr(word) };
    word.compare_exchange(0, value, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Copies a row, the lanes of a team together.
///
/// # Safety
/// `bytes` are readable at `src`, writable at `dst`, and do not overlap.
pub(crate) unsafe fn copy_row(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promise, word for word.
    unsafe { ptr::copy_nonoverlapping(src, dst, bytes) }
}

/// Stores the codes a lane made of its part of a row.
///
/// # Safety
/// As many bytes are writable at `dst`, a multiple of 4.
pub(crate) unsafe fn store_codes<const N: usize>(dst: *mut [u8; N], codes: [u8; N]) {
    // SAFETY: writable, and bytes need no alignment.
    unsafe { dst.write(codes) };
}

/// When a page's bytes are wanted next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// Soon, by peers: it stays in the caches.
    Soon,
    /// Later: it goes past the caches, and no line of it is read from memory before it is overwritten.
    Later,
}

/// Copies a page, all lanes together.
///
/// # Safety
/// As [`copy_row`]; `bytes` is a multiple of 16, `dst` aligned to 16.
pub(crate) unsafe fn copy_page(dst: *mut u8, src: *const u8, bytes: usize, reuse: Reuse) {
    #[cfg(target_arch = "x86_64")]
    if reuse == Reuse::Later && bytes >= STREAM_MIN_BYTES {
        // SAFETY: the caller's promise, word for word.
        return unsafe { stream::copy(dst, src, bytes) };
    }
    // SAFETY: the caller's promise, word for word.
    unsafe { ptr::copy_nonoverlapping(src, dst, bytes) }
}

/// Zeroes a page or a part of one, all lanes together.
///
/// # Safety
/// `bytes` are writable at `dst`.
pub(crate) unsafe fn zero(dst: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= STREAM_MIN_BYTES && bytes.is_multiple_of(16) && (dst as usize).is_multiple_of(16) {
        // SAFETY: the caller's promise; the alignment was just looked at.
        return unsafe { stream::zero(dst, bytes) };
    }
    // SAFETY: the caller's promise, word for word.
    unsafe { ptr::write_bytes(dst, 0, bytes) }
}

/// Makes copies that went past the caches visible before anything that follows.
pub(crate) fn copies_done() {
    // SAFETY: every x86-64 processor has SSE.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
}

/// Below this a page stays in the caches: it is read back before it would be evicted.
#[cfg(target_arch = "x86_64")]
const STREAM_MIN_BYTES: usize = 4096;

#[cfg(target_arch = "x86_64")]
mod stream {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_setzero_si128, _mm_stream_si128};

    const LINE_WORDS: usize = 4;

    /// Copies with non-temporal stores: no line of `dst` is read from memory before it is overwritten.
    ///
    /// # Safety
    /// As [`super::copy_page`].
    pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
        let (dst, src) = (dst.cast::<__m128i>(), src.cast::<__m128i>());
        let num_words = bytes / size_of::<__m128i>();
        let mut word = 0;
        while word + LINE_WORDS <= num_words {
            // SAFETY: `word + LINE_WORDS` words lie inside both ranges.
            unsafe { copy_words::<LINE_WORDS>(dst, src, word) };
            word += LINE_WORDS;
        }
        while word < num_words {
            // SAFETY: `word` lies inside both ranges.
            unsafe { copy_words::<1>(dst, src, word) };
            word += 1;
        }
    }

    /// Zeroes with non-temporal stores.
    ///
    /// # Safety
    /// `bytes`, a multiple of 16, are writable at `dst`, aligned to 16.
    pub(super) unsafe fn zero(dst: *mut u8, bytes: usize) {
        let dst = dst.cast::<__m128i>();
        // SAFETY: SSE2 is part of x86-64.
        let zero = unsafe { _mm_setzero_si128() };
        for word in 0..bytes / size_of::<__m128i>() {
            // SAFETY: `word` lies inside the range.
            let slot = unsafe { dst.add(word) };
            // SAFETY: writable and aligned to 16, as the caller promised.
            unsafe { _mm_stream_si128(slot, zero) };
        }
    }

    /// Copies `N` words from index `at`, all loads before all stores.
    ///
    /// # Safety
    /// Words `at .. at + N` are readable at `src`, writable at `dst`; `dst` is aligned to 16.
    #[inline(always)]
    unsafe fn copy_words<const N: usize>(dst: *mut __m128i, src: *const __m128i, at: usize) {
        let words: [__m128i; N] = core::array::from_fn(|i| {
            // SAFETY: `at + i` is inside the range the caller promised.
            let word = unsafe { src.add(at + i) };
            // SAFETY: readable, and the load needs no alignment.
            unsafe { _mm_loadu_si128(word) }
        });
        for (i, word) in words.into_iter().enumerate() {
            // SAFETY: `at + i` is inside the range the caller promised.
            let slot = unsafe { dst.add(at + i) };
            // SAFETY: writable and aligned to 16, as the caller promised.
            unsafe { _mm_stream_si128(slot, word) };
        }
    }
}
