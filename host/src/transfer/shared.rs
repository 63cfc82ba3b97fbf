//! What all requests of a manager share.

use std::sync::Arc;
use std::time::Duration;

use super::clock::{Clock, Until};
use super::engine::{Delivery, TransferEngine};
use super::failure::{Cause, Payload};
use super::options::ManagerOptions;
use super::route::Source;
use crate::deadline::Deadline;
use crate::device::{Device, DeviceError, Event, Stream};
use crate::group::PoisonGate;

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

    /// An event behind everything queued on the stream by now, for `payload`.
    pub(super) fn record_for(&self, payload: Payload) -> Result<Arc<dyn Event>, Cause> {
        self.record().map_err(|source| {
            // The fault that the group found is the better explanation.
            let fault = self.check_poison(payload).err();
            fault.unwrap_or(Cause::Event { payload, source })
        })
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
