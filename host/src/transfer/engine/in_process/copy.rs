//! How bytes are written: in bounded pieces, and aligned words so that a reader who polls them sees whole ones.
//!
//! | word | writer | reader | order | at rest |
//! |---|---|---|---|---|
//! | an aligned word of a short block | the delivery thread, after everything before it in the batch | whoever polls the destination | store: Release; the reader's load: Acquire | what an earlier batch left |
//!
//! Every other byte is copied plainly: nobody touches it before the batch is done, or before such a word says that it is
//! there.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::transfer::Block;

/// Bytes that are copied before a thread looks again whether it may go on.
pub(super) const PIECE_BYTES: u64 = 256 << 10;

/// Bytes of a word.
const WORD_BYTES: u64 = size_of::<u64>() as u64;

/// Blocks of whole aligned words are stored word by word up to this size: epoch words, and completion records.
const SHORT_BYTES: u64 = 64;

/// Whether the block is stored in words. One that overlaps itself is moved.
const fn is_words(block: Block) -> bool {
    let Block { src, dst, bytes } = block;
    bytes <= SHORT_BYTES && (src | dst | bytes).is_multiple_of(WORD_BYTES) && src.abs_diff(dst) >= bytes
}

/// Copies one block.
///
/// # Safety
/// Source and destination are host memory and stay so during the call. Nothing writes the source meanwhile; nothing but
/// loads of whole aligned words touches the destination.
pub(super) unsafe fn copy(block: Block) {
    if is_words(block) {
        for at in (0..block.bytes).step_by(WORD_BYTES as usize) {
            // SAFETY: inside the block, and aligned as `is_words` says.
            unsafe { copy_word(block.src + at, block.dst + at) };
        }
    } else {
        let from = ptr::with_exposed_provenance::<u8>(block.src as usize);
        let to = ptr::with_exposed_provenance_mut::<u8>(block.dst as usize);
        // SAFETY: both ranges are accessible, as the caller says. They may overlap.
        unsafe { ptr::copy(from, to, block.bytes as usize) };
    }
}

/// Copies one word.
///
/// # Safety
/// As [`copy`], for 8 bytes; both addresses are multiples of 8.
unsafe fn copy_word(src: u64, dst: u64) {
    let from = ptr::with_exposed_provenance::<u64>(src as usize);
    // SAFETY: readable, aligned, and not being written, as the caller says.
    let word = unsafe { from.read() };
    // SAFETY: writable and aligned, as the caller says.
    let place = unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(dst as usize)) };
    // Release: pairs with the Acquire load of whoever polls the word, who then sees all that was copied before.
    place.store(word, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_short_and_aligned_on_both_sides() {
        let block = |src, dst, bytes| Block { src, dst, bytes };
        for block in [block(8, 16, 8), block(0, 64, 64)] {
            assert!(is_words(block), "{block:?}");
        }
        for block in [block(4, 16, 8), block(8, 20, 8), block(8, 32, 12), block(8, 160, 72), block(8, 16, 16)]
        {
            assert!(!is_words(block), "{block:?}");
        }
    }

    #[test]
    fn overlapping_ranges_and_odd_ones_are_copied_exactly() {
        for (src, dst, len) in [(0, 8, 64), (8, 0, 64), (0, 64, 64), (0, 3, 61), (5, 0, 7), (16, 8, 72)] {
            let mut words: Vec<u64> =
                (0..20).map(|i| 0x0101_0101_0101_0101 * i + 0x0706_0504_0302_0100).collect();
            let before: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let mut expected = before.clone();
            expected.copy_within(src..src + len, dst);
            let start = words.as_mut_ptr().expose_provenance();
            let block = Block { src: (start + src) as u64, dst: (start + dst) as u64, bytes: len as u64 };
            // SAFETY: both ranges lie in `words`, which nothing else touches.
            unsafe { copy(block) };
            let after: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert_eq!(after, expected, "{len} bytes from {src} to {dst}");
        }
    }
}
