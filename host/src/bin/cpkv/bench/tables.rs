//! The report's tables: what the terminal and the page both show. Every number says where in the JSON it stands.

use super::report::{BenchReport, ComposeCase, ComposeRow, CopyRow};
use super::table::{Cell, Table};

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// All tables with figures, in the order of the report.
pub(crate) fn of(report: &BenchReport) -> Vec<Table> {
    let copies = [("gather", &report.gather, "kernel"), ("transfer", &report.transfer, "engine")];
    let copies = copies.map(|(part, rows, name)| of_copies(part, rows, name));
    let mut tables = vec![of_barrier(report)];
    tables.extend(copies);
    tables.extend(of_overlap(report));
    tables.push(of_plans(report));
    let medians = of_compose(report, "ms, median", "ms_median", |row| Some(row.ms_median));
    let p99s = of_compose(report, "ms, p99", "ms_p99", |row| Some(row.ms_p99));
    let ratios = of_compose(report, "times ideal", "ratio_to_ideal", |row| row.ratio_to_ideal);
    let samples = of_compose(report, "samples", "samples", |row| Some(row.samples as f64));
    tables.extend([medians, p99s, ratios, samples, of_cases(report)]);
    tables.extend(of_egress(report));
    tables.push(of_lost(report));
    // That nothing was lost is worth its line.
    tables.retain(|table| table.part == "lost" || !table.rows.is_empty());
    tables
}

fn of_barrier(report: &BenchReport) -> Table {
    let rows = report.barrier.iter().enumerate().map(|(at, row)| {
        let path = |key: &str| format!("/barrier/{at}/{key}");
        let is_lost = report.lost.iter().any(|lost| {
            lost.part == "barrier" && row.name != lost.to && lost.what == format!("{} ranks", row.ranks)
        });
        vec![
            Cell::text(row.name),
            Cell::count(row.ranks as usize, path("ranks")),
            Cell::number(row.us_median, path("us_median")).lost_if(is_lost),
            Cell::number(row.us_p99, path("us_p99")),
            Cell::count(row.samples, path("samples")),
        ]
    });
    Table {
        part: "barrier",
        title: "Barrier, slowest rank".to_owned(),
        columns: columns(&["barrier", "ranks", "us, median", "us, p99", "samples"]),
        rows: rows.collect(),
    }
}

fn of_copies(part: &'static str, rows: &[CopyRow], name: &str) -> Table {
    let cells = rows.iter().enumerate().map(|(at, row)| {
        let path = |key: &str| format!("/{part}/{at}/{key}");
        vec![
            Cell::text(&row.name),
            Cell::bytes(row.unit_bytes, path("unit_bytes")),
            Cell::number(row.gb_per_s, path("gb_per_s")),
            Cell::number(row.memcpy_gb_per_s, path("memcpy_gb_per_s")),
            Cell::number(row.ratio_to_memcpy, path("ratio_to_memcpy"))
                .lost_if(row.memcpy_ms_median < row.ms_median),
            Cell::number(row.ms_median, path("ms_median")),
            Cell::number(row.ms_p99, path("ms_p99")),
            Cell::count(row.samples, path("samples")),
        ]
    });
    let (title, unit) = match part {
        "gather" => ("Kernels of one rank against memcpy", "page or row"),
        _ => ("Transfer of one batch of blocks against memcpy", "block"),
    };
    Table {
        part,
        title: title.to_owned(),
        columns: columns(&[
            name,
            unit,
            "GB/s",
            "memcpy GB/s",
            "x memcpy",
            "ms, median",
            "ms, p99",
            "samples",
        ]),
        rows: cells.collect(),
    }
}

fn of_overlap(report: &BenchReport) -> Option<Table> {
    let overlap = report.overlap.as_ref()?;
    let path = |key: &str| format!("/overlap/{key}");
    let row = vec![
        Cell::text(overlap.engine),
        Cell::count(overlap.layers, path("layers")),
        Cell::bytes(overlap.bytes, path("bytes")),
        Cell::number(overlap.forward_ms, path("forward_ms")),
        Cell::number(overlap.transfer_ms, path("transfer_ms")),
        Cell::number(overlap.total_ms, path("total_ms")),
        Cell::number(overlap.overlap_efficiency, path("overlap_efficiency")),
    ];
    Some(Table {
        part: "overlap",
        title: "A forward and its transfer, side by side".to_owned(),
        columns: columns(&[
            "engine",
            "layers",
            "sent",
            "forward ms",
            "transfer alone ms",
            "both ms",
            "overlap efficiency",
        ]),
        rows: vec![row],
    })
}

fn of_plans(report: &BenchReport) -> Table {
    let rows = report.plans.iter().enumerate().map(|(at, row)| {
        let path = |key: &str| format!("/plans/{at}/{key}");
        vec![
            Cell::tokens(row.new_tokens, path("new_tokens")),
            Cell::count(row.requests as usize, path("requests")),
            Cell::number(row.plan_us_median, path("plan_us_median")),
            Cell::number(row.plan_us_p99, path("plan_us_p99")),
            Cell::number(row.ragged_us_median, path("ragged_us_median")),
            Cell::number(row.rebuild_us_median, path("rebuild_us_median")),
            Cell::number(row.access_ns_median, path("access_ns_median")),
            Cell::count(row.samples, path("samples")),
        ]
    });
    Table {
        part: "plans",
        title: "Plans, on one rank".to_owned(),
        columns: columns(&[
            "new tokens",
            "requests",
            "whole plan us, median",
            "p99",
            "ragged us a batch",
            "rebuilt us a layer",
            "access ns a layer",
            "samples",
        ]),
        rows: rows.collect(),
    }
}

/// One row a batch, one column a strategy or yardstick.
fn of_compose(
    report: &BenchReport,
    unit: &str,
    key: &str,
    value: impl Fn(&ComposeRow) -> Option<f64>,
) -> Table {
    let names = report.compose.first().map_or_else(Vec::new, |case| names_of(case));
    let rows = report.compose.iter().enumerate().map(|(at, case)| {
        let mut cells = vec![Cell::text(case.case.to_string())];
        cells.extend(names.iter().map(|name| {
            let row = case.rows.iter().enumerate().find(|(_, row)| row.name == *name);
            let figure = row.and_then(|(nth, row)| Some((nth, value(row)?)));
            let is_lost = matches!(key, "ms_median" | "ratio_to_ideal")
                && *name == report.default_strategy
                && !case.lost_to.is_empty();
            figure.map_or_else(
                || Cell::text("-"),
                |(nth, value)| {
                    let path = format!("/compose/{at}/rows/{nth}/{key}");
                    match key {
                        "samples" => Cell::count(value as usize, path),
                        _ => Cell::number(value, path).lost_if(is_lost),
                    }
                },
            )
        }));
        cells
    });
    let rows = rows.collect();
    let mut all = columns(&["batch"]);
    all.extend(columns(&names));
    Table { part: "compose", title: format!("Compose of all layers, {unit}"), columns: all, rows }
}

pub(crate) fn names_of(case: &ComposeCase) -> Vec<&'static str> {
    case.rows.iter().map(|row| row.name).collect()
}

fn of_cases(report: &BenchReport) -> Table {
    let rows = report.compose.iter().enumerate().map(|(at, case)| {
        let path = |key: &str| format!("/compose/{at}/{key}");
        vec![
            Cell::tokens(case.case.new_tokens, path("new_tokens")),
            Cell::tokens(case.case.prefix_tokens, path("prefix_tokens")),
            Cell::count(case.case.requests as usize, path("requests")),
            Cell::bytes(case.dense_bytes, path("dense_bytes")),
            Cell::count(case.rounds as usize, path("rounds")),
            Cell::number(case.egress_skew, path("egress_skew")),
            Cell::text(if case.lost_to.is_empty() { "-".to_owned() } else { case.lost_to.join(", ") }),
        ]
    });
    Table {
        part: "compose",
        title: "Batches".to_owned(),
        columns: columns(&[
            "new tokens",
            "prefix tokens",
            "requests",
            "dense bytes a rank",
            "rounds",
            "egress skew",
            "faster than the default",
        ]),
        rows: rows.collect(),
    }
}

/// The batch whose dense buffers are largest, and its place.
pub(crate) fn largest(report: &BenchReport) -> Option<(usize, &ComposeCase)> {
    report.compose.iter().enumerate().max_by_key(|(_, case)| case.dense_bytes)
}

fn of_egress(report: &BenchReport) -> Option<Table> {
    let (at, case) = largest(report)?;
    let rows = case.egress.iter().enumerate().map(|(rank, egress)| {
        let path = |key: &str| format!("/compose/{at}/egress/{rank}/{key}");
        vec![
            Cell::text(rank.to_string()),
            Cell::bytes(egress.prefix_bytes, path("prefix_bytes")),
            Cell::bytes(egress.current_bytes, path("current_bytes")),
        ]
    });
    Some(Table {
        part: "egress",
        title: format!("What peers read from each rank, {}", case.case),
        columns: columns(&["rank", "prefix pages", "current pages"]),
        rows: rows.collect(),
    })
}

fn of_lost(report: &BenchReport) -> Table {
    let rows = report.lost.iter().enumerate().map(|(at, lost)| {
        let figure = |value: f64, key: &str| Cell::number(value, format!("/lost/{at}/{key}"));
        let (ratio, how_often) = (figure(lost.ratio, "ratio"), figure(lost.how_often, "how_often"));
        vec![Cell::text(lost.part), Cell::text(&lost.what), Cell::text(&lost.to), ratio, how_often]
    });
    Table {
        part: "lost",
        title: "Lost: where another takes less time".to_owned(),
        columns: columns(&["part", "what", "to", "our time over its", "how often it is faster"]),
        rows: rows.collect(),
    }
}
