//! The sources of a batch as they stand when it is submitted: for endpoints whose bytes arrive behind the completion, when
//! nobody keeps the sources as they were.

use std::ptr;
use std::sync::Arc;

use crate::device::DeviceBuffer;
use crate::transfer::Block;

/// Copies what `blocks` are to write, and returns the same blocks with the copies as their sources.
///
/// # Safety
/// Every source is readable host memory that nothing writes during the call.
pub(super) unsafe fn of(blocks: &[Block]) -> (Vec<Block>, DeviceBuffer) {
    // Each at a multiple of 8, so that words stay words.
    let num_words: u64 = blocks.iter().map(|block| block.bytes.div_ceil(8)).sum();
    let mut words = vec![0_u64; num_words as usize];
    let start = words.as_mut_ptr().expose_provenance();
    let mut at = start as u64;
    let mut copies = Vec::with_capacity(blocks.len());
    for &block in blocks {
        let from = ptr::with_exposed_provenance::<u8>(block.src as usize);
        let to = ptr::with_exposed_provenance_mut::<u8>(at as usize);
        // SAFETY: the source is as the caller says; the words have room for every block behind the one before.
        unsafe { ptr::copy_nonoverlapping(from, to, block.bytes as usize) };
        copies.push(Block { src: at, ..block });
        at += block.bytes.next_multiple_of(8);
    }
    let bytes = 8 * num_words;
    // SAFETY: the words' memory, which the vector owns; moving the vector does not move it.
    let memory = unsafe { DeviceBuffer::from_raw(start as u64, bytes, Arc::new(words)) };
    (copies, memory)
}
