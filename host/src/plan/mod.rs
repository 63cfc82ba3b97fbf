//! Plans: everything about a batch that does not change from layer to layer. Pure values.

mod batch;
mod capacity;
mod descriptors;
mod error;
mod fingerprint;
mod inverse;
mod pack;
mod page_set;
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
pub use rank_rows::{PartialPage, RankRows, zero_ranges};
pub use slots::{DenseRows, SlotPlan, Straddle};
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

/// The plan of one batch on one rank. Built once, used by every layer; who holds the batch holds the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchPlan {
    /// The rank it is for.
    pub rank: Rank,
    /// What is the same on every rank.
    pub slots: SlotPlan,
    /// The rows this rank computes.
    pub rows: RankRows,
}

impl BatchPlan {
    /// Builds the plan of `batch` for `rank`.
    ///
    /// # Errors
    /// [`PlanError`]: a page out of range, named twice, or current and prefix at once; lists of the wrong length.
    pub fn build(shape: PlanShape, rank: Rank, batch: &Batch) -> Result<Self, PlanError> {
        if rank.0 >= shape.group_size.get() {
            return Err(PlanError::RankOutOfRange { rank, group_size: shape.group_size });
        }
        let slots = SlotPlan::build(shape, batch)?;
        let rows = RankRows::build(&slots, rank);
        Ok(Self { rank, slots, rows })
    }
}
