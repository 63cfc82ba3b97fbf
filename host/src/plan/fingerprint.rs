//! A plan's fingerprint: equal exactly where the plans of two ranks fit together.

use std::fmt;

use xxhash_rust::xxh3::Xxh3;

use super::{Batch, PlanShape};
use crate::units::PageId;

/// 128-bit hash of everything that must be equal on all ranks; nothing rank-local.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u128);

impl Fingerprint {
    /// The fingerprint of a batch: counts, tokens, page ids and their order, and the shape.
    pub fn of(shape: PlanShape, batch: &Batch) -> Self {
        let PlanShape { group_size, page_size, num_logical_pages } = shape;
        let mut hash = Xxh3::new();
        feed(&mut hash, &[group_size.get(), page_size, num_logical_pages, batch.num_pad_slots]);
        for request in &batch.requests {
            let (num_prefix, num_current) = (request.prefix_pages.len(), request.current_pages.len());
            // The counts go first, so that a page cannot move from one list to another unseen.
            feed(
                &mut hash,
                &[request.prefix_tokens, request.new_tokens, num_prefix as u32, num_current as u32],
            );
            feed_pages(&mut hash, &request.prefix_pages);
            feed_pages(&mut hash, &request.current_pages);
        }
        Self(hash.digest128())
    }

    /// This fingerprint with `more` (strategy, layers, model) mixed in.
    pub fn with(self, more: &[u8]) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&self.0.to_le_bytes());
        hash.update(more);
        Self(hash.digest128())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Adds numbers to a hash, little-endian.
pub(super) fn feed(hash: &mut Xxh3, numbers: &[u32]) {
    numbers.iter().for_each(|number| hash.update(&number.to_le_bytes()));
}

fn feed_pages(hash: &mut Xxh3, pages: &[PageId]) {
    let mut bytes = [0; 1024];
    for chunk in pages.chunks(bytes.len() / 4) {
        for (slot, page) in bytes.chunks_exact_mut(4).zip(chunk) {
            slot.copy_from_slice(&page.0.to_le_bytes());
        }
        hash.update(&bytes[..4 * chunk.len()]);
    }
}
