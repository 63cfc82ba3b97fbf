//! Packs a plan's tables into one block of bytes, so that one upload brings all of them.

use std::ops::Range;

use cpkv_kernels::abi::{ByteRange, Descriptor};

/// Tables start at multiples of this.
const TABLE_ALIGN: usize = 16;

/// Where a table lies in the block: byte offset and number of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Byte offset in the block.
    pub offset: u64,
    /// Number of entries.
    pub len: u32,
}

/// Collects tables.
#[derive(Debug, Default)]
pub struct TablePacker {
    bytes: Vec<u8>,
}

/// The finished block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedTables {
    /// What is uploaded.
    pub bytes: Vec<u8>,
}

/// An entry of a table, with its little-endian bytes as the kernels read them. `put` is inline in every crate that packs:
/// a call for each entry costs twenty times the copy.
pub trait Entry: Copy {
    /// Bytes of one entry.
    const BYTES: usize;
    /// Writes the entry to `out`, [`Entry::BYTES`] long.
    fn put(self, out: &mut [u8]);
}

macro_rules! integer_entry {
    ($($integer:ty),*) => {$(
        impl Entry for $integer {
            const BYTES: usize = size_of::<$integer>();
            #[inline]
            fn put(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
integer_entry!(i32, i64, u64);

impl Entry for Descriptor {
    const BYTES: usize = size_of::<Self>();
    #[inline]
    fn put(self, out: &mut [u8]) {
        self.base.put(&mut out[..4]);
        self.page.put(&mut out[4..]);
    }
}

impl Entry for ByteRange {
    const BYTES: usize = size_of::<Self>();
    #[inline]
    fn put(self, out: &mut [u8]) {
        self.offset.put(&mut out[..8]);
        self.bytes.put(&mut out[8..]);
    }
}

impl TablePacker {
    /// Adds a table and says where it lies.
    pub fn push<T: Entry>(&mut self, entries: &[T]) -> Section {
        let start = self.bytes.len().next_multiple_of(TABLE_ALIGN);
        self.bytes.resize(start + entries.len() * T::BYTES, 0);
        for (out, entry) in self.bytes[start..].chunks_exact_mut(T::BYTES).zip(entries) {
            entry.put(out);
        }
        Section { offset: start as u64, len: entries.len() as u32 }
    }

    /// The block.
    pub fn finish(self) -> PackedTables {
        PackedTables { bytes: self.bytes }
    }
}

impl Section {
    /// The table's entries `range`, of `T`, as a section of their own.
    pub fn part<T: Entry>(self, range: Range<u32>) -> Self {
        debug_assert!(range.end <= self.len);
        Self { offset: self.offset + u64::from(range.start) * T::BYTES as u64, len: range.len() as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_lie_aligned_in_order_and_little_endian() {
        let mut packer = TablePacker::default();
        let first = packer.push(&[1i32, -1, 3]);
        let second = packer.push(&[Descriptor { base: -1, page: 2 }]);
        let third = packer.push(&[ByteRange { offset: 5, bytes: 6 }]);
        assert_eq!([first.offset, second.offset, third.offset], [0, 16, 32]);
        let bytes = packer.finish().bytes;
        assert_eq!(bytes[..12], [1, 0, 0, 0, 255, 255, 255, 255, 3, 0, 0, 0]);
        assert_eq!(bytes[16..24], [255, 255, 255, 255, 2, 0, 0, 0]);
        assert_eq!(bytes[32..48], [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(first.part::<i32>(1..3), Section { offset: 4, len: 2 });
    }
}
