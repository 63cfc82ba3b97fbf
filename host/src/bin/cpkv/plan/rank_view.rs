//! What there is to show of one rank of a batch.

use std::ops::Range;

use cpkv::plan::{BatchPlan, PageSources};
use cpkv::units::{PageId, Rank};
use serde::Serialize;

/// A rank.
#[derive(Serialize)]
pub(crate) struct RankView {
    pub(crate) rank: u32,
    pub(crate) computed_pages: u32,
    /// New tokens it computes.
    pub(crate) rows: u32,
    /// Runs of the staging slots it fills.
    pub(crate) staging_slots: Vec<Range<u32>>,
    /// Prefix slots whose page it owns, and current pages that it keeps afterwards.
    pub(crate) owned_prefix_pages: u64,
    pub(crate) owned_current_pages: u64,
    /// What all peers together read from it.
    pub(crate) egress_pages: u64,
    /// The same over all buffers of all layers.
    pub(crate) egress_bytes: u64,
    /// Its ragged index plan, without the offset of each row.
    pub(crate) sections: Vec<SectionView>,
}

/// A segment of a request as attention sees it.
#[derive(Serialize)]
pub(crate) struct SectionView {
    pub(crate) request: i32,
    pub(crate) segment: i32,
    pub(crate) q_start: i32,
    pub(crate) q_len: i32,
    pub(crate) kv_len: i32,
    pub(crate) k_base: i32,
    pub(crate) q_base: i32,
    pub(crate) current_base: i32,
}

impl RankView {
    /// Of the rank of `plan`, in a batch that reads from `sources`; a page has `page_bytes` bytes in all layers.
    pub(crate) fn new(plan: &BatchPlan, sources: &PageSources, page_bytes: u64) -> Self {
        let Rank(rank) = plan.rank;
        let ownership = plan.slots.ownership();
        let is_own = |page: &PageId| !page.is_pad() && ownership.owner(*page) == plan.rank;
        let owned = plan.slots.pages.iter().filter(|page| is_own(page)).count() as u64;
        let current = plan.slots.current_pages.iter().filter(|&&page| is_own(&PageId(page))).count() as u64;
        let egress_pages = sources.egress_pages().get(rank as usize).copied().unwrap_or(0);
        Self {
            rank,
            computed_pages: plan.rows.current_idx.len() as u32,
            rows: plan.rows.num_rows(),
            staging_slots: runs(&plan.rows.current_idx),
            owned_prefix_pages: owned - current,
            owned_current_pages: current,
            egress_pages,
            egress_bytes: egress_pages * page_bytes,
            sections: sections(plan),
        }
    }

    /// The most tokens that one of its rows attends to.
    pub(crate) fn longest_kv(&self) -> i32 {
        self.sections.iter().map(|section| section.kv_len).max().unwrap_or(0)
    }
}

fn sections(plan: &BatchPlan) -> Vec<SectionView> {
    let ragged = &plan.ragged;
    let at = |table: &[i32], idx: usize| table.get(idx).copied().unwrap_or(0);
    let segments = ragged.segments().iter().enumerate();
    segments
        .map(|(idx, &[request, segment])| SectionView {
            request,
            segment,
            q_start: at(ragged.q_starts(), idx),
            q_len: at(ragged.q_lens(), idx),
            kv_len: at(ragged.kv_lens(), idx),
            k_base: at(ragged.k_bases(), idx),
            q_base: at(ragged.q_bases(), idx),
            current_base: at(ragged.current_bases(), idx),
        })
        .collect()
}

/// Ascending numbers as runs.
fn runs(numbers: &[u32]) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_make_a_run() {
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[0, 1, 2, 5, 6, 9]), [0..3, 5..7, 9..10]);
    }
}
