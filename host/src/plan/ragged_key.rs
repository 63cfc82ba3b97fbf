//! The content key of a ragged index plan: equal for batches that give the same plan.

use std::fmt;

use xxhash_rust::xxh3::Xxh3;

use super::fingerprint::feed;
use super::{Batch, PlanShape, RequestPages, RequestTokens};
use crate::units::Rank;

/// 128-bit hash of everything a [`RaggedPlan`](super::RaggedPlan) derives from: group size, page size, rank, and per
/// request its prefix and new tokens. Page ids and padding slots are not among it, so a batch on other pages has the
/// same key. Rank-local: not for comparing ranks, which is what a [`Fingerprint`](super::Fingerprint) is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RaggedKey(u128);

impl RaggedKey {
    /// The key of the plan of `batch` for `rank`, whether or not the batch can be planned.
    pub fn of(shape: PlanShape, rank: Rank, batch: &Batch) -> Self {
        Self::of_tokens(shape, rank, batch.requests.iter().map(RequestPages::tokens))
    }

    /// The key of a batch of requests with these lengths.
    pub(super) fn of_tokens(
        shape: PlanShape,
        rank: Rank,
        tokens: impl Iterator<Item = RequestTokens>,
    ) -> Self {
        let mut hash = Xxh3::new();
        feed(&mut hash, &[shape.group_size.get(), shape.page_size, rank.0]);
        for RequestTokens { prefix, new } in tokens {
            feed(&mut hash, &[prefix, new]);
        }
        Self(hash.digest128())
    }
}

impl fmt::Display for RaggedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
