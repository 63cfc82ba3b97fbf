//! The report on standard output.

use std::io::{Write, stdout};

use comfy_table::presets::ASCII_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table as TextTable};

use super::notes::notes;
use super::report::BenchReport;
use super::table::{Cell, Mark, Table};
use super::tables;
use crate::error::RunError;

/// Prints one JSON object, or tables.
pub(crate) fn print(report: &BenchReport, json: bool) -> Result<(), RunError> {
    let mut out = stdout().lock();
    if json {
        serde_json::to_writer(&mut out, report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        print_tables(&mut out, report)?;
    }
    Ok(out.flush()?)
}

fn print_tables(out: &mut impl Write, report: &BenchReport) -> std::io::Result<()> {
    let notes = notes(report);
    for line in &notes.machine {
        writeln!(out, "{:<14} {}", line.0, line.1)?;
    }
    let mut before = "";
    for table in tables::of(report) {
        writeln!(out, "\n{}", table.title)?;
        // Once a part, above its first table.
        let note = notes.parts.iter().find(|(part, _)| *part == table.part && *part != before);
        note.into_iter().try_for_each(|(_, note)| writeln!(out, "{note}"))?;
        writeln!(out, "{}", text_of(&table))?;
        before = table.part;
    }
    writeln!(out, "\nNot measured{}", if report.left_out.is_empty() { ": nothing" } else { "" })?;
    for left_out in &report.left_out {
        writeln!(out, "  {}: {}", left_out.what, left_out.why)?;
    }
    writeln!(out, "took {:.0} s", report.seconds_taken)
}

fn text_of(table: &Table) -> TextTable {
    let mut text = TextTable::new();
    text.load_style(ASCII_FULL_CONDENSED).set_header(&table.columns);
    for row in &table.rows {
        text.add_row(row.iter().map(written));
    }
    for (_, column) in text.column_iter_mut().enumerate().filter(|(at, _)| table.is_number(*at)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    text
}

fn written(cell: &Cell) -> String {
    match cell.mark {
        Mark::Lost => format!("{} lost", cell.text),
        Mark::None => cell.text.clone(),
    }
}
