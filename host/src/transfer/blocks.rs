//! What an engine is asked to write: blocks of bytes, computed from page numbers. Pure.
//!
//! The two page lists of a request are the same for all layers; only base addresses and page bytes change. So what can be
//! checked and merged is checked and merged once ([`PageRuns`]), and a layer's blocks are a multiplication each.

use thiserror::Error;

use crate::pages::PoolMap;

/// One run of bytes to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Where it is, in this process.
    pub src: u64,
    /// Where it goes, in the peer.
    pub dst: u64,
    /// How long it is.
    pub bytes: u64,
}

/// Page lists that no blocks can be made of.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlockError {
    /// Lists of different lengths.
    #[error("{num_src} source pages but {num_dst} destination pages: pair them by position in the request")]
    Lengths {
        /// Source pages.
        num_src: usize,
        /// Destination pages.
        num_dst: usize,
    },
    /// A source page outside this rank's shard.
    #[error("source page {page} at place {at} of the list is outside the shard of {num_pages} pages")]
    SrcPage {
        /// Position in the list.
        at: usize,
        /// Its place in the shard.
        page: u32,
        /// Pages of the shard.
        num_pages: u32,
    },
    /// A destination page outside the worker's shard.
    #[error(
        "destination page {page} at place {at} of the list is outside the worker's shard of {num_pages} pages"
    )]
    DstPage {
        /// Position in the list.
        at: usize,
        /// Its place in the shard.
        page: u32,
        /// Pages of the shard.
        num_pages: u32,
    },
    /// Two pages would be written to one place.
    #[error("destination page {page} is named twice: one of the pages would overwrite the other")]
    Overlap {
        /// Its place in the worker's shard.
        page: u32,
    },
    /// A layer that is not there on one side.
    #[error("layer {layer}: there are {num_src} layers here and {num_dst} at the worker")]
    Layer {
        /// The layer.
        layer: usize,
        /// Layers of this side.
        num_src: usize,
        /// Layers of the other.
        num_dst: usize,
    },
}

/// Pages that are neighbours on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    src: u32,
    dst: u32,
    num_pages: u32,
}

/// Pages of one shard and where they go in another: checked, and merged to runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRuns {
    runs: Vec<Run>,
    num_pages: usize,
}

impl PageRuns {
    /// Pairs `src[i]` with `dst[i]`: places in shards of `num_src_pages` and `num_dst_pages` pages.
    ///
    /// # Errors
    /// [`BlockError`]: lists of different lengths, pages outside a shard, a destination named twice.
    pub fn new(src: &[u32], dst: &[u32], num_src_pages: u32, num_dst_pages: u32) -> Result<Self, BlockError> {
        if src.len() != dst.len() {
            return Err(BlockError::Lengths { num_src: src.len(), num_dst: dst.len() });
        }
        if let Some((at, &page)) = src.iter().enumerate().find(|(_, page)| **page >= num_src_pages) {
            return Err(BlockError::SrcPage { at, page, num_pages: num_src_pages });
        }
        if let Some((at, &page)) = dst.iter().enumerate().find(|(_, page)| **page >= num_dst_pages) {
            return Err(BlockError::DstPage { at, page, num_pages: num_dst_pages });
        }
        let mut pairs: Vec<(u32, u32)> = dst.iter().copied().zip(src.iter().copied()).collect();
        // Neighbours in the destination become neighbours in the list, whatever the order of the request.
        pairs.sort_unstable();
        let mut runs: Vec<Run> = Vec::new();
        for &(dst, src) in &pairs {
            match runs.last_mut() {
                Some(last) if dst < last.dst + last.num_pages => {
                    return Err(BlockError::Overlap { page: dst });
                }
                Some(last) if dst == last.dst + last.num_pages && src == last.src + last.num_pages => {
                    last.num_pages += 1;
                }
                _ => runs.push(Run { src, dst, num_pages: 1 }),
            }
        }
        Ok(Self { runs, num_pages: pairs.len() })
    }

    /// Pages in all.
    pub const fn num_pages(&self) -> usize {
        self.num_pages
    }

    /// Whether there is no page.
    pub const fn is_empty(&self) -> bool {
        self.num_pages == 0
    }

    /// Runs: blocks of each buffer.
    pub const fn num_runs(&self) -> usize {
        self.runs.len()
    }
}

/// The blocks of `layer`: for each of its buffers, one a run. Appends them to `out`.
///
/// # Errors
/// [`BlockError::Layer`] where a side has no such layer. That pages are alike is [`PoolMap::check_alike`]'s to say.
pub fn build_layer_blocks(
    layer: usize,
    src: &PoolMap,
    dst: &PoolMap,
    runs: &PageRuns,
    out: &mut Vec<Block>,
) -> Result<(), BlockError> {
    let (Some(src_buffers), Some(dst_buffers)) = (src.layers.get(layer), dst.layers.get(layer)) else {
        return Err(BlockError::Layer { layer, num_src: src.num_layers(), num_dst: dst.num_layers() });
    };
    for (src, dst) in src_buffers.iter().zip(dst_buffers) {
        let page_bytes = src.page_bytes;
        out.extend(runs.runs.iter().map(|run| Block {
            src: src.addr + u64::from(run.src) * page_bytes,
            dst: dst.addr + u64::from(run.dst) * page_bytes,
            bytes: u64::from(run.num_pages) * page_bytes,
        }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::transfer::LayerBuffer;

    fn pool(num_pages: u32, addrs: &[u64]) -> PoolMap {
        let buffers = addrs.iter().zip([100, 10]).map(|(&addr, page_bytes)| LayerBuffer { addr, page_bytes });
        PoolMap { num_pages, layers: vec![Vec::new(), buffers.collect()] }
    }

    #[test]
    fn neighbours_on_both_sides_become_one_block_in_each_buffer() {
        let runs = PageRuns::new(&[3, 4, 7, 5], &[8, 9, 2, 10], 8, 11).unwrap();
        assert_eq!((runs.num_pages(), runs.num_runs()), (4, 2));
        let (src, dst) = (pool(8, &[1000, 5000]), pool(11, &[20_000, 90_000]));
        let mut blocks = Vec::new();
        build_layer_blocks(1, &src, &dst, &runs, &mut blocks).unwrap();
        let block = |src, dst, bytes| Block { src, dst, bytes };
        let expected = [
            block(1700, 20_200, 100),
            block(1300, 20_800, 300),
            block(5070, 90_020, 10),
            block(5030, 90_080, 30),
        ];
        assert_eq!(blocks, expected);
        blocks.clear();
        build_layer_blocks(0, &src, &dst, &runs, &mut blocks).unwrap();
        assert!(blocks.is_empty(), "a layer without buffers");
        let error = build_layer_blocks(2, &src, &dst, &runs, &mut blocks).unwrap_err();
        assert_eq!(error, BlockError::Layer { layer: 2, num_src: 2, num_dst: 2 });
    }

    #[test]
    fn lists_that_do_not_fit_are_refused() {
        let new = |src: &[u32], dst: &[u32]| PageRuns::new(src, dst, 4, 6).unwrap_err();
        assert_eq!(new(&[1], &[]), BlockError::Lengths { num_src: 1, num_dst: 0 });
        assert_eq!(new(&[0, 4], &[0, 1]), BlockError::SrcPage { at: 1, page: 4, num_pages: 4 });
        assert_eq!(new(&[0, 1], &[6, 1]), BlockError::DstPage { at: 0, page: 6, num_pages: 6 });
        assert_eq!(new(&[0, 1, 2], &[3, 1, 3]), BlockError::Overlap { page: 3 });
        assert_eq!(new(&[0, 1, 2], &[3, 4, 4]), BlockError::Overlap { page: 4 });
    }

    proptest! {
        /// Merged or not, every page's bytes go where its pair says, and no other byte is named.
        #[test]
        fn blocks_are_the_pages(pairs in proptest::collection::btree_map(0u32..40, 0u32..30, 0..40)) {
            let (dst, src): (Vec<u32>, Vec<u32>) = pairs.iter().map(|(dst, src)| (*dst, *src)).unzip();
            let runs = PageRuns::new(&src, &dst, 30, 40).unwrap();
            let mut blocks = Vec::new();
            build_layer_blocks(1, &pool(30, &[0, 10_000]), &pool(40, &[0, 10_000]), &runs, &mut blocks).unwrap();
            let mut bytes: Vec<(u64, u64)> = blocks
                .iter()
                .flat_map(|block| (0..block.bytes).map(|i| (block.dst + i, block.src + i)))
                .collect();
            bytes.sort_unstable();
            let page = |base: u64, page_bytes: u64| {
                pairs.iter().flat_map(move |(&dst, &src)| (0..page_bytes).map(move |i| {
                    (base + u64::from(dst) * page_bytes + i, base + u64::from(src) * page_bytes + i)
                }))
            };
            let expected: Vec<_> = page(0, 100).chain(page(10_000, 10)).collect();
            prop_assert_eq!(bytes, expected);
        }
    }
}
