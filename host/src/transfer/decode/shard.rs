//! A decode worker's pages, and their registration with the engine.

use std::sync::Arc;

use crate::device::{Device, DeviceBuffer, DeviceError};
use crate::model::ModelSpec;
use crate::transfer::{EngineError, LayerBuffer, PoolMap, RegistrationId, TransferEngine};

/// The memory of one worker's pages: one allocation for each buffer of each layer, so that a write past the end of one is
/// not a write into the next.
pub(super) struct Shard {
    num_pages: u32,
    /// By layer, by position among the layer's buffers.
    layers: Vec<Vec<ShardBuffer>>,
}

struct ShardBuffer {
    page_bytes: u64,
    /// `[num_pages, page_bytes]`.
    memory: DeviceBuffer,
}

impl Shard {
    /// Allocates `num_pages`, zeroed, in every buffer of every layer of `model`, which was checked.
    pub(super) fn alloc(device: &dyn Device, model: &ModelSpec, num_pages: u32) -> Result<Self, DeviceError> {
        let alloc = |page_bytes: u64| {
            let memory = device.alloc(u64::from(num_pages) * page_bytes)?;
            Ok(ShardBuffer { page_bytes, memory })
        };
        let layer = |layer: usize| {
            let buffers = model.buffers_of(layer).iter().filter_map(|&id| model.buffer(id));
            buffers.map(|buffer| alloc(buffer.spec.page_bytes())).collect()
        };
        let layers = (0..model.num_layers()).map(layer).collect::<Result<_, _>>()?;
        Ok(Self { num_pages, layers })
    }

    /// Where the pages lie.
    pub(super) fn map(&self) -> PoolMap {
        let buffer =
            |buffer: &ShardBuffer| LayerBuffer { addr: buffer.memory.addr(), page_bytes: buffer.page_bytes };
        let layers = self.layers.iter().map(|layer| layer.iter().map(buffer).collect());
        PoolMap { num_pages: self.num_pages, layers: layers.collect() }
    }

    /// All its memory.
    pub(super) fn memory(&self) -> impl Iterator<Item = &DeviceBuffer> {
        self.layers.iter().flatten().map(|buffer| &buffer.memory)
    }

    /// The memory of one page; `None` where there is no such layer, buffer or page.
    pub(super) fn page(&self, layer: usize, buffer_idx: usize, page_idx: u32) -> Option<DeviceBuffer> {
        let buffer = self.layers.get(layer)?.get(buffer_idx)?;
        let start = u64::from(page_idx).checked_mul(buffer.page_bytes)?;
        buffer.memory.slice(start..start.checked_add(buffer.page_bytes)?).ok()
    }
}

/// Memory that is registered with an engine, until this is dropped.
pub(super) struct Registrations {
    engine: Arc<dyn TransferEngine>,
    ids: Vec<RegistrationId>,
}

impl Registrations {
    pub(super) fn of<'memory>(
        engine: &Arc<dyn TransferEngine>,
        memory: impl IntoIterator<Item = &'memory DeviceBuffer>,
    ) -> Result<Self, EngineError> {
        let mut registrations = Self { engine: Arc::clone(engine), ids: Vec::new() };
        for memory in memory {
            // After an error, what was registered ends with the drop.
            registrations.ids.push(engine.register(memory)?);
        }
        Ok(registrations)
    }
}

impl Drop for Registrations {
    fn drop(&mut self) {
        for &id in &self.ids {
            // Nothing can be done about an engine that refuses; it keeps the memory alive.
            let _ = self.engine.unregister(id);
        }
    }
}
