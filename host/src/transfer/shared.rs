//! What all requests of a manager share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::clock::{Clock, SystemClock, Until};
use super::engine::{Delivery, TransferEngine};
use super::failure::{Cause, Payload};
use super::log::TransferLog;
use super::outbox::StartError;
use super::route::Source;
use crate::deadline::Deadline;
use crate::device::{Device, DeviceError, Event, Stream};
use crate::group::PoisonGate;
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

/// What a manager works with.
#[derive(Clone)]
pub struct ManagerParts {
    /// The engine; the pool's memory is registered with it.
    pub engine: Arc<dyn TransferEngine>,
    /// The device that the pool lives on.
    pub device: Arc<dyn Device>,
    /// The stream that layers are computed and persisted on.
    pub stream: Arc<dyn Stream>,
    /// The group's poison; the default gate is never poisoned.
    pub gate: PoisonGate,
    /// This rank and its shard.
    pub source: Source,
}

/// Parts and options, as contexts and workers use them.
pub(super) struct Shared {
    pub(super) engine: Arc<dyn TransferEngine>,
    pub(super) device: Arc<dyn Device>,
    pub(super) stream: Arc<dyn Stream>,
    pub(super) gate: PoisonGate,
    pub(super) source: Source,
    pub(super) options: ManagerOptions,
    pub(super) clock: Arc<dyn Clock>,
    /// Bytes may arrive after the engine said that they are there.
    pub(super) delivers_late: bool,
}

impl Shared {
    pub(super) fn new(parts: ManagerParts, options: ManagerOptions) -> Self {
        let ManagerParts { engine, device, stream, gate, source } = parts;
        let clock = Arc::clone(&options.clock);
        let delivers_late = engine.info().delivery == Delivery::InOrder;
        Self { engine, device, stream, gate, source, options, clock, delivers_late }
    }

    /// Whether `layer` goes at `finish`, in its last state.
    pub(super) fn is_multi_fire(&self, layer: usize) -> bool {
        self.options.multi_fire.get(layer).copied().unwrap_or(false)
    }

    /// Records ONE event behind everything queued so far, and behind a look at the poison: kernels that met it did nothing,
    /// and who waits for the event must see that.
    pub(super) fn record(&self) -> Result<Arc<dyn Event>, DeviceError> {
        self.gate.queue_look(&*self.stream)?;
        self.stream.record()
    }

    /// Refuses to send `payload` once the group is poisoned.
    pub(super) fn check_poison(&self, payload: Payload) -> Result<(), Cause> {
        match self.gate.fault() {
            Some(fault) => Err(Cause::Poisoned { payload, fault }),
            None => Ok(()),
        }
    }

    /// What came of a write event by now: it fired, or the stream failed before it, or its time has passed.
    pub(super) fn outcome_of(
        &self,
        event: &Arc<dyn Event>,
        payload: Payload,
        until: Until,
    ) -> Result<(), Cause> {
        match event.wait(Deadline::after(Duration::ZERO)) {
            Ok(()) => Ok(()),
            Err(DeviceError::Deadline { .. }) => {
                let waited_ms = until.waited_ms(&*self.clock);
                Err(Cause::EventTimeout { payload, waited_ms })
            }
            // The fault that the group found is the better explanation.
            Err(source) => {
                self.check_poison(payload)?;
                Err(Cause::Event { payload, source })
            }
        }
    }

    /// When an event that is handed in now is late.
    pub(super) fn event_until(&self) -> Until {
        Until::after(&*self.clock, self.options.event_timeout)
    }
}
