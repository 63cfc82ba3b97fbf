//! Registered memory that epoch words and completion records are sent from: one outbox a request.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::engine::{RegistrationId, TransferEngine};
use super::ids::TransferEpoch;
use super::record::{CompletionRecord, RECORD_BYTES};
use super::start_error::StartError;
use super::threads::end_thread;
use crate::deadline::Deadline;
use crate::device::{Device, DeviceBuffer, DeviceError};

/// Where an outbox's first record is; its epoch word stands at 0.
const RECORDS_OFFSET: u64 = RECORD_BYTES;

/// Memory for a fixed number of outboxes.
pub(super) struct Outboxes {
    memory: DeviceBuffer,
    registration: RegistrationId,
    bytes_each: u64,
    free: Mutex<Vec<u32>>,
}

/// One request's outbox. It goes back only when nothing reads it any more.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    idx: u32,
    memory: DeviceBuffer,
}

impl Outboxes {
    /// Allocates and registers `num` outboxes with room for `max_workers` records each.
    pub(super) fn new(
        device: &dyn Device,
        engine: &dyn TransferEngine,
        num: u32,
        max_workers: u32,
    ) -> Result<Self, StartError> {
        let bytes_each = RECORDS_OFFSET + u64::from(max_workers) * RECORD_BYTES;
        let memory = device.alloc(u64::from(num) * bytes_each)?;
        let registration = engine.register(&memory)?;
        Ok(Self { memory, registration, bytes_each, free: Mutex::new((0..num).rev().collect()) })
    }

    /// An outbox whose word is `epoch`; `None` where all are taken.
    pub(super) fn take(
        &self,
        device: &dyn Device,
        epoch: TransferEpoch,
    ) -> Result<Option<Outbox>, DeviceError> {
        let Some(idx) = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop() else {
            return Ok(None);
        };
        let start = u64::from(idx) * self.bytes_each;
        let outbox = self.memory.slice(start..start + self.bytes_each).and_then(|memory| {
            device.write(&epoch.0.to_le_bytes(), &memory)?;
            Ok(Outbox { idx, memory })
        });
        if outbox.is_err() {
            self.give_back(idx);
        }
        outbox.map(Some)
    }

    /// Takes an outbox back that nothing reads any more.
    pub(super) fn recycle(&self, outbox: &Outbox) {
        self.give_back(outbox.idx);
    }

    fn give_back(&self, idx: u32) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(idx);
    }

    /// Whether no outbox is taken.
    fn all_free(&self) -> bool {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        free * self.bytes_each == self.memory.bytes()
    }

    /// Has the engine forget the memory, and waits for that until `deadline`. Where something may read it yet, or the engine does
    /// not answer, the engine keeps it.
    pub(super) fn unregister(&self, engine: &Arc<dyn TransferEngine>, deadline: Deadline) {
        if !self.all_free() {
            return;
        }
        let (engine, memory, registration) = (Arc::clone(engine), self.memory.clone(), self.registration);
        let forget = move || {
            // Nobody is left to be told.
            let _ = engine.unregister(registration);
            drop(memory);
        };
        let thread = thread::Builder::new().name("cpkv-transfer-end".to_owned());
        // Without a thread the memory stays registered: an engine that blocks must not keep who drops the manager.
        let Ok(thread) = thread.spawn(forget) else { return };
        end_thread(thread, deadline);
    }
}

impl Outbox {
    /// Address of the epoch word.
    pub(super) const fn word_addr(&self) -> u64 {
        self.memory.addr()
    }

    /// Writes the record for `worker` and returns its address.
    pub(super) fn write_record(
        &self,
        device: &dyn Device,
        worker: u32,
        record: CompletionRecord,
    ) -> Result<u64, DeviceError> {
        let start = RECORDS_OFFSET + u64::from(worker) * RECORD_BYTES;
        let memory = self.memory.slice(start..start + RECORD_BYTES)?;
        device.write(&record.to_bytes(), &memory)?;
        Ok(memory.addr())
    }
}
