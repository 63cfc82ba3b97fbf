//! The byte-wise sum that an all-reduce among ranks of one device is made of.

use core::ptr;

use crate::abi::AddBytesParams;
use crate::{arch, signal};

/// Adds `src` to `dst`, byte by byte, wrapping.
///
/// # Safety
/// The ranges in `params` are valid as documented there, and nobody else touches them.
pub(crate) unsafe fn add_bytes(params: &AddBytesParams) {
    // SAFETY: 0 or a poison word.
    if unsafe { signal::is_poisoned(params.poison) } {
        return;
    }
    let dst = ptr::with_exposed_provenance_mut::<u8>(params.dst as usize);
    let src = ptr::with_exposed_provenance::<u8>(params.src as usize);
    let num_words = params.bytes as usize / WORD_BYTES;
    let stride = arch::num_blocks() as usize * arch::num_lanes() as usize;
    let first = arch::block() as usize * arch::num_lanes() as usize + arch::lane() as usize;
    let mut word = first;
    while word < num_words {
        // SAFETY: inside the range.
        let sum = unsafe { dst.cast::<u64>().add(word) };
        // SAFETY: inside the range.
        let addend = unsafe { src.cast::<u64>().add(word) };
        // SAFETY: readable and aligned.
        let addend = unsafe { addend.read() };
        // SAFETY: readable and aligned; this lane's alone.
        let before = unsafe { sum.read() };
        // SAFETY: writable and aligned; this lane's alone.
        unsafe { sum.write(add_each(before, addend)) };
        word += stride;
    }
    let mut byte = num_words * WORD_BYTES + first;
    while byte < params.bytes as usize {
        // SAFETY: inside the range.
        let addend = unsafe { src.add(byte) };
        // SAFETY: readable.
        let addend = unsafe { addend.read() };
        // SAFETY: inside the range.
        let sum = unsafe { dst.add(byte) };
        // SAFETY: readable; this lane's alone.
        let before = unsafe { sum.read() };
        // SAFETY: writable; this lane's alone.
        unsafe { sum.write(before.wrapping_add(addend)) };
        byte += stride;
    }
}

const WORD_BYTES: usize = size_of::<u64>();

/// The eight bytes of `a` and `b` added one by one, wrapping: the low seven bits of each carry at most into its own
/// top bit, which is the sum of the top bits without a carry out.
const fn add_each(a: u64, b: u64) -> u64 {
    const TOP: u64 = 0x8080_8080_8080_8080;
    ((a & !TOP) + (b & !TOP)) ^ ((a ^ b) & TOP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_carries_into_the_next() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let sum = add_each(u64::from_le_bytes([a; 8]), u64::from_le_bytes([b, 0, b, 0, b, b, 0, b]));
                let s = a.wrapping_add(b);
                assert_eq!(sum.to_le_bytes(), [s, a, s, a, s, s, a, s]);
            }
        }
    }
}
