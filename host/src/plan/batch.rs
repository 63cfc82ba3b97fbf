//! What a planner is told of a batch: per request, the pages it has and the pages it will write.

use super::RequestTokens;
use crate::units::PageId;

/// One request of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestPages {
    /// Tokens whose KV is in the pool already.
    pub prefix_tokens: u32,
    /// Tokens this forward computes. May be 0.
    pub new_tokens: u32,
    /// `[ceil(prefix_tokens / page_size)]` pages that hold the prefix, in sequence order; the last one may
    /// be partly prefix (the straddling page: a shared original that is only read). [`PageId::PAD`] is a
    /// padding slot.
    pub prefix_pages: Vec<PageId>,
    /// The pages this forward writes, in sequence order: they hold tokens
    /// `floor(prefix_tokens / page_size) * page_size .. prefix_tokens + new_tokens`. With a straddling page
    /// the first of them is its private copy.
    pub current_pages: Vec<PageId>,
}

impl RequestPages {
    /// Its lengths.
    pub(super) const fn tokens(&self) -> RequestTokens {
        RequestTokens { prefix: self.prefix_tokens, new: self.new_tokens }
    }
}

/// A batch, the same on every rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The requests, in dense-slot order.
    pub requests: Vec<RequestPages>,
    /// Padding slots after the last request (a runtime pads to the shapes it captured).
    pub num_pad_slots: u32,
}

impl Batch {
    /// Tokens the batch computes.
    pub fn new_tokens(&self) -> u64 {
        self.requests.iter().map(|request| u64::from(request.new_tokens)).sum()
    }

    /// Tokens that were in the pool before.
    pub fn prefix_tokens(&self) -> u64 {
        self.requests.iter().map(|request| u64::from(request.prefix_tokens)).sum()
    }
}
