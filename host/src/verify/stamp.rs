//! Stamps: rows whose every word says where it belongs, so that no byte is right by luck.

use crate::model::BufferId;
use crate::pages::INDEX_K_DIM;
use crate::units::{PageId, Rank};

/// A row's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowId {
    /// The rank that computed it.
    pub writer: Rank,
    /// The buffer.
    pub buffer: BufferId,
    /// The layer.
    pub layer: usize,
    /// The page it was computed for.
    pub page: PageId,
    /// Its position in the page.
    pub row: u32,
    /// The compose that computed it.
    pub generation: u64,
}

/// Makes stamps: another seed, other stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// The seed.
    pub seed: u64,
}

impl Stamps {
    /// Fills `out` with the row's bytes. Every aligned 8-byte word is a one-to-one mix of all that identifies it
    /// (64 ranks, 4 buffers, 256 layers, 2^20 pages, 1024 rows, 512 words, 512 generations, then repeating).
    pub fn token_row(&self, id: RowId, out: &mut [u8]) {
        let row = self.packed(id);
        for (bytes, idx) in out.chunks_mut(8).zip(0..) {
            let word = mix((row | idx) ^ mix(self.seed));
            match <&mut [u8; 8]>::try_from(&mut *bytes) {
                Ok(whole) => *whole = word.to_le_bytes(),
                Err(_) => bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]),
            }
        }
    }

    /// The row's bf16 keys: finite, of either sign, between 2^-15 and 2.
    pub fn key_row(&self, id: RowId) -> [u16; INDEX_K_DIM as usize] {
        let mut bytes = [0; 2 * INDEX_K_DIM as usize];
        self.token_row(id, &mut bytes);
        let mut keys = [0; INDEX_K_DIM as usize];
        for (key, bytes) in keys.iter_mut().zip(bytes.chunks_exact(2)) {
            *key = u16::from_le_bytes([bytes[0], bytes[1]]) & 0x87ff | 0x3800;
        }
        keys
    }

    /// Everything but the word, in the bits above the word's 9.
    fn packed(&self, id: RowId) -> u64 {
        let fields = [
            (u64::from(id.writer.0), 6),
            (u64::from(id.buffer.0), 2),
            (id.layer as u64, 8),
            (id.page.0 as u64, 20),
            (u64::from(id.row), 10),
            (id.generation, 9),
        ];
        let mut packed = 0;
        for (value, bits) in fields {
            packed = packed << bits | value & ((1 << bits) - 1);
        }
        packed << 9
    }
}

/// A bijection of 64-bit words in which every input bit reaches every output bit (the finaliser of SplitMix64).
const fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const ID: RowId =
        RowId { writer: Rank(3), buffer: BufferId(1), layer: 5, page: PageId(77), row: 9, generation: 2 };

    fn words(seed: u64, id: RowId) -> Vec<[u8; 8]> {
        let mut out = [0; 64];
        Stamps { seed }.token_row(id, &mut out);
        out.chunks_exact(8).map(|word| word.try_into().unwrap()).collect()
    }

    #[test]
    fn every_field_changes_every_word() {
        let others = [
            RowId { writer: Rank(4), ..ID },
            RowId { buffer: BufferId(0), ..ID },
            RowId { layer: 6, ..ID },
            RowId { page: PageId(78), ..ID },
            RowId { row: 10, ..ID },
            RowId { generation: 3, ..ID },
        ];
        let rows = others.into_iter().chain([ID]).map(|id| words(1, id)).chain([words(2, ID)]);
        let all: HashSet<_> = rows.flatten().collect();
        assert_eq!(all.len(), 8 * 8);
    }

    #[test]
    fn words_of_a_row_differ_and_a_short_tail_is_cut() {
        let mut out = [0; 20];
        Stamps { seed: 1 }.token_row(ID, &mut out);
        assert_ne!(out[..8], out[8..16]);
        let mut longer = [0; 24];
        Stamps { seed: 1 }.token_row(ID, &mut longer);
        assert_eq!(out[16..], longer[16..20]);
    }

    #[test]
    fn keys_are_finite_and_not_all_alike() {
        let keys = Stamps { seed: 1 }.key_row(ID);
        let values = keys.map(cpkv_kernels::fp8::bf16_to_f32);
        assert!(values.iter().all(|value| value.is_finite() && value.abs() < 2.0 && value.abs() > 2e-5));
        assert!(keys.iter().collect::<HashSet<_>>().len() > 100);
    }
}
