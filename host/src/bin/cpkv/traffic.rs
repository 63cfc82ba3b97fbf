//! What the ranks must send each other for a batch, and the least time that takes.

use cpkv::compose::{Gathered, Stats};
use cpkv::model::ModelSpec;
use cpkv::plan::{PageSources, SlotPlan, Strategy};
use serde::Serialize;

use crate::samples::Samples;

/// The largest batch's traffic, and a bound for every timed round.
#[derive(Default)]
pub(crate) struct Traffic {
    /// Dense slots of the batch that `largest` is of.
    num_slots: u32,
    largest: Gathered,
    lower_bound_ms: Samples,
}

/// What a batch's gathers read of all layers with the default strategy.
fn gathered(slots: &SlotPlan, model: &ModelSpec) -> Gathered {
    let mut gathered = Gathered::nothing(slots.shape.group_size.len());
    gathered.add(&PageSources::of(slots, Strategy::StagingFill), model.page_bytes_all_layers());
    gathered
}

impl Traffic {
    /// A batch was composed.
    pub(crate) fn batch(&mut self, slots: &SlotPlan, model: &ModelSpec) {
        if self.largest.prefix_bytes.is_empty() || slots.num_slots() > self.num_slots {
            (self.num_slots, self.largest) = (slots.num_slots(), gathered(slots, model));
        }
    }

    /// A memcpy of the batch's dense buffers took `ms` in every rank: the rate that the batch's bound assumes of links.
    pub(crate) fn memcpy(&mut self, slots: &SlotPlan, model: &ModelSpec, ms: f64) {
        let dense_bytes = u64::from(slots.num_slots()) * model.page_bytes_all_layers();
        let bound = gathered(slots, model).lower_bound(dense_bytes as f64 / ms * 1e3);
        self.lower_bound_ms.extend(bound.map(|bound| bound.as_secs_f64() * 1e3));
    }
}

/// The statistics of the report: the composer's, and what follows from batches and times.
#[derive(Serialize)]
pub(crate) struct StatsReport {
    #[serde(flatten)]
    pub(crate) stats: Stats,
    /// By rank: what its peers read from it in one compose of all layers of the largest batch.
    egress_bytes: Vec<u64>,
    /// The same, busiest over mean.
    egress_skew: f64,
    /// Median over batches and rounds, as the strategies' times; `None` where nothing was timed.
    lower_bound_ms: Option<f64>,
}

impl StatsReport {
    /// `round`: to what was measured.
    pub(crate) fn new(stats: Stats, traffic: &Traffic, round: impl Fn(f64) -> f64) -> Self {
        let bounds = &traffic.lower_bound_ms;
        Self {
            stats,
            egress_bytes: traffic.largest.egress_bytes(),
            egress_skew: round(traffic.largest.egress_skew()),
            lower_bound_ms: (!bounds.is_empty()).then(|| round(bounds.median())),
        }
    }

    /// The lines below the tables.
    pub(crate) fn lines(&self) -> Vec<String> {
        let bound = self.lower_bound_ms.map_or(String::new(), |ms| {
            format!("; lower bound {ms:.2} ms a batch, if the busiest rank's link were as fast as the memcpy")
        });
        let mut lines = vec![format!("egress: busiest rank over mean {:.2}{bound}", self.egress_skew)];
        if let Some(waits) = self.stats.barrier_waits.as_ref().filter(|waits| waits.num_barriers > 0) {
            let worst = waits.late_ranks.iter().max_by_key(|late| late.longest_wait_ns);
            lines.extend(worst.map(|late| {
                format!(
                    "longest wait in a layer's barrier {:.2} ms, for rank {}, which was last in {} of {}",
                    late.longest_wait_ns as f64 / 1e6,
                    late.rank,
                    late.num_last,
                    waits.num_barriers
                )
            }));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use cpkv::plan::{Batch, PlanShape, RequestPages};
    use cpkv::units::{GroupSize, PageId};

    use super::*;

    /// `num_pages` pages of prefix, all of rank 1's.
    fn slots(num_pages: i32) -> SlotPlan {
        let group_size = GroupSize::new(4).unwrap();
        let shape = PlanShape { group_size, page_size: 4, num_logical_pages: 100 };
        let prefix_pages = (0..num_pages).map(|page| PageId(4 * page + 1)).collect();
        let request =
            RequestPages { prefix_tokens: 4 * num_pages as u32, prefix_pages, ..RequestPages::default() };
        SlotPlan::build(shape, &Batch { requests: vec![request], num_pad_slots: 0 }).unwrap()
    }

    #[test]
    fn the_bound_takes_links_for_as_fast_as_the_memcpy_of_the_same_round() {
        let model = ModelSpec::preset("tiny").unwrap();
        let mut traffic = Traffic::default();
        for (num_pages, ms) in [(2, 1.0), (5, 2.0), (3, 10.0)] {
            let slots = slots(num_pages);
            traffic.batch(&slots, &model);
            traffic.memcpy(&slots, &model, ms);
        }
        let report = StatsReport::new(Stats::default(), &traffic, |value| value);
        let all_layers = 5 * model.page_bytes_all_layers();
        assert_eq!(report.egress_bytes, [0, 3 * all_layers, 0, 0]);
        assert_eq!(report.egress_skew, 4.0);
        // One rank sends everything to three peers: three times the memcpy.
        assert!(
            report.lower_bound_ms.is_some_and(|ms| (ms - 6.0).abs() < 1e-6),
            "{:?}",
            report.lower_bound_ms
        );
    }

    #[test]
    fn without_a_round_there_is_no_bound() {
        let report = StatsReport::new(Stats::default(), &Traffic::default(), |value| value);
        assert_eq!((report.lower_bound_ms, report.egress_skew), (None, 1.0));
        assert_eq!(report.lines(), ["egress: busiest rank over mean 1.00"]);
    }
}
