//! What a run found, as a table or as one JSON object.

use std::io::{Write, stdout};

use comfy_table::{CellAlignment, Table};
use cpkv::group::Transport;
use serde::Serialize;

use super::job::{RunJob, Way};
use super::measured::{BatchTimes, WayMeasured};
use super::rank::RankOutcome;
use crate::error::RunError;
use crate::samples::Samples;

/// The report. Times are of all batches together, each the median of its samples.
#[derive(Serialize)]
pub(crate) struct RunReport {
    engine: &'static str,
    engine_details: String,
    group_size: u32,
    transport: Transport,
    decode_workers: u32,
    model: String,
    layers: usize,
    batches: usize,
    rounds: u32,
    requests: usize,
    new_tokens: u64,
    prefix_tokens: u64,
    layers_sent: u64,
    bytes_sent: u64,
    layer_pages_sent: u64,
    layer_pages_expected: u64,
    blocks_before_merging: u64,
    blocks: u64,
    identical: bool,
    checked_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_difference: Option<String>,
    /// A layer's stand-in for attention, by batch.
    compute_us: Vec<u64>,
    compute_calibrated: bool,
    compose_ms: f64,
    forward_alone_ms: f64,
    transfer_ms: f64,
    transfer_gb_per_s: f64,
    bare_ms: f64,
    bare_gb_per_s: f64,
    goodput_ratio: f64,
    cores: usize,
    modes: Vec<ModeRow>,
}

#[derive(Serialize)]
struct ModeRow {
    name: &'static str,
    total_ms: f64,
    forward_ms: f64,
    exposed_ms: f64,
    overlap_efficiency: f64,
    gb_per_s: f64,
    goodput_to_bare: f64,
    on_layer_end_us: HookRow,
    on_layer_end_cpu_us: HookRow,
}

#[derive(Serialize)]
struct HookRow {
    median: f64,
    p99: f64,
}

impl RunReport {
    pub(crate) fn new(job: &RunJob, transport: Transport, outcome: &RankOutcome) -> Self {
        let measured = &outcome.measured;
        let batches = &measured.batches[..];
        let sum = |of: &dyn Fn(&BatchTimes) -> &Samples| {
            batches.iter().map(|batch| of(batch).median()).sum::<f64>()
        };
        let (transfer_ms, bare_ms) = (sum(&|batch| &batch.transfer), sum(&|batch| &batch.bare));
        let totals = measured.ways.first().map(|way| way.totals).unwrap_or_default();
        let requests = job.roster.requests();
        let num_pages: usize = requests.iter().map(|request| request.pages.len()).sum();
        let layer_pages_expected = (num_pages * job.num_layers()) as u64;
        let rows = measured.ways.iter().enumerate();
        let modes = rows.map(|(way_idx, way)| ModeRow::new(way, way_idx, batches, bare_ms)).collect();
        let planned = &job.base.batches;
        Self {
            engine: job.engine.name(),
            engine_details: outcome.engine_details.clone(),
            group_size: job.base.group_size.get(),
            transport,
            decode_workers: job.args.decode_workers,
            model: job.base.model.name.clone(),
            layers: job.num_layers(),
            batches: planned.len(),
            rounds: job.args.rounds,
            requests: requests.len(),
            new_tokens: planned.iter().map(|batch| batch.batch.new_tokens()).sum(),
            prefix_tokens: planned.iter().map(|batch| batch.batch.prefix_tokens()).sum(),
            layers_sent: measured.layers_sent,
            bytes_sent: totals.bytes,
            layer_pages_sent: totals.num_pages,
            layer_pages_expected,
            blocks_before_merging: totals.num_unmerged,
            blocks: totals.num_blocks,
            identical: measured.differences.is_empty(),
            checked_bytes: measured.checked_bytes,
            first_difference: measured.differences.first().cloned(),
            compute_us: batches.iter().filter_map(|batch| batch.compute_us).collect(),
            compute_calibrated: job.args.compute_us.is_none(),
            compose_ms: round(sum(&|batch| &batch.compose)),
            forward_alone_ms: round(sum(&|batch| &batch.forward)),
            transfer_ms: round(transfer_ms),
            transfer_gb_per_s: rate(totals.bytes, transfer_ms),
            bare_ms: round(bare_ms),
            bare_gb_per_s: rate(totals.bytes, bare_ms),
            goodput_ratio: ratio(bare_ms, transfer_ms),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            modes,
        }
    }

    /// Prints to standard output.
    pub(crate) fn print(&self, json: bool) -> Result<(), RunError> {
        let mut out = stdout().lock();
        if json {
            serde_json::to_writer(&mut out, self).map_err(std::io::Error::from)?;
            writeln!(out)?;
        } else {
            self.print_table(&mut out)?;
        }
        Ok(out.flush()?)
    }

    fn print_table(&self, out: &mut impl Write) -> std::io::Result<()> {
        let transport = match self.transport {
            Transport::Threads => "threads",
            Transport::Processes => "processes",
        };
        writeln!(
            out,
            "{} ranks as {transport}, {} decode workers, engine {} ({})",
            self.group_size, self.decode_workers, self.engine, self.engine_details
        )?;
        writeln!(
            out,
            "model {}, {} layers, batches: {}, requests: {}, {} new and {} prefix tokens",
            self.model, self.layers, self.batches, self.requests, self.new_tokens, self.prefix_tokens
        )?;
        let mut table = Table::new();
        table.set_header([
            "",
            "total ms",
            "forward ms",
            "exposed ms",
            "overlap",
            "GB/s",
            "x bare rate",
            "on_layer_end us, median",
            "p99",
        ]);
        for mode in &self.modes {
            table.add_row([
                mode.name.to_owned(),
                number(mode.total_ms),
                number(mode.forward_ms),
                number(mode.exposed_ms),
                number(mode.overlap_efficiency),
                number(mode.gb_per_s),
                number(mode.goodput_to_bare),
                number(mode.on_layer_end_us.median),
                number(mode.on_layer_end_us.p99),
            ]);
        }
        let alone = |name: &str, ms: f64, rate: Option<f64>, to_bare: Option<f64>| {
            let dash = || "-".to_owned();
            let known = |value: Option<f64>| value.map_or_else(dash, number);
            let ms = number(ms);
            [name.to_owned(), ms, dash(), dash(), dash(), known(rate), known(to_bare), dash(), dash()]
        };
        table.add_row(alone("forward alone", self.forward_alone_ms, None, None));
        table.add_row(alone("compose alone", self.compose_ms, None, None));
        table.add_row(alone(
            "transfer alone",
            self.transfer_ms,
            Some(self.transfer_gb_per_s),
            Some(self.goodput_ratio),
        ));
        table.add_row(alone("bare loop", self.bare_ms, Some(self.bare_gb_per_s), Some(1.0)));
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(out, "{table}")?;
        let times: Vec<_> = self.compute_us.iter().map(u64::to_string).collect();
        writeln!(
            out,
            "all batches together, medians; a layer's stand-in for attention sleeps {} us, by batch{}{}",
            times.join(", "),
            if self.compute_calibrated { ": as long as the transfer takes" } else { "" },
            if self.cores < self.group_size as usize {
                "; more ranks than cores: times are noisy"
            } else {
                ""
            },
        )?;
        let sent = self.layer_pages_sent;
        writeln!(
            out,
            "sent each way: {sent} of {} layers times pages, {} bytes, {} blocks ({} before merging)",
            self.layer_pages_expected, self.bytes_sent, self.blocks, self.blocks_before_merging
        )?;
        let verdict = match &self.first_difference {
            None if self.modes.len() > 1 => "every page identical, both ways".to_owned(),
            None => "every page as it should be".to_owned(),
            Some(difference) => format!("NOT identical: {difference}"),
        };
        writeln!(out, "{verdict}; {} bytes compared with the oracle", self.checked_bytes)
    }
}

impl ModeRow {
    fn new(way: &WayMeasured, way_idx: usize, batches: &[BatchTimes], bare_ms: f64) -> Self {
        let way_of = |batch: &BatchTimes| batch.ways.get(way_idx).cloned().unwrap_or_default();
        let ways: Vec<_> = batches.iter().map(way_of).collect();
        let total_ms: f64 = ways.iter().map(|way| way.total.median()).sum();
        let longest = batches.iter().map(|batch| batch.forward.median().max(batch.transfer.median()));
        let hook = |samples: &Samples| HookRow {
            median: round(samples.median()),
            p99: round(samples.quantile(0.99)),
        };
        Self {
            name: Way::name(way.way),
            total_ms: round(total_ms),
            forward_ms: round(ways.iter().map(|way| way.forward.median()).sum()),
            exposed_ms: round(ways.iter().map(|way| way.exposed.median()).sum()),
            overlap_efficiency: ratio(longest.sum(), total_ms),
            gb_per_s: rate(way.totals.bytes, total_ms),
            goodput_to_bare: ratio(bare_ms, total_ms),
            on_layer_end_us: hook(&way.hooks_us),
            on_layer_end_cpu_us: hook(&way.hooks_cpu_us),
        }
    }
}

/// GB/s.
fn rate(bytes: u64, ms: f64) -> f64 {
    if ms > 0.0 { round(bytes as f64 / ms / 1e6) } else { 0.0 }
}

fn ratio(value: f64, to: f64) -> f64 {
    if to > 0.0 { round(value / to) } else { 0.0 }
}

fn number(value: f64) -> String {
    format!("{value:.2}")
}

/// Four decimals: no more was measured.
fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
