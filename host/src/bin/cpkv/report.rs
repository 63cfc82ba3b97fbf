//! What was found, as a table or as one JSON object.

use std::io::{Write, stdout};

use comfy_table::{CellAlignment, Table};
use cpkv::compose::Stats;
use cpkv::group::Transport;
use cpkv::plan::Strategy;
use serde::Serialize;

use crate::barriers::BarrierTimes;
use crate::error::RunError;
use crate::job::Job;
use crate::ranks::RankEnv;
use crate::samples::Samples;
use crate::traffic::{StatsReport, Traffic};

/// What a rank measures as it goes. All ranks hold the same values.
#[derive(Default)]
pub(crate) struct Measured {
    strategies: Vec<StrategySamples>,
    pub(crate) ideal: Samples,
    pub(crate) memcpy: Samples,
    pub(crate) mpi_allgatherv: Samples,
    pub(crate) mpi_allreduce: Samples,
    /// The collectives alone, counted from the last rank's entry: in `gather_compact`, and bare.
    pub(crate) compact_collective: Samples,
    pub(crate) bare_collective: Samples,
    pub(crate) barriers: BarrierTimes,
    pub(crate) num_slots: Vec<u32>,
    pub(crate) copy_mechanism: Option<String>,
    pub(crate) stats: Stats,
    pub(crate) traffic: Traffic,
}

struct StrategySamples {
    strategy: Strategy,
    wrong: Option<String>,
    ms: Samples,
}

impl Measured {
    fn of(&mut self, strategy: Strategy) -> &mut StrategySamples {
        let at =
            self.strategies.iter().position(|samples| samples.strategy == strategy).unwrap_or_else(|| {
                self.strategies.push(StrategySamples { strategy, wrong: None, ms: Samples::default() });
                self.strategies.len() - 1
            });
        &mut self.strategies[at]
    }

    /// A batch was proven: `wrong` is the first difference.
    pub(crate) fn proof(&mut self, strategy: Strategy, wrong: Option<String>) {
        let samples = self.of(strategy);
        samples.wrong = samples.wrong.take().or(wrong);
    }

    /// A batch was timed.
    pub(crate) fn time(&mut self, strategy: Strategy, ms: f64) {
        self.of(strategy).ms.push(ms);
    }
}

/// The report; times are per batch.
#[derive(Serialize)]
pub(crate) struct Report {
    group_size: u32,
    transport: Transport,
    device: String,
    device_reason: String,
    collective: &'static str,
    collective_reason: String,
    model: String,
    layers: usize,
    batches: usize,
    new_tokens: u64,
    prefix_tokens: u64,
    dense_bytes_per_layer: u64,
    pool_pages: u32,
    ideal_ms: Option<f64>,
    memcpy_ms: Option<f64>,
    strategies: Vec<StrategyRow>,
    baselines: Vec<BaselineRow>,
    collective_ms: Option<CollectiveRow>,
    barrier_us: Option<BarrierRow>,
    mpi_copy: Option<String>,
    rounds: u32,
    cores: usize,
    stats: StatsReport,
}

#[derive(Serialize)]
struct StrategyRow {
    name: Strategy,
    exact: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_difference: Option<String>,
    ms_median: Option<f64>,
    ms_p90: Option<f64>,
    ratio_to_ideal: Option<f64>,
}

#[derive(Serialize)]
struct BaselineRow {
    name: &'static str,
    ms_median: f64,
}

/// The all-reduce of the packed current pages, from the last rank's entry to the last rank's exit.
#[derive(Serialize)]
struct CollectiveRow {
    gather_compact: f64,
    bare: f64,
}

#[derive(Serialize)]
struct BarrierRow {
    median: f64,
    p99: f64,
    max: f64,
    mpi_median: Option<f64>,
}

impl Report {
    pub(crate) fn new(job: &Job, env: &RankEnv, measured: Measured) -> Self {
        let median = |samples: &Samples| (!samples.is_empty()).then(|| round(samples.median()));
        let ideal = (!measured.ideal.is_empty()).then(|| measured.ideal.median());
        let strategies = measured.strategies.into_iter().map(|samples| {
            let ratio = ideal.filter(|_| !samples.ms.is_empty()).map(|ideal| samples.ms.median() / ideal);
            StrategyRow {
                name: samples.strategy,
                exact: samples.wrong.is_none(),
                first_difference: samples.wrong,
                ms_median: median(&samples.ms),
                ms_p90: (!samples.ms.is_empty()).then(|| round(samples.ms.quantile(0.9))),
                ratio_to_ideal: ratio.map(round),
            }
        });
        let strategies = strategies.collect();
        let baselines = [
            ("memcpy", &measured.memcpy),
            ("mpi_allgatherv", &measured.mpi_allgatherv),
            ("mpi_allreduce", &measured.mpi_allreduce),
        ];
        let baselines = baselines
            .into_iter()
            .filter_map(|(name, samples)| Some(BaselineRow { name, ms_median: median(samples)? }))
            .collect();
        let collective_ms = (!measured.compact_collective.is_empty() && !measured.bare_collective.is_empty())
            .then(|| CollectiveRow {
                gather_compact: round(measured.compact_collective.median()),
                bare: round(measured.bare_collective.median()),
            });
        let ours = &measured.barriers.ours;
        let barrier_us = (!ours.is_empty()).then(|| BarrierRow {
            median: round(ours.median()),
            p99: round(ours.quantile(0.99)),
            max: round(ours.quantile(1.0)),
            mpi_median: median(&measured.barriers.library),
        });
        let num_slots = u64::from(measured.num_slots.iter().copied().max().unwrap_or(0));
        let page_bytes: u64 = job.model.buffers.iter().map(|buffer| buffer.spec.page_bytes()).sum();
        Self {
            group_size: job.group_size.get(),
            transport: env.bootstrap.transport(),
            device: env.device.name(),
            device_reason: env.device_reason.clone(),
            collective: env.collective.name(),
            collective_reason: env.collective_reason.clone(),
            model: job.model.name.clone(),
            layers: job.model.num_layers(),
            batches: job.batches.len(),
            new_tokens: job.batches.iter().map(|batch| batch.batch.new_tokens()).sum(),
            prefix_tokens: job.batches.iter().map(|batch| batch.batch.prefix_tokens()).sum(),
            dense_bytes_per_layer: num_slots * page_bytes,
            pool_pages: job.num_pool_pages,
            ideal_ms: ideal.map(round),
            memcpy_ms: median(&measured.memcpy),
            strategies,
            baselines,
            collective_ms,
            barrier_us,
            mpi_copy: measured.copy_mechanism,
            rounds: job.rounds,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            stats: StatsReport::new(measured.stats, &measured.traffic, round),
        }
    }

    /// What was not exact, a line a strategy.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let rows = self.strategies.iter();
        rows.filter_map(|row| Some(format!("{}: {}", row.name, row.first_difference.as_ref()?))).collect()
    }

    /// Prints to standard output.
    pub(crate) fn print(&self, json: bool) -> Result<(), RunError> {
        let mut out = stdout().lock();
        if json {
            serde_json::to_writer(&mut out, self).map_err(std::io::Error::from)?;
            writeln!(out)?;
        } else {
            self.print_tables(&mut out)?;
        }
        Ok(out.flush()?)
    }

    fn print_tables(&self, out: &mut impl Write) -> std::io::Result<()> {
        let transport = match self.transport {
            Transport::Threads => "threads",
            Transport::Processes => "processes",
        };
        writeln!(
            out,
            "{} as {transport} on {}, model {}, {}, {}: {} new and {} prefix tokens, at most {} of dense KV a layer",
            counted(self.group_size as usize, "rank"),
            self.device,
            self.model,
            counted(self.layers, "layer"),
            counted(self.batches, "batch"),
            self.new_tokens,
            self.prefix_tokens,
            mebibytes(self.dense_bytes_per_layer),
        )?;
        let mut table = Table::new();
        table.set_header(["", "exact", "ms a batch", "p90", "x ideal", "x memcpy"]);
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let to = |value: Option<f64>, yardstick: Option<f64>| {
            number(value.zip(yardstick).map(|(value, yardstick)| value / yardstick))
        };
        for row in &self.strategies {
            let exact = if row.exact { "yes" } else { "NO" };
            table.add_row([
                row.name.name().to_owned(),
                exact.to_owned(),
                number(row.ms_median),
                number(row.ms_p90),
                number(row.ratio_to_ideal),
                to(row.ms_median, self.memcpy_ms),
            ]);
        }
        let ideal = self.ideal_ms.map(|ms| ("ideal (no barrier)", ms));
        for (name, ms) in ideal.into_iter().chain(self.baselines.iter().map(|row| (row.name, row.ms_median)))
        {
            let (x_ideal, x_memcpy) = (to(Some(ms), self.ideal_ms), to(Some(ms), self.memcpy_ms));
            table.add_row([
                name.to_owned(),
                String::new(),
                number(Some(ms)),
                String::new(),
                x_ideal,
                x_memcpy,
            ]);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(out, "{table}")?;
        if self.rounds > 0 {
            writeln!(
                out,
                "medians over {} x {}, first start to last end; ideal: staging_fill's work without its barrier; memcpy: \
                 as many bytes within each rank{}",
                counted(self.batches, "batch"),
                counted(self.rounds as usize, "round"),
                if self.cores < self.group_size as usize {
                    "; more ranks than cores: times are noisy"
                } else {
                    ""
                },
            )?;
        }
        if let Some(collective) = &self.collective_ms {
            writeln!(
                out,
                "all-reduce of the packed current pages: {:.2} ms in gather_compact, {:.2} ms bare",
                collective.gather_compact, collective.bare
            )?;
        }
        if let Some(barrier) = &self.barrier_us {
            let mpi =
                barrier.mpi_median.map_or(String::new(), |mpi| format!("; MPI_Barrier median {mpi:.1}"));
            writeln!(
                out,
                "barrier, slowest rank, us: median {:.1}, p99 {:.1}, max {:.1}{mpi}",
                barrier.median, barrier.p99, barrier.max
            )?;
        }
        self.stats.lines().iter().try_for_each(|line| writeln!(out, "{line}"))?;
        if !self.collective_reason.is_empty() {
            writeln!(out, "collective {}, since {}", self.collective, self.collective_reason)?;
        }
        if let Some(copy) = &self.mpi_copy {
            writeln!(out, "MPI copies by: {copy}")?;
        }
        if let Some(reason) = &self.stats.stats.unreachable {
            writeln!(out, "no peer access: {reason}")?;
        }
        Ok(())
    }
}

/// A number of things.
pub(crate) fn counted(number: usize, what: &str) -> String {
    let plural = match what {
        _ if number == 1 => "",
        "batch" => "es",
        _ => "s",
    };
    format!("{number} {what}{plural}")
}

/// Bytes in MiB.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Four decimals: no more was measured.
fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
