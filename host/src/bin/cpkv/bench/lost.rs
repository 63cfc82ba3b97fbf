//! Which comparisons were lost. Pure: from the report's own rows.

use super::figures::{bytes, ratio, rounded};
use super::report::{BarrierRow, ComposeCase, CopyRow, Lost};
use crate::samples::Samples;

/// Barriers that MPI's passes in less time.
pub(crate) fn barriers(rows: &[BarrierRow]) -> Vec<Lost> {
    let ours = rows.iter().filter(|row| row.name == "cpkv");
    let lost = ours.filter_map(|ours| {
        let theirs = rows.iter().find(|row| row.name != ours.name && row.ranks == ours.ranks)?;
        (ours.us_median > theirs.us_median).then(|| Lost {
            part: "barrier",
            what: format!("{} ranks", ours.ranks),
            to: theirs.name.to_owned(),
            ratio: ratio(ours.us_median, theirs.us_median),
            how_often: how_often(&theirs.times_us, &ours.times_us),
        })
    });
    lost.collect()
}

/// Copies that a memcpy is faster than.
pub(crate) fn copies(part: &'static str, rows: &[CopyRow]) -> Vec<Lost> {
    let lost = rows.iter().filter(|row| row.memcpy_ms_median < row.ms_median).map(|row| Lost {
        part,
        what: format!("{}, {}", row.name, bytes(row.unit_bytes)),
        to: "memcpy".to_owned(),
        ratio: rounded(row.ms_median / row.memcpy_ms_median),
        how_often: row.memcpy_faster,
    });
    lost.collect()
}

/// Batches that something else composes in less time than the default strategy: one entry for each that does.
pub(crate) fn composes(cases: &[ComposeCase], default: &str) -> Vec<Lost> {
    let lost = cases.iter().flat_map(|case| {
        let row = |name: &str| case.rows.iter().find(|row| row.name == name);
        case.lost_to.iter().filter_map(move |name| {
            let (ours, theirs) = (row(default)?, row(name)?);
            Some(Lost {
                part: "compose",
                what: case.case.to_string(),
                to: (*name).to_owned(),
                ratio: ratio(ours.ms_median, theirs.ms_median),
                how_often: how_often(&theirs.times_ms, &ours.times_ms),
            })
        })
    });
    lost.collect()
}

fn how_often(theirs: &Samples, ours: &Samples) -> f64 {
    theirs.how_often_less(ours).map_or(0.0, rounded)
}

#[cfg(test)]
mod tests {
    use super::super::cases::Case;
    use super::super::report::{ComposeRow, Kind};
    use super::*;

    fn samples(times: &[f64]) -> Samples {
        let mut samples = Samples::default();
        samples.extend(times.iter().copied());
        samples
    }

    #[test]
    fn a_barrier_is_compared_with_the_librarys_of_as_many_ranks() {
        let row = |name, ranks, us_median| BarrierRow {
            name,
            ranks,
            samples: 1,
            us_median,
            us_p99: 9.0,
            quantiles_us: Vec::new(),
            times_us: samples(&[us_median]),
        };
        let rows = [row("cpkv", 2, 9.0), row("cpkv", 4, 3.0), row("MPI_Barrier", 4, 2.0)];
        let lost = barriers(&rows);
        assert_eq!(lost.len(), 1);
        assert_eq!((lost[0].what.as_str(), lost[0].ratio, lost[0].how_often), ("4 ranks", 1.5, 1.0));
        assert_eq!(barriers(&rows[..2]), []);
    }

    #[test]
    fn a_copy_is_lost_where_its_time_is_longer() {
        let row = |ms_median, memcpy_ms_median| CopyRow {
            name: "gather".to_owned(),
            unit_bytes: 4096,
            bytes: 1,
            samples: 1,
            ms_median,
            ms_p99: 1.0,
            gb_per_s: 1.0,
            memcpy_ms_median,
            memcpy_gb_per_s: 1.0,
            ratio_to_memcpy: 1.0,
            memcpy_faster: 0.8,
        };
        let lost = copies("gather", &[row(1.0, 2.0), row(3.0, 2.0)]);
        assert_eq!(lost.len(), 1);
        assert_eq!((lost[0].what.as_str(), &*lost[0].to, lost[0].ratio), ("gather, 4 KiB", "memcpy", 1.5));
        assert_eq!(lost[0].how_often, 0.8);
    }

    #[test]
    fn every_faster_way_to_compose_is_named() {
        let row = |name, ms_median| ComposeRow {
            name,
            kind: Kind::Strategy,
            samples: 3,
            ms_median,
            ms_p99: 9.0,
            ratio_to_ideal: None,
            times_ms: samples(&[ms_median - 1.0, ms_median, 9.0]),
        };
        let case = ComposeCase {
            case: Case { prefix_tokens: 0, new_tokens: 1024, requests: 1 },
            dense_bytes: 1,
            rounds: 3,
            rows: vec![row("staging_fill", 3.0), row("symm_dense", 2.0), row("per_span", 1.0)],
            lost_to: vec!["symm_dense", "per_span"],
            egress: Vec::new(),
            egress_skew: 1.0,
        };
        let lost = composes(&[case], "staging_fill");
        let named: Vec<_> = lost.iter().map(|lost| (lost.to.as_str(), lost.ratio)).collect();
        assert_eq!(named, [("symm_dense", 1.5), ("per_span", 3.0)]);
        assert!(lost[1].how_often > lost[0].how_often && lost[0].how_often > 0.5, "{lost:?}");
        assert_eq!(lost[0].what, "1K new, 0 prefix, 1 request");
    }
}
