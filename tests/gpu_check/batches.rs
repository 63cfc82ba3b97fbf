//! Batches to prove: shuffled pages, prefixes, padding, partial pages.

use std::collections::VecDeque;

use cpkv::model::{BufferId, LayerSpec, ModelSpec, NamedBuffer};
use cpkv::pages::{BufferKind, BufferSpec};
use cpkv::plan::{Batch, RequestPages};
use cpkv::units::PageId;

use crate::outcome::Problem;
use crate::pattern::Pattern;

/// A model of `num_layers` layers with rows of `row_bytes`, `page_size` tokens a page, and index-K in every second
/// layer.
pub(crate) fn model(num_layers: usize, page_size: u32, row_bytes: u32) -> Result<ModelSpec, Problem> {
    let named = |name: &str, kind| -> Result<NamedBuffer, Problem> {
        Ok(NamedBuffer { name: name.to_owned(), spec: BufferSpec::new(kind, page_size)? })
    };
    let buffers =
        vec![named("token-kv", BufferKind::TokenKv { row_bytes })?, named("index-k", BufferKind::IndexK)?];
    let layers = (0..num_layers).map(|layer| {
        let both = vec![BufferId::TOKEN_KV, BufferId::INDEX_K];
        let buffers = if layer % 2 == 0 { both } else { vec![BufferId::TOKEN_KV] };
        LayerSpec { buffers, draft: false }
    });
    Ok(ModelSpec { name: "gpu-check".to_owned(), page_size, buffers, layers: layers.collect() })
}

/// Hands out pages in a shuffled order, the same on every rank.
pub(crate) struct PageDealer {
    free: VecDeque<PageId>,
    page_size: u32,
}

impl PageDealer {
    /// All pages of a pool.
    pub(crate) fn new(num_pages: u32, page_size: u32) -> Self {
        let order = Pattern::new(11).permutation(num_pages as usize);
        Self { free: order.into_iter().map(PageId).collect(), page_size }
    }

    /// A request of `new_tokens` tokens behind `prefix_pages`, which are full.
    pub(crate) fn request(
        &mut self,
        prefix_pages: &[PageId],
        new_tokens: u32,
    ) -> Result<RequestPages, Problem> {
        let num_current = new_tokens.div_ceil(self.page_size);
        let current_pages: Vec<PageId> = (0..num_current).map_while(|_| self.free.pop_front()).collect();
        if current_pages.len() < num_current as usize {
            return Err("the pool of this check is too small".into());
        }
        let prefix_tokens = prefix_pages.len() as u32 * self.page_size;
        Ok(RequestPages { prefix_tokens, new_tokens, prefix_pages: prefix_pages.to_vec(), current_pages })
    }
}

/// Pages of the pool that [`conversation`] needs.
pub(crate) const CONVERSATION_PAGES: u32 = 96;

/// Three batches in which later requests build on the pages of earlier ones, the longest of `long` pages, 5 or more.
/// Pages have 8 tokens or more.
pub(crate) fn conversation(page_size: u32, long: u32) -> Result<Vec<Batch>, Problem> {
    let mut dealer = PageDealer::new(CONVERSATION_PAGES, page_size);
    let lengths = [1, page_size - 1, page_size, page_size + 1, 5 * page_size, long * page_size];
    let requests = lengths.iter().map(|&tokens| dealer.request(&[], tokens)).collect::<Result<_, _>>()?;
    let first = Batch { requests, num_pad_slots: 0 };
    let (short, longest) = (&first.requests[4].current_pages, &first.requests[5].current_pages);
    let mut padded = short[..4].to_vec();
    padded[1] = PageId::PAD;
    let requests = vec![
        dealer.request(longest, 4 * page_size + 1)?,
        dealer.request(&[], 0)?,
        dealer.request(short, 1)?,
        // Shares its prefix with the request before, but for a slot of padding.
        dealer.request(&padded, 2 * page_size)?,
    ];
    let second = Batch { requests, num_pad_slots: 3 };
    let third = Batch {
        requests: vec![dealer.request(&second.requests[3].current_pages, long * page_size - 1)?],
        num_pad_slots: 1,
    };
    Ok(vec![first, second, third])
}
