//! What a composer did, and why.

use serde::Serialize;

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
    /// Layers composed.
    pub num_layers: u64,
    /// Capability probes carried out: one for the signals, one a pool.
    pub num_probes: u64,
    /// Batches that could not take the default strategy.
    pub num_fallbacks: u64,
    /// Waits of the host for the stream.
    pub num_host_syncs: u64,
    /// Why peers' memory is out of reach; `None` where it is not.
    pub unreachable: Option<String>,
    /// The path of the last batch.
    pub last_path: Option<Path>,
}
