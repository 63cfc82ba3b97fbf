//! The report as one page that needs nothing else: plots, tables and the JSON, light or dark as the reader's system is.

mod axis;
mod bars;
mod lanes;
mod lines;
mod plots;
mod svg;
mod sweep_plots;

use std::fmt::Write;

use super::notes::{Notes, notes};
use super::report::BenchReport;
use super::table::{Cell, Mark, Table};
use super::tables;
use plots::Plots;
use svg::{data, escaped};

const STYLE: &str = include_str!("style.css");

/// The parts, with their headings.
const PARTS: [(&str, &str); 8] = [
    ("compose", "Compose"),
    ("egress", "Egress"),
    ("barrier", "Barrier"),
    ("gather", "Gather"),
    ("transfer", "Transfer"),
    ("overlap", "Overlap"),
    ("plans", "Plans"),
    ("lost", "Lost"),
];

/// The page of `report`.
///
/// # Errors
/// Where the report cannot be written as JSON.
pub(crate) fn page(report: &BenchReport) -> Result<String, serde_json::Error> {
    let (notes, tables) = (notes(report), tables::of(report));
    // In a script nothing but its end tag has a meaning.
    let json = serde_json::to_string(report)?.replace('<', "\\u003c");
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\">\n<title>cpkv bench, {} ranks</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>cpkv bench</h1>\n",
        report.machine.ranks
    );
    out.push_str(&machine(&notes));
    for (part, heading) in PARTS {
        section(&mut out, report, &notes, &tables, (part, heading));
    }
    out.push_str(&not_measured(report));
    let _ = write!(
        out,
        "</main>\n<script type=\"application/json\" id=\"figures\">{json}</script>\n</body>\n</html>\n"
    );
    Ok(out)
}

fn machine(notes: &Notes) -> String {
    let rows = notes
        .machine
        .iter()
        .map(|(what, value)| format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(what), escaped(value)));
    format!("<dl>\n{}</dl>\n", rows.collect::<String>())
}

fn section(
    out: &mut String,
    report: &BenchReport,
    notes: &Notes,
    tables: &[Table],
    (part, heading): (&str, &str),
) {
    let of_part: Vec<&Table> = tables.iter().filter(|table| table.part == part).collect();
    if of_part.is_empty() {
        return;
    }
    let _ = writeln!(out, "<section id=\"{part}\">\n<h2>{heading}</h2>");
    for (_, note) in notes.parts.iter().filter(|(of, _)| *of == part) {
        let _ = writeln!(out, "<p>{}</p>", escaped(note));
    }
    let Plots { legend, drawings } = plots::of(report, part);
    if !legend.is_empty() {
        let entries = legend.iter().map(|(name, class)| {
            format!(
                "<li><svg viewBox=\"0 0 26 10\" width=\"26\" height=\"10\" aria-hidden=\"true\"><line class=\"line {class}\" x1=\"1\" \
                 y1=\"5\" x2=\"25\" y2=\"5\"/></svg> {}</li>\n",
                escaped(name)
            )
        });
        let _ = write!(out, "<ul class=\"legend\">\n{}</ul>\n", entries.collect::<String>());
    }
    if !drawings.is_empty() {
        let _ = write!(out, "<div class=\"plots\">\n{}</div>\n", drawings.concat());
    }
    out.extend(of_part.into_iter().map(table));
    out.push_str("</section>\n");
}

fn table(table: &Table) -> String {
    let header = table.columns.iter().enumerate().map(|(at, name)| {
        let class = if table.is_number(at) { " class=\"number\"" } else { "" };
        format!("<th scope=\"col\"{class}>{}</th>", escaped(name))
    });
    let header: String = header.collect();
    let rows: String = table
        .rows
        .iter()
        .map(|row| format!("<tr>{}</tr>\n", row.iter().map(cell).collect::<String>()))
        .collect();
    format!(
        "<div class=\"scroll\"><table>\n<caption>{}</caption>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n",
        escaped(&table.title)
    )
}

fn cell(cell: &Cell) -> String {
    let text = escaped(&cell.text);
    let (class, text) = match (&cell.figure, cell.mark) {
        (None, _) => ("", text),
        (Some(_), Mark::None) => (" class=\"number\"", text),
        (Some(_), Mark::Lost) => (" class=\"number lost\"", format!("{text} <span>lost</span>")),
    };
    format!("<td{class}{}>{text}</td>", data(cell.figure.as_ref()))
}

fn not_measured(report: &BenchReport) -> String {
    if report.left_out.is_empty() {
        return String::new();
    }
    let lines = report
        .left_out
        .iter()
        .map(|left_out| format!("<li><b>{}</b>: {}</li>\n", escaped(&left_out.what), escaped(&left_out.why)));
    format!(
        "<section id=\"left_out\">\n<h2>Not measured</h2>\n<ul>\n{}</ul>\n</section>\n",
        lines.collect::<String>()
    )
}
