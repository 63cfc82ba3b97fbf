//! Compose: before a layer's attention, every rank gets the whole KV of the batch in one dense buffer.
//!
//! One file a strategy. Each says which kernels and collectives a layer takes, in order; `launch` has the launches.

mod agreement;
mod barrier_waits;
mod captured;
mod checks;
mod choice;
mod composer;
mod dense;
mod device_indices;
mod error;
mod fused_all_reduce;
mod gather_compact;
mod gathered;
mod in_flight;
mod launch;
mod local_fill;
mod options;
mod per_span;
mod persist;
mod pool;
mod ragged;
mod staging;
mod staging_fill;
mod staging_publish;
mod stats;
mod symm_dense;
mod tables;

pub use barrier_waits::{BarrierWaits, LateRank};
pub use captured::CapturedLayer;
pub use choice::expected_path;
pub use composer::Composer;
pub use device_indices::DeviceTokenIndices;
pub use error::ComposeError;
pub use gathered::Gathered;
pub use in_flight::{BatchInFlight, LayerInputs, Mark};
pub use options::{ComposerOptions, StrategyChoice};
pub use pool::SharedPool;
pub use ragged::RaggedTables;
pub use stats::{Path, Stats};
