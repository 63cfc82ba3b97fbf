//! The sweep's plots: cost over size along each axis of the grid, and bars of each batch.

use super::axis::Scale;
use super::bars::{Bar, BarChart, Part};
use super::lines::{Axis, LineChart, Point, Series};
use super::plots::{Plots, figure};
use crate::bench::cases::Case;
use crate::bench::figures::{short, tokens};
use crate::bench::report::{BenchReport, ComposeCase};

/// Three of them stand side by side.
const WIDTH: f64 = 350.0;
const HEIGHT: f64 = 340.0;
/// Two of them.
const BAR_WIDTH: f64 = 525.0;

/// Classes of colour and dashes by row.
fn class_of(name: &str) -> &'static str {
    match name {
        "staging_fill" => "c0 strong",
        "staging_publish" => "c5",
        "symm_dense" => "c2",
        "gather_compact" => "c1",
        "fused_all_reduce" => "c3",
        "per_span" => "c6",
        "ideal" => "ideal dashed",
        "mpi_allgatherv" => "c4 dashed",
        "mpi_allreduce" => "c8 dashed",
        _ => "c7 dotted",
    }
}

/// An axis of the grid.
struct Along {
    what: &'static str,
    value: fn(&Case) -> u32,
    /// The other two: alike for all cases of a chart.
    others: fn(&Case) -> (u32, u32),
    /// What the others are, for the title.
    told: fn(&Case) -> String,
    written: fn(u32) -> String,
}

const ALONG: [Along; 3] = [
    Along {
        what: "new tokens",
        value: |case| case.new_tokens,
        others: |case| (case.prefix_tokens, case.requests),
        told: |case| format!("{} prefix, {} requests", tokens(case.prefix_tokens), case.requests),
        written: tokens,
    },
    Along {
        what: "prefix tokens",
        value: |case| case.prefix_tokens,
        others: |case| (case.new_tokens, case.requests),
        told: |case| format!("{} new, {} requests", tokens(case.new_tokens), case.requests),
        written: tokens,
    },
    Along {
        what: "requests",
        value: |case| case.requests,
        others: |case| (case.new_tokens, case.prefix_tokens),
        told: |case| format!("{} new, {} prefix", tokens(case.new_tokens), tokens(case.prefix_tokens)),
        written: |number| number.to_string(),
    },
];

/// Lines along each axis, then bars of each batch.
pub(crate) fn of(report: &BenchReport) -> Plots {
    let mut plots = Plots::default();
    let names = report.compose.first().map_or_else(Vec::new, crate::bench::tables::names_of);
    plots.legend = names.iter().map(|name| ((*name).to_owned(), class_of(name).to_owned())).collect();
    plots.drawings.extend(ALONG.iter().filter_map(|along| over_size(report, along, &names)));
    let bars = report.compose.iter().enumerate().map(|(at, case)| bars_of(report, at, case));
    plots.drawings.extend(bars);
    plots
}

/// The longest row of cases that differ along one axis only, by that axis.
fn row_along<'a>(report: &'a BenchReport, along: &Along) -> Vec<(usize, &'a ComposeCase)> {
    let cases = || report.compose.iter().enumerate();
    let rows = report.compose.iter().map(|first| {
        cases()
            .filter(|(_, case)| (along.others)(&case.case) == (along.others)(&first.case))
            .collect::<Vec<_>>()
    });
    let mut longest = rows.max_by_key(Vec::len).unwrap_or_default();
    longest.sort_by_key(|(_, case)| (along.value)(&case.case));
    longest
}

/// Cost along an axis; `None` where fewer than two cases lie on it.
fn over_size(report: &BenchReport, along: &Along, names: &[&'static str]) -> Option<String> {
    let row = row_along(report, along);
    let (_, first) = row.first().filter(|_| row.len() > 1)?;
    let series = names.iter().map(|name| {
        let points = row.iter().enumerate().filter_map(|(place, (at, case))| {
            let (nth, found) = case.rows.iter().enumerate().find(|(_, row)| row.name == *name)?;
            let path = format!("/compose/{at}/rows/{nth}/ms_median");
            Some(Point { x: place as f64, y: found.ms_median, figure: figure(path, found.ms_median) })
        });
        let (name, class) = ((*name).to_owned(), class_of(name).to_owned());
        Series { name, class, points: points.collect(), has_marks: true }
    });
    let series: Vec<Series> = series.collect();
    let chart = LineChart {
        title: (along.told)(&first.case),
        width: WIDTH,
        height: HEIGHT,
        x: Axis {
            label: format!("{} of the batch", along.what),
            scale: Scale::Places(
                row.iter().map(|(_, case)| (along.written)((along.value)(&case.case))).collect(),
            ),
        },
        y: Axis {
            label: "ms a batch, median (logarithmic)".to_owned(),
            scale: Scale::log(series.iter().flat_map(|series| &series.points).map(|point| point.y)),
        },
        series,
    };
    Some(chart.draw())
}

/// Every row of one batch.
fn bars_of(report: &BenchReport, at: usize, case: &ComposeCase) -> String {
    let bars = case.rows.iter().enumerate().map(|(nth, row)| {
        let is_default = row.name == report.default_strategy;
        let told = match (is_default, case.lost_to.contains(&row.name)) {
            (true, _) if !case.lost_to.is_empty() => ", lost",
            (true, _) => ", default",
            (_, true) => ", faster",
            _ => "",
        };
        let path = format!("/compose/{at}/rows/{nth}/ms_median");
        let part = Part {
            class: class_of(row.name).to_owned(),
            value: row.ms_median,
            title: format!(
                "{}: {} ms, p99 {} ms, {} samples",
                row.name,
                short(row.ms_median),
                short(row.ms_p99),
                row.samples
            ),
            figure: figure(path, row.ms_median),
        };
        let fewer = (row.samples < case.rounds as usize).then(|| format!(", {} samples", row.samples));
        let fewer = fewer.unwrap_or_default();
        let text = format!("{} (p99 {}){told}{fewer}", short(row.ms_median), short(row.ms_p99));
        Bar { name: row.name.to_owned(), parts: vec![part], text }
    });
    let ideal = case.rows.iter().find(|row| row.name == "ideal");
    BarChart {
        title: format!("{}; {} rounds", case.case, case.rounds),
        width: BAR_WIDTH,
        label: "ms a batch, median".to_owned(),
        bars: bars.collect(),
        across: ideal.map(|ideal| (ideal.ms_median, "ideal".to_owned())),
    }
    .draw()
}
