//! Zeroing of byte ranges: the rows that partial pages leave unfilled.

use core::ptr;

use crate::abi::{ByteRange, ZeroParams};
use crate::{arch, signal};

/// Zeroes the ranges. One range a block at a time.
///
/// # Safety
/// The addresses in `params` are valid as documented there; no peer reads the ranges while it runs.
pub(crate) unsafe fn zero(params: &ZeroParams) {
    // SAFETY: 0 or a poison word.
    if unsafe { signal::is_poisoned(params.poison) } {
        return;
    }
    // SAFETY: 0 or this rank's state.
    let dst = params.dst + unsafe { params.dst_half.offset() };
    let ranges = ptr::with_exposed_provenance::<ByteRange>(params.ranges as usize);
    let mut i = arch::block();
    while i < params.num_ranges {
        // SAFETY: `i` is below the table's length.
        let range = unsafe { ranges.add(i as usize) };
        // SAFETY: inside the table.
        let range = unsafe { range.read() };
        let start = ptr::with_exposed_provenance_mut::<u8>((dst + range.offset) as usize);
        // SAFETY: the range is writable.
        unsafe { arch::zero(start, range.bytes as usize) };
        i += arch::num_blocks();
    }
    arch::copies_done();
}
