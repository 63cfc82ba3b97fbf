//! Plans: everything about a batch that does not change from layer to layer. Pure values.

mod batch;
mod capacity;
mod descriptors;
mod error;
mod fingerprint;
mod inverse;
mod pack;
mod page_set;
mod page_sources;
mod ragged;
mod ragged_block;
mod ragged_key;
mod rank_rows;
mod slots;
mod spans;
mod strategy;
#[cfg(test)]
mod tests;

pub use batch::{Batch, RequestPages};
pub use capacity::{Admission, StagingCapacity};
pub use descriptors::descriptors;
pub use error::PlanError;
pub use fingerprint::Fingerprint;
pub use inverse::PageInverse;
pub use pack::{PackedTables, Section, TablePacker};
pub use page_sources::{PageSources, skew};
pub use ragged::RaggedPlan;
pub use ragged_block::RaggedSections;
pub use ragged_key::RaggedKey;
pub use rank_rows::{PartialPage, RankRows, zero_ranges};
pub use slots::{DenseRows, RequestTokens, SlotPlan, Straddle};
pub use spans::{Span, SpanKind};
pub use strategy::{Strategy, StrategyError};

use crate::units::{GroupSize, Rank};

/// What a plan is built for: the group and the pool, but not the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanShape {
    /// Size of the group.
    pub group_size: GroupSize,
    /// Tokens a page.
    pub page_size: u32,
    /// Pages of the group-wide pool.
    pub num_logical_pages: u32,
}

impl PlanShape {
    /// Whether `rank` is in the group.
    fn check_rank(self, rank: Rank) -> Result<(), PlanError> {
        match rank.0 < self.group_size.get() {
            true => Ok(()),
            false => Err(PlanError::RankOutOfRange { rank, group_size: self.group_size }),
        }
    }
}

/// The plan of one batch on one rank. Built once, used by every layer; who holds the batch holds the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchPlan {
    /// The rank it is for.
    pub rank: Rank,
    /// What is the same on every rank.
    pub slots: SlotPlan,
    /// The rows this rank computes.
    pub rows: RankRows,
    /// What attention derives its indices from. Built with the rest, at once: its cost follows the rows, and is a small
    /// part of the plan's.
    pub ragged: RaggedPlan,
}

impl BatchPlan {
    /// Builds the plan of `batch` for `rank`.
    ///
    /// # Errors
    /// [`PlanError`]: a page out of range, named twice, or current and prefix at once; lists of the wrong length.
    pub fn build(shape: PlanShape, rank: Rank, batch: &Batch) -> Result<Self, PlanError> {
        shape.check_rank(rank)?;
        let slots = SlotPlan::build(shape, batch)?;
        let rows = RankRows::build(&slots, rank);
        let ragged = RaggedPlan::build(&slots, rank)?;
        Ok(Self { rank, slots, rows, ragged })
    }
}
