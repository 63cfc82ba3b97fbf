//! Why a compose failed.

use thiserror::Error;

use crate::device::DeviceError;
use crate::group::{BootstrapError, Group, GroupError};
use crate::model::ModelError;
use crate::plan::{PlanError, Strategy};
use crate::symm::RegisterError;
use crate::units::{Epoch, Rank, RankSet};

/// Why a compose failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ComposeError {
    /// The group: poisoned, or out of reach.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The batch cannot be planned, or does not fit.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The model cannot be composed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Memory could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The exchange between the ranks.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The device, outside a batch.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The ranks planned different batches.
    #[error(
        "ranks {odd} planned another batch than the others (rank {reference} has plan {expected}, rank {first} has \
         {got}): every rank must be given the same batch, strategy and model. Nothing was launched"
    )]
    PlansDiffer {
        /// The ranks that differ from the majority.
        odd: RankSet,
        /// A rank of the majority.
        reference: Rank,
        /// The first odd rank.
        first: Rank,
        /// The majority's fingerprint.
        expected: String,
        /// The first odd rank's.
        got: String,
    },
    /// The ranks stand at different epochs.
    #[error(
        "ranks {odd} stand at another epoch than the others (rank {reference} at {expected}, rank {first} at {got}): \
         a rank composed a layer more or less than the others. Nothing was launched"
    )]
    EpochsDiffer {
        /// The ranks that differ from the majority.
        odd: RankSet,
        /// A rank of the majority.
        reference: Rank,
        /// The first odd rank.
        first: Rank,
        /// The majority's epoch.
        expected: Epoch,
        /// The first odd rank's.
        got: Epoch,
    },
    /// Another rank could not plan the batch.
    #[error("rank {rank} could not plan the batch: {reason}. Nothing was launched")]
    PeerRefused {
        /// The rank.
        rank: Rank,
        /// Its error.
        reason: String,
    },
    /// A strategy that this group, or this batch, does not allow.
    #[error("strategy {strategy} cannot be used: {reason}. Use one that can, or `auto`")]
    StrategyUnavailable {
        /// The strategy.
        strategy: Strategy,
        /// Why.
        reason: String,
    },
    /// An input of the wrong size.
    #[error(
        "layer {layer}: input of buffer `{buffer}` has {got} bytes, {expected} needed for this rank's {num_rows} rows"
    )]
    InputSize {
        /// The layer.
        layer: usize,
        /// The buffer.
        buffer: String,
        /// Bytes needed.
        expected: u64,
        /// Bytes given.
        got: u64,
        /// Rows this rank computes.
        num_rows: u32,
    },
    /// An input that is missing, or one for a buffer the layer does not have.
    #[error("layer {layer}: {problem} input for buffer `{buffer}`")]
    InputPresence {
        /// The layer.
        layer: usize,
        /// The buffer.
        buffer: String,
        /// `no` or `unexpected`.
        problem: &'static str,
    },
    /// An input that does not start at a multiple of 16 bytes, or overlaps memory that compose writes.
    #[error(
        "layer {layer}: input of buffer `{buffer}` {problem}: give compose memory of its own, aligned to 16 bytes"
    )]
    InputMemory {
        /// The layer.
        layer: usize,
        /// The buffer.
        buffer: String,
        /// `is not aligned` or `overlaps a dense buffer`.
        problem: &'static str,
    },
    /// A layer the model does not have.
    #[error("layer {layer} is outside the model's {num_layers} layers")]
    NoSuchLayer {
        /// The layer.
        layer: usize,
        /// Layers of the model.
        num_layers: usize,
    },
    /// Persist without the compose that fills the dense buffer.
    #[error("persist of layer {layer}: the dense buffer holds {}: compose the layer first", match composed { Some(layer) => format!("layer {layer}"), None => "no layer".to_owned() })]
    NotComposed {
        /// The layer to persist.
        layer: usize,
        /// The layer composed last.
        composed: Option<usize>,
    },
    /// A strategy whose layer takes a call of the host, which a graph cannot hold.
    #[error(
        "strategy {strategy} cannot be captured in a graph: `{call}` is done by the host. Capture staging_fill, \
         staging_publish or symm_dense, or compose without a graph"
    )]
    NotCapturable {
        /// The strategy.
        strategy: Strategy,
        /// What the device refused to capture.
        call: &'static str,
    },
    /// A captured layer of a batch that is not this one.
    #[error("the captured layer {layer} belongs to another batch, whose tables it reads: capture it anew")]
    CapturedElsewhere {
        /// The layer.
        layer: usize,
    },
    /// Host and device count different epochs.
    #[error("the host counts epoch {host}, the device {device}: a barrier was launched past this library")]
    EpochDrift {
        /// The host's count.
        host: Epoch,
        /// The device's.
        device: u64,
    },
    /// Guard bytes were overwritten.
    #[error(
        "guard bytes of `{region}` at offset {offset} were overwritten: something writes past its buffer"
    )]
    GuardBroken {
        /// The region or buffer.
        region: String,
        /// The first overwritten byte, counted from the region's or buffer's start.
        offset: i64,
    },
}

/// `error`, or the group's fault where it explains more; the peers learn of ranks that are missing.
pub(super) fn explain(group: &Group, error: ComposeError) -> ComposeError {
    let fault = match &error {
        ComposeError::Bootstrap(problem)
        | ComposeError::Register(RegisterError::Bootstrap { problem, .. }) => group.lost(problem),
        _ => None,
    };
    fault.map_or(error, |fault| GroupError::from(fault).into())
}
