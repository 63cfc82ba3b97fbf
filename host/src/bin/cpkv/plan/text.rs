//! A batch as tables.

use std::io::Write;
use std::ops::Range;

use comfy_table::presets::ASCII_BORDERS_ONLY_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::rank_view::RankView;
use super::strips::strips;
use super::view::{PlanView, RequestView};
use crate::report::{counted, mebibytes};

/// Prints `view`.
pub(super) fn print(view: &PlanView, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "batch {}: {}, {} new and {} prefix tokens, over {}; model {}, pages of {} tokens, pool of {} pages",
        view.batch,
        counted(view.requests.len(), "request"),
        view.new_tokens,
        view.prefix_tokens,
        counted(view.group_size as usize, "rank"),
        view.model,
        view.page_size,
        view.pool_pages,
    )?;
    writeln!(
        out,
        "{} dense slots ({} over all layers); {} of {} staging slots of a half{}",
        view.dense_slots,
        mebibytes(view.dense_bytes),
        view.staging_slots,
        view.staging_capacity,
        if view.fits() { "" } else { ": THE BATCH DOES NOT FIT" },
    )?;
    match &*view.strategy_reason {
        "" => writeln!(
            out,
            "strategy {}, where the ranks can read each other's memory (`cpkv doctor` tells)",
            view.strategy
        )?,
        reason => writeln!(out, "strategy {}, since {reason}", view.strategy)?,
    }
    writeln!(out, "\nrequests (slots from first to last)\n{}", requests(view))?;
    let rows: Vec<u64> = view.ranks.iter().map(|rank| u64::from(rank.rows)).collect();
    writeln!(out, "\nranks (egress: what all peers together read from it)\n{}", ranks(view))?;
    writeln!(out, "busiest over mean: egress {:.2}, rows {:.2}", view.egress_skew, cpkv::plan::skew(&rows))?;
    writeln!(out, "\npages by dense slot, as ranks (0-9, a-z, A-Z, +, /)")?;
    strips(view).iter().try_for_each(|line| writeln!(out, "{line}"))
}

fn requests(view: &PlanView) -> Table {
    let mut table = table(&[
        "#",
        "trace\nline",
        "chunk",
        "prefix\ntokens",
        "prefix\npages",
        "new\ntokens",
        "current\npages",
        "dense\nslots",
        "staging\nslots",
        "segments",
    ]);
    for (idx, request) in view.requests.iter().enumerate() {
        let more = if request.is_last_chunk { "" } else { ", cut" };
        table.add_row([
            idx.to_string(),
            request.trace_line.to_string(),
            format!("{}{more}", request.chunk),
            request.prefix_tokens.to_string(),
            request.prefix_pages.to_string(),
            request.new_tokens.to_string(),
            request.current_pages.to_string(),
            first_to_last(&request.dense_slots),
            first_to_last(&request.staging_slots),
            segments(request),
        ]);
    }
    right_aligned(table)
}

fn ranks(view: &PlanView) -> Table {
    let mut table = table(&[
        "rank",
        "computes\npages",
        "rows",
        "in staging\nruns",
        "owns prefix\npages",
        "owns current\npages",
        "egress\npages",
        "egress",
        "ragged\nsections",
        "longest\nkv",
    ]);
    for rank in &view.ranks {
        let RankView { computed_pages, rows, owned_prefix_pages, owned_current_pages, .. } = rank;
        table.add_row([
            rank.rank.to_string(),
            computed_pages.to_string(),
            rows.to_string(),
            rank.staging_slots.len().to_string(),
            owned_prefix_pages.to_string(),
            owned_current_pages.to_string(),
            rank.egress_pages.to_string(),
            mebibytes(rank.egress_bytes),
            rank.sections.len().to_string(),
            rank.longest_kv().to_string(),
        ]);
    }
    right_aligned(table)
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_BORDERS_ONLY_CONDENSED).set_header(header);
    table
}

fn right_aligned(mut table: Table) -> Table {
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// `3-7`, `3`, or `-` for an empty run.
pub(super) fn first_to_last(slots: &Range<u32>) -> String {
    match slots.len() {
        0 => "-".to_owned(),
        1 => slots.start.to_string(),
        _ => format!("{}-{}", slots.start, slots.end - 1),
    }
}

/// How many segments have pages, and how many each.
fn segments(request: &RequestView) -> String {
    let sizes = || request.segments.iter().map(|segment| segment.staging_slots.len());
    match (sizes().min(), sizes().max()) {
        (Some(least), Some(most)) if least == most => format!("{} of {least}", sizes().count()),
        (Some(least), Some(most)) => format!("{} of {least}-{most}", sizes().count()),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_shown_by_their_ends() {
        assert_eq!([3..3, 3..4, 3..8].map(|slots| first_to_last(&slots)), ["-", "3", "3-7"]);
    }
}
