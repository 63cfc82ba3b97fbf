//! Where one process's shard of a pool lies: what addresses are computed from, on either side. Pure.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One buffer of one layer in a shard: page `i` of the shard is at `addr + i * page_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerBuffer {
    /// Address of the shard's first page, in the process that holds it.
    pub addr: u64,
    /// Bytes of one page.
    pub page_bytes: u64,
}

/// A shard of a pool: `layers[layer]` are the layer's buffers, in the model's order, each `[num_pages, page_bytes]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMap {
    /// Pages of the shard, the same in every buffer.
    pub num_pages: u32,
    /// By layer (draft layers last): its buffers.
    pub layers: Vec<Vec<LayerBuffer>>,
}

/// Two shards that pages cannot be copied between.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PoolMapError {
    /// Another number of layers.
    #[error("{expected} layers here, {got} there: both sides must serve the same model")]
    NumLayers {
        /// Layers of this side.
        expected: usize,
        /// Layers of the other.
        got: usize,
    },
    /// Another number of buffers in a layer.
    #[error("layer {layer}: {expected} buffers here, {got} there: both sides must serve the same model")]
    NumBuffers {
        /// The layer.
        layer: usize,
        /// Buffers of this side.
        expected: usize,
        /// Buffers of the other.
        got: usize,
    },
    /// Pages of another size.
    #[error("layer {layer}, buffer {buffer}: pages of {expected} bytes here, of {got} there")]
    PageBytes {
        /// The layer.
        layer: usize,
        /// Position among the layer's buffers.
        buffer: usize,
        /// Page bytes of this side.
        expected: u64,
        /// Page bytes of the other.
        got: u64,
    },
}

impl PoolMap {
    /// The number of layers, draft layers included.
    pub const fn num_layers(&self) -> usize {
        self.layers.len()
    }

    /// Whether pages of this shard fit those of `other`, layer by layer, buffer by buffer.
    ///
    /// # Errors
    /// [`PoolMapError`]: the first difference, with both values.
    pub fn check_alike(&self, other: &Self) -> Result<(), PoolMapError> {
        let (expected, got) = (self.num_layers(), other.num_layers());
        if expected != got {
            return Err(PoolMapError::NumLayers { expected, got });
        }
        for (layer, (mine, theirs)) in self.layers.iter().zip(&other.layers).enumerate() {
            let (expected, got) = (mine.len(), theirs.len());
            if expected != got {
                return Err(PoolMapError::NumBuffers { layer, expected, got });
            }
            let pairs = mine.iter().zip(theirs).enumerate();
            for (buffer, (mine, theirs)) in pairs {
                let (expected, got) = (mine.page_bytes, theirs.page_bytes);
                if expected != got {
                    return Err(PoolMapError::PageBytes { layer, buffer, expected, got });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(page_bytes: &[&[u64]]) -> PoolMap {
        let buffer = |&page_bytes: &u64| LayerBuffer { addr: 4096, page_bytes };
        PoolMap {
            num_pages: 4,
            layers: page_bytes.iter().map(|layer| layer.iter().map(buffer).collect()).collect(),
        }
    }

    #[test]
    fn shards_of_another_size_are_alike_and_other_pages_are_refused_with_both_values() {
        let mine = map(&[&[128, 64], &[128]]);
        let other = PoolMap { num_pages: 9, ..mine.clone() };
        assert_eq!(mine.check_alike(&other), Ok(()));
        let cases = [
            (map(&[&[128, 64]]), "2 layers here, 1 there"),
            (map(&[&[128], &[128]]), "layer 0: 2 buffers here, 1 there"),
            (map(&[&[128, 64], &[256]]), "layer 1, buffer 0: pages of 128 bytes here, of 256 there"),
        ];
        for (theirs, message) in cases {
            let error = mine.check_alike(&theirs).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
