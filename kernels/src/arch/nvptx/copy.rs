//! Copies and zeroing by many lanes: 16 bytes a lane and access, four loads of a lane in flight.

use core::arch::asm;

use super::{TEAM_LANES, lane, num_lanes, team_lane};

/// The widest unit: one 128-bit access.
type Quad = [u32; 4];

/// Loads of a lane before its first store.
const UNROLL: usize = 4;

/// When a page's bytes are wanted next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// Soon, by peers.
    Soon,
    /// Later.
    Later,
}

/// Lanes that work on one thing together: which one this is, and how many there are.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    /// This lane's position among them.
    pub(crate) lane: usize,
    /// How many they are.
    pub(crate) num_lanes: usize,
}

impl Lanes {
    /// All lanes of the block.
    #[inline(always)]
    fn of_block() -> Self {
        Self { lane: lane() as usize, num_lanes: num_lanes() as usize }
    }
}

/// Copies a row, the lanes of a team together.
///
/// # Safety
/// `bytes` are readable at `src`, writable at `dst`, and do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_row(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promise, word for word.
    unsafe { copy_by(dst, src, bytes, Lanes { lane: team_lane(), num_lanes: TEAM_LANES }) }
}

/// Copies a page, all lanes together. Loads go past L1 in any case: nothing is read twice, and stores bypass it.
///
/// # Safety
/// As [`copy_row`]; `bytes` is a multiple of 16, `dst` aligned to 16.
#[inline(always)]
pub(crate) unsafe fn copy_page(dst: *mut u8, src: *const u8, bytes: usize, _reuse: Reuse) {
    // SAFETY: the caller's promise, word for word.
    unsafe { copy_by(dst, src, bytes, Lanes::of_block()) }
}

/// Zeroes a page or a part of one, all lanes together.
///
/// # Safety
/// `bytes` are writable at `dst`.
#[inline(always)]
pub(crate) unsafe fn zero(dst: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise, word for word.
    unsafe { zero_by(dst, bytes, Lanes::of_block()) }
}

/// Makes copies visible before anything that follows: the end of the kernel does.
#[inline(always)]
pub(crate) fn copies_done() {}

/// Stores the codes a lane made of its part of a row.
///
/// # Safety
/// As many bytes are writable at `dst`, a multiple of 4.
#[inline(always)]
pub(crate) unsafe fn store_codes<const N: usize>(dst: *mut [u8; N], codes: [u8; N]) {
    const { assert!(N.is_multiple_of(4)) };
    let (words, _) = codes.as_chunks::<4>();
    for (i, &word) in words.iter().enumerate() {
        // SAFETY: word `i` of the codes.
        let slot = unsafe { dst.cast::<u32>().add(i) };
        // SAFETY: writable and aligned to 4, as required above.
        unsafe { slot.write(u32::from_le_bytes(word)) };
    }
}

/// Copies with the widest unit that both addresses and the length are multiples of.
///
/// # Safety
/// As [`copy_row`]. Each of the lanes calls it with the same arguments.
#[inline(always)]
pub(crate) unsafe fn copy_by(dst: *mut u8, src: *const u8, bytes: usize, lanes: Lanes) {
    let unit = dst as usize | src as usize | bytes;
    if unit.is_multiple_of(size_of::<Quad>()) {
        // SAFETY: the caller's promise; the alignment was just looked at.
        unsafe { copy_quads(dst, src, bytes / size_of::<Quad>(), lanes) }
    } else if unit.is_multiple_of(size_of::<u32>()) {
        // SAFETY: as above.
        unsafe { copy_units(dst.cast::<u32>(), src.cast::<u32>(), bytes / size_of::<u32>(), lanes) }
    } else {
        // SAFETY: as above.
        unsafe { copy_units(dst, src, bytes, lanes) }
    }
}

/// Zeroes with the widest unit that address and length are multiples of.
///
/// # Safety
/// As [`zero`]. Each of the lanes calls it with the same arguments.
#[inline(always)]
pub(crate) unsafe fn zero_by(dst: *mut u8, bytes: usize, lanes: Lanes) {
    let unit = dst as usize | bytes;
    if unit.is_multiple_of(size_of::<Quad>()) {
        let mut at = lanes.lane;
        while at < bytes / size_of::<Quad>() {
            // SAFETY: unit `at` lies inside the range; its alignment was just looked at.
            unsafe { store_quad(dst, at, [0; 4]) };
            at += lanes.num_lanes;
        }
    } else if unit.is_multiple_of(size_of::<u32>()) {
        // SAFETY: the caller's promise; the alignment was just looked at.
        unsafe { zero_units(dst.cast::<u32>(), bytes / size_of::<u32>(), lanes) }
    } else {
        // SAFETY: as above.
        unsafe { zero_units(dst, bytes, lanes) }
    }
}

/// Copies `num_quads` units of 16 bytes: per round all loads of a lane, then all its stores.
///
/// # Safety
/// As [`copy_row`]; both addresses are aligned to 16.
#[inline(always)]
unsafe fn copy_quads(dst: *mut u8, src: *const u8, num_quads: usize, lanes: Lanes) {
    let stride = lanes.num_lanes;
    let mut at = lanes.lane;
    while at + (UNROLL - 1) * stride < num_quads {
        let quads: [Quad; UNROLL] = core::array::from_fn(|i| {
            // SAFETY: the last of these units lies inside the range, so all do.
            unsafe { load_quad(src, at + i * stride) }
        });
        // By reference: an array's own iterator may end up in local memory.
        for (i, &quad) in quads.iter().enumerate() {
            // SAFETY: as above.
            unsafe { store_quad(dst, at + i * stride, quad) };
        }
        at += UNROLL * stride;
    }
    // Less than a round is left.
    let mut quads = [[0; 4]; UNROLL - 1];
    for (i, quad) in quads.iter_mut().enumerate() {
        if at + i * stride < num_quads {
            // SAFETY: this unit lies inside the range.
            *quad = unsafe { load_quad(src, at + i * stride) };
        }
    }
    for (i, &quad) in quads.iter().enumerate() {
        if at + i * stride < num_quads {
            // SAFETY: as above.
            unsafe { store_quad(dst, at + i * stride, quad) };
        }
    }
}

/// Copies `num_units` units of `T`, one a lane at a time.
///
/// # Safety
/// As [`copy_row`]; both addresses are aligned for `T`.
#[inline(always)]
unsafe fn copy_units<T: Copy>(dst: *mut T, src: *const T, num_units: usize, lanes: Lanes) {
    let mut at = lanes.lane;
    while at < num_units {
        // SAFETY: unit `at` lies inside the range.
        let from = unsafe { src.add(at) };
        // SAFETY: as above.
        let to = unsafe { dst.add(at) };
        // SAFETY: readable and aligned.
        let unit = unsafe { from.read() };
        // SAFETY: writable and aligned.
        unsafe { to.write(unit) };
        at += lanes.num_lanes;
    }
}

/// Zeroes `num_units` units of `T`, one a lane at a time.
///
/// # Safety
/// As [`zero`]; `dst` is aligned for `T`.
#[inline(always)]
unsafe fn zero_units<T: Default>(dst: *mut T, num_units: usize, lanes: Lanes) {
    let mut at = lanes.lane;
    while at < num_units {
        // SAFETY: unit `at` lies inside the range.
        let to = unsafe { dst.add(at) };
        // SAFETY: writable and aligned.
        unsafe { to.write(T::default()) };
        at += lanes.num_lanes;
    }
}

/// Loads unit `at`, past L1.
///
/// # Safety
/// The unit is readable, `base` aligned to 16.
#[inline(always)]
unsafe fn load_quad(base: *const u8, at: usize) -> Quad {
    let (a, b, c, d): (u32, u32, u32, u32);
    let addr = base as usize + at * size_of::<Quad>();
    // SAFETY: readable and aligned, as required above.
    unsafe {
        asm!(
            "ld.global.L1::no_allocate.v4.u32 {{{a}, {b}, {c}, {d}}}, [{addr}];",
            a = out(reg32) a,
            b = out(reg32) b,
            c = out(reg32) c,
            d = out(reg32) d,
            addr = in(reg64) addr,
        );
    }
    [a, b, c, d]
}

/// Stores unit `at`.
///
/// # Safety
/// The unit is writable, `base` aligned to 16.
#[inline(always)]
unsafe fn store_quad(base: *mut u8, at: usize, [a, b, c, d]: Quad) {
    let addr = base as usize + at * size_of::<Quad>();
    // SAFETY: writable and aligned, as required above.
    unsafe {
        asm!(
            "st.global.v4.u32 [{addr}], {{{a}, {b}, {c}, {d}}};",
            addr = in(reg64) addr,
            a = in(reg32) a,
            b = in(reg32) b,
            c = in(reg32) c,
            d = in(reg32) d,
        );
    }
}
