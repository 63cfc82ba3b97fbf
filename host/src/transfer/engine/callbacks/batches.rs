//! The batches of the caller's engine: our ids, which are never used again, to its handles.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::super::{BatchId, EngineError, PeerId};
use crate::device::DeviceBuffer;

/// What the caller's engine has of a batch.
#[derive(Clone, Debug)]
pub(super) enum Handle {
    /// Nothing: there was no byte to write.
    Nothing,
    /// The batch, by the number it gave.
    Taken(u64),
    /// Nobody knows: the function that was to take it panicked.
    Unknown(EngineError),
}

/// One batch in flight.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) peer: PeerId,
    /// The first block's destination, and the bytes of all.
    pub(super) blocks: (u64, u64),
    /// Held by who asks for it; `None` once its end is known.
    handle: Mutex<Option<Handle>>,
    /// The memory it reads, kept alive.
    _sources: Vec<DeviceBuffer>,
}

/// All batches whose end was not told.
#[derive(Debug, Default)]
pub(super) struct Batches {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    num_batches: u64,
    batches: BTreeMap<BatchId, Arc<Batch>>,
}

impl Batches {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(
        &self,
        peer: PeerId,
        blocks: (u64, u64),
        handle: Handle,
        sources: Vec<DeviceBuffer>,
    ) -> BatchId {
        let mut table = self.lock();
        let id = BatchId(table.num_batches);
        table.num_batches += 1;
        table.batches.insert(
            id,
            Arc::new(Batch { peer, blocks, handle: Mutex::new(Some(handle)), _sources: sources }),
        );
        id
    }

    pub(super) fn get(&self, batch: BatchId) -> Option<Arc<Batch>> {
        self.lock().batches.get(&batch).cloned()
    }

    pub(super) fn remove(&self, batch: BatchId) -> Option<Arc<Batch>> {
        self.lock().batches.remove(&batch)
    }
}

impl Batch {
    /// The handle, for one thread at a time; `None` while another has it. No wait: that thread is in the caller's function.
    pub(super) fn try_handle(&self) -> Option<MutexGuard<'_, Option<Handle>>> {
        match self.handle.try_lock() {
            Ok(handle) => Some(handle),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
