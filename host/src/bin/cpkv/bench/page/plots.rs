//! Which plots a part of the report has.

use super::axis::Scale;
use super::bars::{Bar, BarChart, Part};
use super::lanes;
use super::lines::{Axis, LineChart, Point, Series};
use super::sweep_plots;
use crate::bench::figures::{bytes, short, tokens};
use crate::bench::report::{BenchReport, CopyRow};
use crate::bench::table::PathValue;
use crate::bench::tables::largest;

/// The plots of a part, with what their colours mean.
#[derive(Default)]
pub(crate) struct Plots {
    /// Name, and classes.
    pub(crate) legend: Vec<(String, String)>,
    pub(crate) drawings: Vec<String>,
}

/// Width and height of a chart of which two stand side by side.
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 320.0;
/// Width of one that stands alone.
const WHOLE: f64 = 1060.0;

/// The plots of `part`.
pub(crate) fn of(report: &BenchReport, part: &str) -> Plots {
    match part {
        "compose" => sweep_plots::of(report),
        "egress" => of_egress(report),
        "barrier" => of_barrier(report),
        "gather" => of_copies(report.gather.iter().collect(), part, "page"),
        "transfer" => of_copies(report.transfer.iter().collect(), part, "block"),
        "overlap" => of_overlap(report),
        "plans" => of_plans(report),
        _ => Plots::default(),
    }
}

pub(crate) fn figure(path: String, value: f64) -> Option<PathValue> {
    Some(PathValue { path, value })
}

fn legend(series: &[Series]) -> Vec<(String, String)> {
    series.iter().map(|series| (series.name.clone(), series.class.clone())).collect()
}

fn of_egress(report: &BenchReport) -> Plots {
    let Some((at, case)) = largest(report) else { return Plots::default() };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let bars = case.egress.iter().enumerate().map(|(rank, egress)| {
        let part = |class: &str, what, key, value: u64| Part {
            class: class.to_owned(),
            value: mib(value),
            title: format!("rank {rank}, {what}: {}", bytes(value)),
            figure: figure(format!("/compose/{at}/egress/{rank}/{key}"), value as f64),
        };
        Bar {
            name: format!("rank {rank}"),
            parts: vec![
                part("c0", "prefix pages", "prefix_bytes", egress.prefix_bytes),
                part("c1", "current pages", "current_bytes", egress.current_bytes),
            ],
            text: format!("{} MiB", short(mib(egress.prefix_bytes + egress.current_bytes))),
        }
    });
    let bars: Vec<Bar> = bars.collect();
    let total: f64 = bars.iter().flat_map(|bar| &bar.parts).map(|part| part.value).sum();
    let chart = BarChart {
        title: format!("Egress by rank: {}; busiest over mean {}", case.case, short(case.egress_skew)),
        width: WHOLE,
        label: "read by peers, MiB".to_owned(),
        across: Some((total / bars.len().max(1) as f64, "mean".to_owned())),
        bars,
    };
    let legend = [("prefix pages", "c0"), ("current pages", "c1")];
    Plots {
        legend: legend.map(|(name, class)| (name.to_owned(), class.to_owned())).to_vec(),
        drawings: vec![chart.draw()],
    }
}

fn of_barrier(report: &BenchReport) -> Plots {
    let rows = &report.barrier;
    let mut sizes: Vec<u32> = rows.iter().map(|row| row.ranks).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let series = rows.iter().enumerate().map(|(at, row)| {
        let size = sizes.iter().position(|size| *size == row.ranks).unwrap_or(0);
        let class = format!("c{}{}", size % 5, if row.name == "cpkv" { "" } else { " dashed" });
        let points = row.quantiles_us.iter().enumerate().map(|(nth, &[q, us])| Point {
            x: us,
            y: q,
            figure: figure(format!("/barrier/{at}/quantiles_us/{nth}/0"), q),
        });
        let name = format!("{}, {} ranks", row.name, row.ranks);
        Series { name, class, points: points.collect(), has_marks: false }
    });
    let series: Vec<Series> = series.collect();
    let mut entries = legend(&series);
    let chart = LineChart {
        title: "Distribution: share of barriers that took at most so long".to_owned(),
        width: WIDTH,
        height: HEIGHT,
        x: Axis {
            label: "latency of the slowest rank, us (logarithmic)".to_owned(),
            scale: Scale::log(rows.iter().flat_map(|row| &row.quantiles_us).map(|[_, us]| *us)),
        },
        y: Axis { label: "share of barriers".to_owned(), scale: Scale::from_zero([1.0]) },
        series,
    };
    let by_size =
        |key: &str, name: &str, dashes: &str, value: fn(&crate::bench::report::BarrierRow) -> f64| {
            ["cpkv", "MPI_Barrier"].map(|library| {
                let of_library = rows.iter().enumerate().filter(|(_, row)| row.name == library);
                let points = of_library.map(|(at, row)| Point {
                    x: sizes.iter().position(|size| *size == row.ranks).unwrap_or(0) as f64,
                    y: value(row),
                    figure: figure(format!("/barrier/{at}/{key}"), value(row)),
                });
                let colour = if library == "cpkv" { "c5" } else { "c8" };
                Series {
                    name: format!("{library}, {name}"),
                    class: format!("{colour}{dashes}"),
                    points: points.collect(),
                    has_marks: true,
                }
            })
        };
    let medians = by_size("us_median", "median", "", |row| row.us_median);
    let p99s = by_size("us_p99", "p99", " dotted", |row| row.us_p99);
    let series: Vec<Series> =
        medians.into_iter().chain(p99s).filter(|series| !series.points.is_empty()).collect();
    // Of one size there is nothing to be seen by size.
    let has_sizes = sizes.len() > 1;
    entries.extend(legend(&series).into_iter().filter(|_| has_sizes));
    let second = LineChart {
        title: "Median and p99 by ranks".to_owned(),
        width: WIDTH,
        height: HEIGHT,
        x: Axis {
            label: "ranks".to_owned(),
            scale: Scale::Places(sizes.iter().map(u32::to_string).collect()),
        },
        y: Axis {
            label: "latency of the slowest rank, us (log)".to_owned(),
            scale: Scale::log(rows.iter().flat_map(|row| [row.us_median, row.us_p99])),
        },
        series,
    };
    let mut drawings = vec![chart.draw()];
    drawings.extend(has_sizes.then(|| second.draw()));
    Plots { legend: entries, drawings }
}

fn of_copies(rows: Vec<&CopyRow>, part: &str, unit: &str) -> Plots {
    let is_drawn = |row: &&CopyRow| row.name != "fill_rows";
    let mut sizes: Vec<u64> = rows.iter().copied().filter(is_drawn).map(|row| row.unit_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut names: Vec<&str> = Vec::new();
    for row in rows.iter().copied().filter(is_drawn) {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    let place = |row: &CopyRow| sizes.iter().position(|size| *size == row.unit_bytes).unwrap_or(0) as f64;
    let line = |name: &str, class: &str, of: &str, key: &str, value: fn(&CopyRow) -> f64| {
        let points = rows.iter().enumerate().filter(|(_, row)| row.name == of).map(|(at, row)| Point {
            x: place(row),
            y: value(row),
            figure: figure(format!("/{part}/{at}/{key}"), value(row)),
        });
        Series { name: name.to_owned(), class: class.to_owned(), points: points.collect(), has_marks: true }
    };
    let mut series: Vec<Series> = Vec::new();
    for (name, class) in names.iter().zip(["c0 strong", "c1 strong"]) {
        series.push(line(name, class, name, "gb_per_s", |row| row.gb_per_s));
    }
    if let Some(first) = names.first() {
        series.push(line("memcpy", "c7 dashed", first, "memcpy_gb_per_s", |row| row.memcpy_gb_per_s));
    }
    let legend = legend(&series);
    let chart = LineChart {
        title: format!("Rate by {unit} size"),
        width: WHOLE,
        height: HEIGHT,
        x: Axis {
            label: format!("bytes of a {unit}"),
            scale: Scale::Places(sizes.iter().map(|size| bytes(*size)).collect()),
        },
        y: Axis {
            label: "GB/s".to_owned(),
            scale: Scale::from_zero(series.iter().flat_map(|series| &series.points).map(|point| point.y)),
        },
        series,
    };
    Plots { legend, drawings: vec![chart.draw()] }
}

fn of_overlap(report: &BenchReport) -> Plots {
    let Some(overlap) = &report.overlap else { return Plots::default() };
    let title = format!(
        "{} layers of {} ms; forward {} ms, transfer alone {} ms, both {} ms",
        overlap.layers,
        short(overlap.layer_ms),
        short(overlap.forward_ms),
        short(overlap.transfer_ms),
        short(overlap.total_ms)
    );
    let class_of = |name: &str| match name {
        "stream" => "c0",
        name if name.starts_with("engine") => "c1",
        _ => "c2",
    };
    let legend = [("layers on the stream", "c0"), ("submits", "c2"), ("in flight", "c1")];
    Plots {
        legend: legend.map(|(name, class)| (name.to_owned(), class.to_owned())).to_vec(),
        drawings: vec![lanes::draw(&title, WHOLE, &overlap.lanes, class_of)],
    }
}

fn of_plans(report: &BenchReport) -> Plots {
    let rows = &report.plans;
    type Value = fn(&crate::bench::report::PlanRow) -> f64;
    let lines: [(&str, &str, &str, f64, Value); 4] = [
        ("whole plan, a batch", "c0 strong", "plan_us_median", 1.0, |row| row.plan_us_median),
        ("ragged part, a batch", "c2", "ragged_us_median", 1.0, |row| row.ragged_us_median),
        ("rebuilt, a layer", "c1 dashed", "rebuild_us_median", 1.0, |row| row.rebuild_us_median),
        ("access, a layer", "c3", "access_ns_median", 1e-3, |row| row.access_ns_median),
    ];
    let series = lines.map(|(name, class, key, to_us, value)| {
        let points = rows.iter().enumerate().map(|(at, row)| Point {
            x: at as f64,
            y: value(row) * to_us,
            figure: figure(format!("/plans/{at}/{key}"), value(row)),
        });
        Series { name: name.to_owned(), class: class.to_owned(), points: points.collect(), has_marks: true }
    });
    let chart = LineChart {
        title: "Time of the launch thread".to_owned(),
        width: WHOLE,
        height: HEIGHT,
        x: Axis {
            label: "new tokens of the batch".to_owned(),
            scale: Scale::Places(rows.iter().map(|row| tokens(row.new_tokens)).collect()),
        },
        y: Axis {
            label: "us, median (logarithmic)".to_owned(),
            scale: Scale::log(series.iter().flat_map(|series| &series.points).map(|point| point.y)),
        },
        series: series.into(),
    };
    Plots { legend: legend(&chart.series), drawings: vec![chart.draw()] }
}
