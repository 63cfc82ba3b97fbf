//! Options of a manager.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::clock::{Clock, SystemClock};
use super::log::TransferLog;
use super::start_error::StartError;
use crate::model::ModelSpec;

/// Each thread of a manager waits for the others' locks.
const MAX_THREADS: u32 = 256;

/// Options of a manager.
#[derive(Clone)]
pub struct ManagerOptions {
    /// Transfer threads, 256 at most. One is best for an engine that takes one call at a time, as NIXL does; a second one goes on
    /// where the engine holds up the first. With 0 the caller drives ([`TransferManager::drive`](super::TransferManager::drive)),
    /// and finish and drop ask the engine themselves: one that blocks then keeps them past their deadlines.
    pub num_threads: u32,
    /// How far below the priority of the thread that starts the manager they run, as Linux counts: 0 (the default) to 19. For
    /// machines with fewer processors than threads, where they would hold up the forward.
    pub niceness: u8,
    /// How long a layer's write event may take to fire after its hook.
    pub event_timeout: Duration,
    /// How long a batch may be in flight, from its submit: behind everything that was submitted before it. Where a request
    /// goes as a whole, its last batch waits for all others.
    pub transfer_timeout: Duration,
    /// Requests that may be registered at once.
    pub max_requests: u32,
    /// Decode workers of a request, at most.
    pub max_workers: u32,
    /// Prompts below go as a whole at `finish`: there, overlap costs more than it gains. `u32::MAX` sends everything so.
    pub min_prompt_tokens: u32,
    /// By layer: whether it is written several times a forward. Such a layer goes at `finish`, in its last state. Layers
    /// past the end are written once.
    pub multi_fire: Vec<bool>,
    /// What the batches did, where somebody wants to know.
    pub log: Option<Arc<TransferLog>>,
    /// The clock that deadlines are read from.
    pub clock: Arc<dyn Clock>,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            num_threads: 2,
            niceness: 0,
            event_timeout: Duration::from_secs(30),
            transfer_timeout: Duration::from_secs(30),
            max_requests: 256,
            max_workers: 64,
            min_prompt_tokens: 512,
            multi_fire: Vec::new(),
            log: None,
            clock: Arc::new(SystemClock),
        }
    }
}

impl ManagerOptions {
    pub(super) fn check(&self) -> Result<(), StartError> {
        let refuse = |field, expected, got: u64| Err(StartError::Options { field, expected, got });
        match self {
            Self { max_requests: 0, .. } => refuse("max_requests", "at least 1", 0),
            Self { max_workers: 0, .. } => refuse("max_workers", "at least 1", 0),
            Self { num_threads, .. } if *num_threads > MAX_THREADS => {
                refuse("num_threads", "0 to 256", u64::from(*num_threads))
            }
            Self { niceness, .. } if *niceness > 19 => refuse("niceness", "0 to 19", u64::from(*niceness)),
            _ => Ok(()),
        }
    }

    /// The options with the draft layers of `model` marked as multi-fire: a draft model runs several steps a forward.
    #[must_use]
    pub fn for_model(self, model: &ModelSpec) -> Self {
        Self { multi_fire: model.layers.iter().map(|layer| layer.draft).collect(), ..self }
    }
}

impl fmt::Debug for ManagerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerOptions")
            .field("num_threads", &self.num_threads)
            .field("niceness", &self.niceness)
            .field("event_timeout", &self.event_timeout)
            .field("transfer_timeout", &self.transfer_timeout)
            .field("max_requests", &self.max_requests)
            .field("max_workers", &self.max_workers)
            .field("multi_fire", &self.multi_fire)
            .field("min_prompt_tokens", &self.min_prompt_tokens)
            .finish_non_exhaustive()
    }
}
