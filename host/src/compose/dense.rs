//! The dense buffers of a batch: rank-local, one a buffer kind, guarded on both sides.

use super::ComposeError;
use crate::deadline::Deadline;
use crate::device::{Device, DeviceBuffer, DeviceError, Stream};
use crate::model::{BufferId, ModelSpec};
use crate::symm::{ArenaLayout, GUARD_BYTE, GUARD_BYTES, RegisterError};

const DENSE_ALIGN: u64 = 4096;

/// Memory that grows between batches, never inside one.
#[derive(Default)]
pub(super) struct DenseBuffers {
    num_slots: u32,
    buffers: Vec<DeviceBuffer>,
    guards: Vec<DeviceBuffer>,
}

impl DenseBuffers {
    /// Makes room for `num_slots` pages of every buffer; `arena`: in one allocation.
    pub(super) fn fit(
        &mut self,
        device: &dyn Device,
        stream: &dyn Stream,
        model: &ModelSpec,
        num_slots: u32,
        arena: bool,
    ) -> Result<(), ComposeError> {
        if num_slots <= self.num_slots && !self.buffers.is_empty() {
            return Ok(());
        }
        let mut grown = Self { num_slots, ..Self::default() };
        let mut layouts = vec![ArenaLayout::default()];
        let mut places = Vec::with_capacity(model.buffers.len());
        for buffer in &model.buffers {
            if !arena && !places.is_empty() {
                layouts.push(ArenaLayout::default());
            }
            let at = layouts.len() - 1;
            let bytes = u64::from(num_slots) * buffer.spec.page_bytes();
            let carve = layouts[at].carve(&buffer.name, bytes, DENSE_ALIGN).map_err(RegisterError::from)?;
            places.push((at, carve));
        }
        let blocks: Vec<DeviceBuffer> =
            layouts.iter().map(|layout| device.alloc(layout.region_bytes())).collect::<Result<_, _>>()?;
        for (at, carve) in places {
            grown.buffers.push(blocks[at].slice(carve.offset..carve.offset + carve.bytes)?);
            let end = carve.offset + carve.bytes;
            grown.guards.push(blocks[at].slice(carve.offset - GUARD_BYTES..carve.offset)?);
            grown.guards.push(blocks[at].slice(end..end + GUARD_BYTES)?);
        }
        for guard in &grown.guards {
            stream.upload(vec![GUARD_BYTE; guard.bytes() as usize], guard)?;
        }
        *self = grown;
        Ok(())
    }

    /// The buffer of `buffer`: `[slots, page_bytes]`.
    pub(super) fn get(&self, buffer: BufferId) -> &DeviceBuffer {
        &self.buffers[buffer.idx()]
    }

    /// All buffers, to be kept alive by launches.
    pub(super) fn all(&self) -> Vec<DeviceBuffer> {
        self.buffers.clone()
    }

    /// The first guard that was overwritten: which buffer, and the offset counted from its first byte.
    pub(super) fn broken_guard(
        &self,
        stream: &dyn Stream,
        deadline: Deadline,
    ) -> Result<Option<(usize, i64)>, DeviceError> {
        for (i, guard) in self.guards.iter().enumerate() {
            let mut bytes = vec![0; guard.bytes() as usize];
            stream.download(guard, &mut bytes, deadline)?;
            if let Some(at) = bytes.iter().position(|&byte| byte != GUARD_BYTE) {
                let start =
                    if i % 2 == 0 { -(GUARD_BYTES as i64) } else { self.buffers[i / 2].bytes() as i64 };
                return Ok(Some((i / 2, start + at as i64)));
            }
        }
        Ok(None)
    }
}
