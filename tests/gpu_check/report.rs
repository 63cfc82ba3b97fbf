//! What was found: lines as it goes, tables at the end, one JSON object.

use std::path::Path;

use comfy_table::presets::ASCII_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde::Serialize;

use crate::checks::Check;
use crate::context::Context;
use crate::device;
use crate::outcome::{Cell, Figures, Outcome};
use crate::when;

/// Characters of a line in tables.
const WIDTH: u16 = 118;

/// All results so far.
#[derive(Serialize)]
pub(crate) struct Report {
    program: &'static str,
    date: String,
    machine: String,
    gpus: Vec<String>,
    driver: String,
    build: &'static str,
    quick: bool,
    checks: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    name: &'static str,
    what: &'static str,
    seconds: f64,
    #[serde(flatten)]
    outcome: Outcome,
}

impl Report {
    /// Prints what is checked.
    pub(crate) fn begin(context: &Context) -> Self {
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let report = Self {
            program: concat!("cpkv-gpu-check ", env!("CARGO_PKG_VERSION")),
            date: when::now(),
            machine: machine.trim().to_owned(),
            gpus: context.gpus.iter().map(ToString::to_string).collect(),
            driver: device::driver().unwrap_or_else(|problem| problem.to_string()),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            quick: context.quick,
            checks: Vec::new(),
        };
        println!("{}", report.heading());
        report
    }

    /// Whose results these are, and of when.
    fn heading(&self) -> String {
        let size = if self.quick { "quick" } else { "full" };
        let gpus = self.gpus.join("\n  ");
        format!(
            "{} ({} build), {size} run on `{}`, {}\n  {gpus}\n  {}",
            self.program, self.build, self.machine, self.date, self.driver
        )
    }

    /// Says which check comes next.
    pub(crate) fn announce(&self, number: usize, of: usize, check: &Check) {
        println!("[{number:>2}/{of}] {}: {}", check.name, check.what);
    }

    /// Takes the outcome of `check`.
    pub(crate) fn add(&mut self, check: &Check, outcome: Outcome, seconds: f64) {
        println!("        {} ({seconds:.1} s): {}", outcome.word(), outcome.text());
        self.checks.push(Line { name: check.name, what: check.what, seconds, outcome });
    }

    /// Whether nothing failed.
    pub(crate) fn all_passed(&self) -> bool {
        self.count("FAILED") == 0
    }

    fn count(&self, word: &str) -> usize {
        self.checks.iter().filter(|line| line.outcome.word() == word).count()
    }

    /// Prints everything once more, as tables.
    pub(crate) fn print(&self) {
        println!("\n{}", self.heading());
        for line in &self.checks {
            if let Outcome::Passed { tables, .. } = &line.outcome {
                tables.iter().for_each(print_figures);
            }
        }
        let mut table = new_table(&["check", "outcome", "s", "what was seen"]);
        for line in &self.checks {
            let seconds = format!("{:.1}", line.seconds);
            table.add_row([line.name, line.outcome.word(), &seconds, line.outcome.text()]);
        }
        println!("\n{table}");
        let words = ["passed", "FAILED", "skipped"].map(|word| format!("{} {word}", self.count(word)));
        println!("{}", words.join(", "));
    }

    /// Writes everything to `path`.
    pub(crate) fn write_json(&self, path: &Path) -> std::io::Result<()> {
        let json = serde_json::to_string_pretty(self).map_err(std::io::Error::other)?;
        std::fs::write(path, json + "\n")
    }
}

fn new_table(columns: &[impl AsRef<str>]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(columns.iter().map(AsRef::as_ref));
    table
}

fn print_figures(figures: &Figures) {
    let mut table = new_table(&figures.columns);
    for row in &figures.rows {
        table.add_row(row.iter().map(|cell| match cell {
            Cell::Count(count) => right(count.to_string()),
            Cell::Number(number) => right(format!("{number:.2}")),
            Cell::Text(text) => comfy_table::Cell::new(text),
        }));
    }
    println!("\n{}\n{table}", figures.title);
    for note in &figures.notes {
        println!("  {note}");
    }
}

fn right(text: String) -> comfy_table::Cell {
    comfy_table::Cell::new(text).set_alignment(CellAlignment::Right)
}
