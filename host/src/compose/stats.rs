//! What a composer did, and why.

use std::time::Duration;

use serde::Serialize;

use super::{BarrierWaits, Gathered};
use crate::plan::Strategy;

/// The path a batch took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Path {
    /// The strategy.
    pub strategy: Strategy,
    /// Why not the default; empty where it is the default, or was asked for.
    pub reason: String,
}

/// Counters since the composer was registered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Batches begun.
    pub num_batches: u64,
    /// Layers queued. Of a batch that fails, those behind the fault did nothing.
    pub num_layers: u64,
    /// Capability probes carried out: one for the signals, one a pool.
    pub num_probes: u64,
    /// Batches that could not take the default strategy.
    pub num_fallbacks: u64,
    /// Waits of the host for the stream: some at registration, and at the begin and the end of each batch. Between, in the layers,
    /// there is none.
    pub num_host_syncs: u64,
    /// Why peers' memory is out of reach; `None` where it is not.
    pub unreachable: Option<String>,
    /// The path of the last batch.
    pub last_path: Option<Path>,
    /// What the gathers that were queued read of each rank, in all batches.
    pub gathered: Gathered,
    /// The same of the last batch.
    pub last_gathered: Gathered,
    /// Who was late to the barriers of layers, in batches that succeeded (a fault names who was missing); `None` unless they are timed
    /// ([`ComposerOptions::time_barriers`](super::ComposerOptions::time_barriers)), which needs peer access.
    pub barrier_waits: Option<BarrierWaits>,
}

impl Stats {
    /// The least time that the layers composed in the last batch can take over links of `link_bytes_per_s` in each
    /// direction: the busiest rank's bytes over the rate ([`Gathered::lower_bound`]).
    pub fn lower_bound(&self, link_bytes_per_s: f64) -> Option<Duration> {
        self.last_gathered.lower_bound(link_bytes_per_s)
    }
}
