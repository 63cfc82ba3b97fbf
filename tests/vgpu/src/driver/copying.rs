//! Moving bytes, with what the shadow knows about them.
//!
//! Device memory is shared with running kernels and other processes, so it is accessed by relaxed atomics throughout.
//! A copy or a set makes words "written" (a copy from device memory: as far as the source is) and no longer used to
//! synchronise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::space::Allocation;
use crate::machine::SHADOW_INIT;

/// Where bytes come from or go to.
#[derive(Clone)]
pub(super) enum Place {
    /// An offset in a live allocation.
    Device(Arc<Allocation>, u64),
    /// Host memory that the caller keeps valid until the copy is done.
    Host(usize),
    /// Bytes that were taken when the call was made.
    Bytes(Arc<[u8]>),
}

impl Place {
    fn pointer(&self) -> *mut u8 {
        match self {
            Place::Device(allocation, offset) => allocation.block.data().wrapping_add(*offset as usize),
            Place::Host(address) => *address as *mut u8,
            Place::Bytes(bytes) => bytes.as_ptr().cast_mut(),
        }
    }
}

/// Copies bytes and their shadow.
///
/// # Safety
///
/// Device ranges lie inside their allocations; host ranges are valid for the access; the destination is no
/// [`Place::Bytes`].
pub(super) unsafe fn copy(to: &Place, from: &Place, bytes: u64) {
    // SAFETY: as the caller promises.
    unsafe { copy_relaxed(from.pointer(), to.pointer(), bytes as usize) };
    let Place::Device(target, target_offset) = to else { return };
    match from {
        Place::Device(source, source_offset) if !source.is_host() => {
            carry_marks((source, *source_offset), (target, *target_offset), bytes);
        }
        _ => mark_written(target, *target_offset, bytes),
    }
}

/// Sets `count` elements of `width` bytes (1, 2 or 4) to `value`.
///
/// # Safety
///
/// The range lies inside the allocation and is aligned to `width`.
pub(super) unsafe fn set(target: &Arc<Allocation>, offset: u64, value: u32, width: u8, count: u64) {
    let bytes = count * u64::from(width);
    let pattern: Vec<u8> =
        value.to_le_bytes()[..usize::from(width)].iter().copied().cycle().take(4096).collect();
    let mut done = 0;
    while done < bytes {
        let now = (bytes - done).min(4096);
        let to = target.block.data().wrapping_add((offset + done) as usize);
        // SAFETY: the caller's range covers the target; the pattern is 4096 bytes long.
        unsafe { copy_relaxed(pattern.as_ptr(), to, now as usize) };
        done += now;
    }
    mark_written(target, offset, bytes);
}

/// Copies by relaxed atomics: words of 8 bytes where both sides are aligned alike.
///
/// # Safety
///
/// Both ranges are valid for the access, and no other thread accesses them other than atomically or as one whole byte.
unsafe fn copy_relaxed(from: *const u8, to: *mut u8, bytes: usize) {
    let mut at = 0;
    let alike = (from as usize ^ to as usize) & 7 == 0;
    while at < bytes {
        let (source, target) = (from.wrapping_add(at).cast_mut(), to.wrapping_add(at));
        if alike && (source as usize) & 7 == 0 && bytes - at >= 8 {
            // SAFETY: aligned, and inside the caller's range.
            let source = unsafe { AtomicU64::from_ptr(source.cast()) };
            // SAFETY: as above.
            let target = unsafe { AtomicU64::from_ptr(target.cast()) };
            target.store(source.load(Ordering::Relaxed), Ordering::Relaxed);
            at += 8;
        } else {
            // SAFETY: inside the caller's range.
            let source = unsafe { AtomicU8::from_ptr(source) };
            // SAFETY: as above.
            let target = unsafe { AtomicU8::from_ptr(target) };
            target.store(source.load(Ordering::Relaxed), Ordering::Relaxed);
            at += 1;
        }
    }
}

/// Marks a range as written and no longer used to synchronise.
pub(super) fn mark_written(target: &Allocation, offset: u64, bytes: u64) {
    let end = offset + bytes;
    let (first_whole, last_whole) = (offset.next_multiple_of(4), end & !3);
    if first_whole < last_whole {
        let mut word = first_whole / 4;
        let stop = last_whole / 4;
        let shadow = target.block.shadow();
        while word < stop {
            let at = shadow.wrapping_add(word as usize);
            if (at as usize) & 7 == 0 && stop - word >= 8 {
                // SAFETY: aligned, and eight shadow bytes of words inside the allocation.
                let eight = unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) };
                eight.store(u64::from_ne_bytes([SHADOW_INIT; 8]), Ordering::Relaxed);
                word += 8;
            } else {
                shadow_of(target, word).store(SHADOW_INIT, Ordering::Relaxed);
                word += 1;
            }
        }
    }
    let edge = |bytes: std::ops::Range<u64>| bytes.for_each(|byte| mark_byte(target, byte, true));
    edge(offset..first_whole.min(end));
    edge(last_whole.max(first_whole.min(end))..end);
}

/// Carries the "written" marks of a copied range: word by word where both sides are aligned alike, else byte by byte.
fn carry_marks(from: (&Allocation, u64), to: (&Allocation, u64), bytes: u64) {
    let ((source, from), (target, to)) = (from, to);
    let alike = from % 4 == to % 4;
    let mut at = 0;
    while at < bytes {
        let marks = shadow_of(source, (from + at) / 4).load(Ordering::Relaxed) & SHADOW_INIT;
        if alike && (to + at) % 4 == 0 && bytes - at >= 4 {
            shadow_of(target, (to + at) / 4).store(marks, Ordering::Relaxed);
            at += 4;
        } else {
            mark_byte(target, to + at, marks & (1 << ((from + at) % 4)) != 0);
            at += 1;
        }
    }
}

fn mark_byte(target: &Allocation, byte: u64, written: bool) {
    let (shadow, bit) = (shadow_of(target, byte / 4), 1 << (byte % 4));
    if written {
        shadow.fetch_or(bit, Ordering::Relaxed);
    } else {
        shadow.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// The shadow of a word of an allocation.
fn shadow_of(allocation: &Allocation, word: u64) -> &AtomicU8 {
    let word = word.min((allocation.bytes() - 1) / 4);
    // SAFETY: the shadow has a byte for every word, the number is inside (bounded above), and the block lives as long
    // as the allocation.
    unsafe { &*allocation.block.shadow().wrapping_add(word as usize) }
}

#[cfg(test)]
mod tests {
    use super::super::block::Block;
    use super::super::space::{Kind, Space};
    use super::*;

    fn marks(allocation: &Allocation, words: u64) -> Vec<u8> {
        (0..words).map(|word| shadow_of(allocation, word).load(Ordering::Relaxed)).collect()
    }

    fn device(space: &Space, bytes: u64) -> Arc<Allocation> {
        space.place(Block::device(bytes).unwrap(), 1, 0, Kind::Device).unwrap()
    }

    #[test]
    fn exactly_the_bytes_copied_from_the_host_are_marked() {
        let space = Space::new();
        for (offset, bytes) in [(0, 64), (1, 2), (3, 2), (2, 61), (5, 59), (4, 4), (0, 1), (63, 1)] {
            let target = device(&space, 64);
            let source: Arc<[u8]> = (0..bytes as u8).collect();
            // SAFETY: every range lies inside the 64 bytes.
            unsafe { copy(&Place::Device(Arc::clone(&target), offset), &Place::Bytes(source), bytes) };
            for byte in 0..64 {
                let inside = (offset..offset + bytes).contains(&byte);
                let marked = marks(&target, 16)[byte as usize / 4] & (1 << (byte % 4)) != 0;
                assert_eq!(marked, inside, "byte {byte} of {offset}+{bytes}");
                // SAFETY: inside the block.
                let value = unsafe { target.block.data().wrapping_add(byte as usize).read() };
                assert_eq!(value, if inside { (byte - offset) as u8 } else { 0xCB });
            }
        }
    }

    #[test]
    fn a_copy_of_unwritten_memory_stays_unwritten() {
        let space = Space::new();
        for (from, to) in [(0, 0), (1, 1), (1, 2), (8, 3)] {
            let (source, target) = (device(&space, 64), device(&space, 64));
            mark_written(&target, 0, 64);
            mark_written(&source, 10, 7);
            // SAFETY: both ranges lie inside the 64 bytes.
            unsafe { copy(&Place::Device(Arc::clone(&target), to), &Place::Device(source, from), 40) };
            for byte in 0..64_u64 {
                let copied = (to..to + 40).contains(&byte);
                let written = !copied || (10..17).contains(&(byte - to + from));
                let marked = marks(&target, 16)[byte as usize / 4] & (1 << (byte % 4)) != 0;
                assert_eq!(marked, written, "byte {byte}, {from} to {to}");
            }
        }
    }

    #[test]
    fn a_set_repeats_its_value_and_ends_where_it_should() {
        let space = Space::new();
        let target = device(&space, 12000);
        // SAFETY: 4 + 2999 - 4 words inside 3000 words.
        unsafe { set(&target, 4, 0x0403_0201, 4, 2995) };
        let byte = |at: usize| {
            // SAFETY: inside the block.
            unsafe { target.block.data().wrapping_add(at).read() }
        };
        assert_eq!((byte(3), byte(4), byte(11_983), byte(11_984)), (0xCB, 1, 4, 0xCB));
        assert_eq!(marks(&target, 3000).iter().filter(|&&mark| mark == SHADOW_INIT).count(), 2995);
    }
}
