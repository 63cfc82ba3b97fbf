//! The samples of one batch of the sweep: who takes part in which round, and what they come to. Pure.

use cpkv::plan::skew;

use super::cases::Case;
use super::figures::{Figure, ratio, rounded};
use super::report::{ComposeCase, ComposeRow, Egress, Kind};
use super::turns::{Cost, Turn, turns};
use super::way::Way;
use crate::samples::Samples;

/// Samples of all ways to do one batch.
pub(crate) struct CaseSamples {
    pub(crate) case: Case,
    /// Of one rank, over all layers.
    pub(crate) dense_bytes: u64,
    pub(crate) egress: Vec<Egress>,
    pub(crate) num_rounds: u32,
    rows: Vec<Row>,
}

struct Row {
    way: Way,
    turn: Turn,
    /// Milliseconds, the same on every rank.
    samples: Samples,
}

impl CaseSamples {
    /// Without samples: `ways` take part in every round.
    pub(crate) fn new(case: Case, dense_bytes: u64, egress: Vec<Egress>, ways: &[Way]) -> Self {
        let row = |&way| Row { way, turn: Turn::ALWAYS, samples: Samples::default() };
        Self { case, dense_bytes, egress, num_rounds: 0, rows: ways.iter().map(row).collect() }
    }

    pub(crate) fn push(&mut self, way: Way, ms: f64) {
        self.rows.iter_mut().filter(|row| row.way == way).for_each(|row| row.samples.push(ms));
    }

    /// Drops the samples: they warmed up.
    pub(crate) fn forget(&mut self) {
        self.rows.iter_mut().for_each(|row| row.samples = Samples::default());
    }

    /// Whether `way` takes part in `round`.
    pub(crate) fn is_due(&self, way: Way, round: u32) -> bool {
        self.rows.iter().any(|row| row.way == way && row.turn.is_due(round))
    }

    /// From here on what is slow takes part in some rounds only; never `default`, and no yardstick that is not MPI's.
    pub(crate) fn take_turns(&mut self, default: &str) {
        let cost = |row: &Row| Cost {
            ms: row.samples.median(),
            is_whole: row.way.is_whole(&self.case),
            may_miss: row.way.kind() != Kind::Yardstick && row.way.name() != default,
        };
        let known = |row: &&mut Row| !row.samples.is_empty();
        let costs: Vec<Cost> = self.rows.iter().filter(|row| !row.samples.is_empty()).map(cost).collect();
        for (row, turn) in self.rows.iter_mut().filter(known).zip(turns(&costs)) {
            row.turn = turn;
        }
    }

    /// What a round costs now, on average, over one of all ways.
    pub(crate) fn share_of_rounds(&self) -> f64 {
        self.share(|row| 1.0 / f64::from(row.turn.every))
    }

    /// What `round` costs, over one of all ways.
    pub(crate) fn share_of(&self, round: u32) -> f64 {
        self.share(|row| if row.turn.is_due(round) { 1.0 } else { 0.0 })
    }

    fn share(&self, part: impl Fn(&Row) -> f64) -> f64 {
        let all: f64 = self.rows.iter().map(|row| row.samples.median()).sum();
        let parts: f64 = self.rows.iter().map(|row| row.samples.median() * part(row)).sum();
        if all > 0.0 { parts / all } else { 1.0 }
    }

    /// What they come to, against `default`.
    pub(crate) fn report(self, default: &'static str) -> ComposeCase {
        let median_of = |name| {
            let row = self.rows.iter().find(|row| row.way.name() == name && !row.samples.is_empty());
            row.map(|row| row.samples.median())
        };
        let (ideal, ours) = (median_of(Way::Ideal.name()), median_of(default));
        let row = |row: &Row| {
            let figure = Figure::of(&row.samples)?;
            Some(ComposeRow {
                name: row.way.name(),
                kind: row.way.kind(),
                samples: figure.samples,
                ms_median: figure.median,
                ms_p99: figure.p99,
                ratio_to_ideal: ideal.map(|ideal| ratio(row.samples.median(), ideal)),
                times_ms: row.samples.clone(),
            })
        };
        let is_faster = |row: &&Row| {
            let is_other = row.way.name() != default && row.way.is_whole(&self.case);
            is_other && !row.samples.is_empty() && ours.is_some_and(|ours| row.samples.median() < ours)
        };
        let read: Vec<u64> =
            self.egress.iter().map(|egress| egress.prefix_bytes + egress.current_bytes).collect();
        ComposeCase {
            case: self.case,
            dense_bytes: self.dense_bytes,
            rounds: self.num_rounds,
            rows: self.rows.iter().filter_map(row).collect(),
            lost_to: self.rows.iter().filter(is_faster).map(|row| row.way.name()).collect(),
            egress_skew: rounded(skew(&read)),
            egress: self.egress,
        }
    }
}

#[cfg(test)]
mod tests {
    use cpkv::plan::Strategy;

    use super::*;

    const DEFAULT: &str = "staging_fill";

    /// Samples of a batch without MPI's gather, three of each way.
    fn samples(prefix_tokens: u32, times_ms: &[(Way, f64)]) -> CaseSamples {
        let case = Case { prefix_tokens, new_tokens: 1024, requests: 1 };
        let egress = vec![Egress { prefix_bytes: 3, current_bytes: 0 }, Egress::default()];
        let mut samples = CaseSamples::new(case, 1, egress, &Way::all(&Strategy::ALL));
        for &(way, ms) in times_ms {
            [ms, ms, 2.0 * ms].into_iter().for_each(|ms| samples.push(way, ms));
        }
        samples.num_rounds = 3;
        samples
    }

    const TIMES_MS: [(Way, f64); 6] = [
        (Way::Strategy(Strategy::StagingFill), 3.0),
        (Way::Strategy(Strategy::PerSpan), 2.5),
        (Way::Strategy(Strategy::SymmDense), 3.5),
        (Way::Ideal, 2.0),
        (Way::Memcpy, 1.0),
        (Way::AllReduce, 1.0),
    ];

    #[test]
    fn who_does_the_whole_work_in_less_time_than_the_default_beats_it_and_a_yardstick_does_not() {
        assert_eq!(samples(1024, &TIMES_MS).report(DEFAULT).lost_to, ["per_span"]);
        // Without a prefix the sum of the current pages is the whole work.
        assert_eq!(samples(0, &TIMES_MS).report(DEFAULT).lost_to, ["per_span", "mpi_allreduce"]);
        assert_eq!(samples(0, &TIMES_MS).report("per_span").lost_to, ["mpi_allreduce"]);
    }

    #[test]
    fn rows_come_in_the_order_of_the_strategies_with_their_ratio_to_ideal() {
        let report = samples(0, &TIMES_MS).report(DEFAULT);
        let names: Vec<_> = report.rows.iter().map(|row| row.name).collect();
        assert_eq!(names, ["per_span", "symm_dense", "staging_fill", "ideal", "memcpy", "mpi_allreduce"]);
        let ours = &report.rows[2];
        assert_eq!(
            (ours.samples, ours.ms_median, ours.ms_p99, ours.ratio_to_ideal),
            (3, 3.0, 6.0, Some(1.5))
        );
        assert_eq!(report.egress_skew, 2.0);
        let without = samples(0, &TIMES_MS[..1]).report(DEFAULT);
        assert_eq!(without.rows[0].ratio_to_ideal, None);
    }

    #[test]
    fn the_slow_take_turns_and_rounds_cost_less() {
        let slow = Way::Strategy(Strategy::GatherCompact);
        let mut samples = samples(
            1024,
            &[
                (Way::Strategy(Strategy::StagingFill), 10.0),
                (Way::Ideal, 10.0),
                (slow, 60.0),
                (Way::Memcpy, 10.0),
                (Way::AllReduce, 10.0),
            ],
        );
        assert_eq!((samples.share_of_rounds(), samples.share_of(3)), (1.0, 1.0));
        samples.take_turns(DEFAULT);
        let due: Vec<u32> = (0..16).filter(|&round| samples.is_due(slow, round)).collect();
        assert_eq!(due, [0, 1, 2, 8, 14]);
        assert!(samples.is_due(Way::Ideal, 3) && samples.is_due(Way::AllGather, 3));
        assert_eq!((samples.share_of_rounds(), samples.share_of(3), samples.share_of(8)), (0.5, 0.4, 1.0));
        samples.take_turns(slow.name());
        assert!(samples.is_due(slow, 3));
        samples.forget();
        assert!(samples.report(DEFAULT).rows.is_empty());
    }
}
