//! What a bench found: one value, which JSON, tables and page are made of.

use cpkv::group::Transport;
use serde::Serialize;

use super::cases::Case;
use super::machine::{Machine, ModelFacts};
use crate::samples::Samples;

/// The report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BenchReport {
    pub(crate) version: &'static str,
    /// When it was begun.
    pub(crate) date_utc: String,
    pub(crate) seconds_asked: u64,
    pub(crate) seconds_taken: f64,
    pub(crate) seed: u64,
    pub(crate) machine: Machine,
    pub(crate) model: ModelFacts,
    /// What the library takes here where nobody says otherwise.
    pub(crate) default_strategy: &'static str,
    pub(crate) barrier: Vec<BarrierRow>,
    pub(crate) gather: Vec<CopyRow>,
    pub(crate) transfer: Vec<CopyRow>,
    pub(crate) overlap: Option<Overlap>,
    pub(crate) plans: Vec<PlanRow>,
    pub(crate) compose: Vec<ComposeCase>,
    /// Where another was faster.
    pub(crate) lost: Vec<Lost>,
    /// What was not measured.
    pub(crate) left_out: Vec<LeftOut>,
}

/// A barrier; the slowest rank counts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BarrierRow {
    /// `cpkv`, or `MPI_Barrier`.
    pub(crate) name: &'static str,
    pub(crate) ranks: u32,
    pub(crate) samples: usize,
    pub(crate) us_median: f64,
    pub(crate) us_p99: f64,
    /// `[q, us]`, ascending.
    pub(crate) quantiles_us: Vec<[f64; 2]>,
    #[serde(skip)]
    pub(crate) times_us: Samples,
}

/// Something that copies, against a memcpy of as many bytes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CopyRow {
    /// The kernel, or the engine.
    pub(crate) name: String,
    /// Bytes of a page, row or block.
    pub(crate) unit_bytes: u64,
    /// Bytes copied a sample.
    pub(crate) bytes: u64,
    pub(crate) samples: usize,
    pub(crate) ms_median: f64,
    pub(crate) ms_p99: f64,
    pub(crate) gb_per_s: f64,
    pub(crate) memcpy_ms_median: f64,
    pub(crate) memcpy_gb_per_s: f64,
    /// Its rate over memcpy's.
    pub(crate) ratio_to_memcpy: f64,
    /// How often a memcpy took less time, of all pairs of samples.
    pub(crate) memcpy_faster: f64,
}

/// A forward that sleeps, and the transfer of its layers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Overlap {
    pub(crate) engine: &'static str,
    pub(crate) layers: usize,
    pub(crate) bytes: u64,
    /// The forward's sleep in each layer.
    pub(crate) layer_ms: f64,
    /// The transfer of all layers, with nothing beside it.
    pub(crate) transfer_ms: f64,
    pub(crate) forward_ms: f64,
    /// From the first layer to the last record.
    pub(crate) total_ms: f64,
    /// The longer of forward and transfer, over the total.
    pub(crate) overlap_efficiency: f64,
    pub(crate) lanes: Vec<Lane>,
}

/// One row of the timeline: spans that do not overlap.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Lane {
    pub(crate) name: String,
    pub(crate) spans: Vec<LaneSpan>,
}

/// From `start_ms` to `end_ms`, counted from the first span of all.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LaneSpan {
    pub(crate) name: String,
    pub(crate) start_ms: f64,
    pub(crate) end_ms: f64,
}

/// What plans cost the launch thread of one rank.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlanRow {
    pub(crate) new_tokens: u32,
    pub(crate) requests: u32,
    pub(crate) samples: usize,
    /// The whole plan, once a batch.
    pub(crate) plan_us_median: f64,
    pub(crate) plan_us_p99: f64,
    /// The ragged index plan, a part of it.
    pub(crate) ragged_us_median: f64,
    /// The same tables built anew in one layer, from the batch's lists.
    pub(crate) rebuild_us_median: f64,
    /// A layer's check that the plan is its batch's, and access to all tables.
    pub(crate) access_ns_median: f64,
}

/// A batch of the sweep.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ComposeCase {
    #[serde(flatten)]
    pub(crate) case: Case,
    /// Dense bytes of one rank over all layers.
    pub(crate) dense_bytes: u64,
    pub(crate) rounds: u32,
    pub(crate) rows: Vec<ComposeRow>,
    /// What took less time than the default strategy, and does all of its work.
    pub(crate) lost_to: Vec<&'static str>,
    /// By rank: what its peers read from it, over all layers.
    pub(crate) egress: Vec<Egress>,
    /// The busiest rank's egress over the mean.
    pub(crate) egress_skew: f64,
}

/// Bytes that peers read from one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Egress {
    pub(crate) prefix_bytes: u64,
    pub(crate) current_bytes: u64,
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A strategy of the library.
    Strategy,
    /// Not a way to do it: what it would cost without what is necessary.
    Yardstick,
    /// A collective of the MPI library.
    Mpi,
}

/// A strategy or yardstick on one batch, milliseconds over all layers: from the first rank's start to the last one's end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ComposeRow {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) samples: usize,
    pub(crate) ms_median: f64,
    pub(crate) ms_p99: f64,
    /// Its median over that of `ideal`, of the same rounds; `null` without one.
    pub(crate) ratio_to_ideal: Option<f64>,
    #[serde(skip)]
    pub(crate) times_ms: Samples,
}

/// A comparison that was lost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Lost {
    /// `barrier`, `gather`, `transfer` or `compose`.
    pub(crate) part: &'static str,
    pub(crate) what: String,
    pub(crate) to: String,
    /// Our time over the other's, of medians: above 1.
    pub(crate) ratio: f64,
    /// How often the other took less time, of all pairs of samples: near 0.5 it is noise.
    pub(crate) how_often: f64,
}

/// Something that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LeftOut {
    pub(crate) what: String,
    pub(crate) why: String,
}

impl LeftOut {
    pub(crate) fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

/// How ranks come to be, for people.
pub(crate) const fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Threads => "threads",
        Transport::Processes => "processes",
    }
}
