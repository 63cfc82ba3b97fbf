//! Why a decode worker could not start, or has no such page.

use thiserror::Error;

use crate::device::DeviceError;
use crate::model::ModelError;
use crate::transfer::{Destination, EngineError};
use crate::units::Rank;

/// Why a call on a decode worker failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// An option that cannot be.
    #[error("start decode worker {worker}: {field} is {got}, choose {expected}")]
    Options {
        /// The worker.
        worker: Rank,
        /// The option.
        field: &'static str,
        /// What can be.
        expected: &'static str,
        /// What was chosen.
        got: u32,
    },
    /// Inboxes of more bytes than there are addresses.
    #[error("start decode worker {worker}: {num_inboxes} inboxes of {num_words} words a rank are too large")]
    Inboxes {
        /// The worker.
        worker: Rank,
        /// Inboxes.
        num_inboxes: u32,
        /// Words of each rank in one.
        num_words: u32,
    },
    /// The model.
    #[error("start decode worker: {0}")]
    Model(#[from] ModelError),
    /// The worker's memory.
    #[error("decode worker: {0}")]
    Device(#[from] DeviceError),
    /// Registering the memory.
    #[error("start decode worker: {0}")]
    Engine(#[from] EngineError),
    /// A page that this worker does not have.
    #[error(
        "decode worker {worker} has no page {} of worker {} in layer {layer}, buffer {buffer_idx}: ask the worker of the \
         destination, for a buffer that the layer has",
        destination.page_idx, destination.worker
    )]
    NoSuchPage {
        /// The worker.
        worker: Rank,
        /// The layer.
        layer: usize,
        /// Position among the layer's buffers.
        buffer_idx: usize,
        /// Where the page should be.
        destination: Destination,
    },
}
