//! The layout of a symmetric region: carves in call order, guards between them. Pure, and equal on all ranks.

use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes before the first carve, between carves and after the last one that nobody may write.
pub const GUARD_BYTES: u64 = 256;
/// What guards are filled with.
pub const GUARD_BYTE: u8 = 0xA5;
/// Regions are multiples of this.
const REGION_ALIGN: u64 = 4096;

/// A named part of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carve {
    /// What it is for.
    pub name: String,
    /// First byte.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// The carves of a region so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArenaLayout {
    carves: Vec<Carve>,
    end: u64,
}

/// A carve that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The region would pass 2^63 bytes.
    #[error("carve `{name}` of {bytes} bytes makes the region larger than 2^63 bytes")]
    TooLarge {
        /// The carve.
        name: String,
        /// Its size.
        bytes: u64,
    },
    /// Alignments are powers of two, at most 4096.
    #[error("carve `{name}`: alignment {align} is not a power of two up to 4096")]
    Alignment {
        /// The carve.
        name: String,
        /// The refused alignment.
        align: u64,
    },
}

impl ArenaLayout {
    /// Carves `bytes` at a multiple of `align` and returns the place.
    ///
    /// # Errors
    /// [`ArenaError`].
    pub fn carve(&mut self, name: &str, bytes: u64, align: u64) -> Result<Carve, ArenaError> {
        if !align.is_power_of_two() || align > REGION_ALIGN {
            return Err(ArenaError::Alignment { name: name.to_owned(), align });
        }
        let place = |start: u64| {
            let offset = start.checked_add(GUARD_BYTES)?.checked_next_multiple_of(align)?;
            let end = offset.checked_add(bytes)?;
            (end < i64::MAX as u64 - GUARD_BYTES - REGION_ALIGN).then_some((offset, end))
        };
        let (offset, end) =
            place(self.end).ok_or_else(|| ArenaError::TooLarge { name: name.to_owned(), bytes })?;
        self.end = end;
        let carve = Carve { name: name.to_owned(), offset, bytes };
        self.carves.push(carve.clone());
        Ok(carve)
    }

    /// The carves, in call order.
    pub fn carves(&self) -> &[Carve] {
        &self.carves
    }

    /// The region's size in bytes.
    pub const fn region_bytes(&self) -> u64 {
        (self.end + GUARD_BYTES).next_multiple_of(REGION_ALIGN)
    }

    /// Hash of names, sizes, places and order: what ranks compare.
    pub fn fingerprint(&self) -> u64 {
        let mut bytes = Vec::new();
        for carve in &self.carves {
            bytes.extend_from_slice(&(carve.name.len() as u64).to_le_bytes());
            bytes.extend_from_slice(carve.name.as_bytes());
            bytes.extend_from_slice(&carve.offset.to_le_bytes());
            bytes.extend_from_slice(&carve.bytes.to_le_bytes());
        }
        xxh3_64(&bytes)
    }

    /// The guards: everything in the region that is no carve, as `(offset, bytes)`.
    pub fn guards(&self) -> Vec<(u64, u64)> {
        let mut start = 0;
        let mut guards = Vec::with_capacity(self.carves.len() + 1);
        for carve in &self.carves {
            guards.push((start, carve.offset - start));
            start = carve.offset + carve.bytes;
        }
        guards.push((start, self.region_bytes() - start));
        guards
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn order_of_carves_changes_the_fingerprint() {
        let layout = |names: [&str; 3]| {
            let mut layout = ArenaLayout::default();
            names.into_iter().for_each(|name| drop(layout.carve(name, 64, 64).unwrap()));
            layout.fingerprint()
        };
        assert_ne!(layout(["a", "b", "c"]), layout(["a", "c", "b"]));
        assert_eq!(layout(["a", "b", "c"]), layout(["a", "b", "c"]));
    }

    #[test]
    fn carves_that_overflow_or_have_odd_alignments_are_refused() {
        let mut layout = ArenaLayout::default();
        assert!(matches!(layout.carve("huge", u64::MAX, 16), Err(ArenaError::TooLarge { .. })));
        assert!(matches!(layout.carve("odd", 1, 3), Err(ArenaError::Alignment { align: 3, .. })));
        assert!(layout.carves().is_empty());
    }

    proptest! {
        #[test]
        fn carves_are_aligned_disjoint_and_guarded(
            wanted in prop::collection::vec((0u64..10_000, 0u32..=12), 0..20),
        ) {
            let mut layout = ArenaLayout::default();
            let mut end = 0;
            for (bytes, align) in wanted {
                let carve = layout.carve("part", bytes, 1 << align).unwrap();
                prop_assert_eq!(carve.offset % (1 << align), 0);
                prop_assert!(carve.offset >= end + GUARD_BYTES);
                end = carve.offset + bytes;
            }
            let guarded: u64 = layout.guards().iter().map(|guard| guard.1).sum();
            let carved: u64 = layout.carves().iter().map(|carve| carve.bytes).sum();
            prop_assert_eq!(guarded + carved, layout.region_bytes());
            prop_assert!(layout.guards().iter().all(|guard| guard.1 >= GUARD_BYTES));
        }
    }
}
