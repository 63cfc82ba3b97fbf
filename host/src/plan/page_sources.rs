//! Whose memory the gathers of a batch read: how many pages each rank serves, and how unevenly.

use super::{SlotPlan, SpanKind, Strategy};

/// Pages of one layer, by the rank whose memory a gather reads them from. The same for every rank's gather, so rank `r`
/// is read `R - 1` times as much by its peers: its egress. A page that two dense slots name is read twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSources {
    /// `[group_size]` prefix pages, by owner.
    pub prefix: Vec<u64>,
    /// `[group_size]` current pages, by writer.
    pub current: Vec<u64>,
}

impl PageSources {
    /// What the gathers of `strategy` read. Nothing, where each rank fills in what it has and a collective does the
    /// rest; no current page, where a collective brings those.
    pub fn of(slots: &SlotPlan, strategy: Strategy) -> Self {
        let num_ranks = slots.shape.group_size.len();
        let mut sources = Self { prefix: vec![0; num_ranks], current: vec![0; num_ranks] };
        if !strategy.needs_peer_access() {
            return sources;
        }
        let ownership = slots.ownership();
        for span in slots.spans.iter().filter(|span| span.kind == SpanKind::Prefix) {
            let pages = slots.pages.get(span.slots.start as usize..span.slots.end as usize);
            for page in pages.unwrap_or_default().iter().filter(|page| !page.is_pad()) {
                sources.prefix[ownership.owner(*page).idx()] += 1;
            }
        }
        if !strategy.needs_collective() {
            slots.writers.iter().for_each(|writer| sources.current[writer.idx()] += 1);
        }
        sources
    }

    /// `[group_size]` pages that every gather reads from each rank's memory.
    pub fn pages(&self) -> Vec<u64> {
        self.prefix.iter().zip(&self.current).map(|(prefix, current)| prefix + current).collect()
    }

    /// `[group_size]` pages that all peers together read from each rank's memory.
    pub fn egress_pages(&self) -> Vec<u64> {
        let num_peers = (self.prefix.len() as u64).saturating_sub(1);
        self.pages().into_iter().map(|pages| num_peers * pages).collect()
    }
}

/// How uneven `loads` are: the busiest over the mean. 1 where all are equal (or nobody does anything), their number
/// where one has it all.
pub fn skew(loads: &[u64]) -> f64 {
    let total: u64 = loads.iter().sum();
    let busiest = loads.iter().copied().max().unwrap_or(0);
    if total == 0 { 1.0 } else { busiest as f64 * loads.len() as f64 / total as f64 }
}
