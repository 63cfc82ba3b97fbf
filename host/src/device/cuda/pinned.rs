//! Host memory that the GPU reaches at the same address: status records, and what copies go through.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cust::memory::{cuda_free_locked, cuda_malloc_locked};

use super::call::failed;
use super::context::Shared;
use super::keeps;
use crate::device::{DeviceBuffer, DeviceError};

/// The smallest allocation: a cache line of two.
const MIN_BYTES: u64 = 256;

/// Pinned memory that nobody holds, by size. Allocating and freeing it is slow, and waits for kernels.
#[derive(Default)]
pub(super) struct PinnedList {
    blocks: Mutex<BTreeMap<u64, Vec<Pinned>>>,
}

/// An allocation. Freed when dropped; the context is current then, or freeing fails and the process keeps it.
struct Pinned {
    start: *mut u8,
}

// SAFETY: memory of the process that this value alone owns.
unsafe impl Send for Pinned {}
// SAFETY: as above, and no method touches it.
unsafe impl Sync for Pinned {}

impl Pinned {
    fn alloc(bytes: u64) -> Result<Self, DeviceError> {
        // SAFETY: zeroed below, before anything reads it.
        let outcome = unsafe { cuda_malloc_locked::<u8>(bytes as usize) };
        let start = outcome.map_err(|problem| match problem {
            cust::error::CudaError::OutOfMemory => {
                DeviceError::OutOfMemory { device: "cuda (host memory)", bytes }
            }
            problem => failed("cuda", "cuMemAllocHost")(problem),
        })?;
        Ok(Self { start })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: from `cuda_malloc_locked`, and this was its owner.
        let _ = unsafe { cuda_free_locked(self.start) };
    }
}

/// Pinned memory that goes back to the list.
struct Listed {
    shared: Arc<Shared>,
    bytes: u64,
    pinned: Option<Pinned>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(pinned) = self.pinned.take() {
            let mut blocks = self.shared.pinned().blocks.lock().unwrap_or_else(PoisonError::into_inner);
            blocks.entry(self.bytes).or_default().push(pinned);
        }
    }
}

/// Allocates zeroed host memory that the GPU reaches.
pub(super) fn alloc(shared: &Arc<Shared>, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
    shared.enter()?;
    keeps::release_orphans();
    let room = rounded(bytes)?;
    let listed = {
        let mut blocks = shared.pinned().blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.get_mut(&room).and_then(Vec::pop)
    };
    let pinned = match listed {
        Some(pinned) => pinned,
        None => Pinned::alloc(room)?,
    };
    let start = pinned.start;
    let listed = Listed { shared: Arc::clone(shared), bytes: room, pinned: Some(pinned) };
    // SAFETY: `room` bytes that `listed` owns.
    Ok(unsafe { buffer(start, room, bytes, Arc::new(listed)) })
}

/// As [`alloc`], but freed when dropped.
pub(super) fn alloc_unlisted(shared: &Shared, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
    shared.enter()?;
    let room = rounded(bytes)?;
    let pinned = Pinned::alloc(room)?;
    let start = pinned.start;
    // SAFETY: `room` bytes that `pinned` owns.
    Ok(unsafe { buffer(start, room, bytes, Arc::new(pinned)) })
}

fn rounded(bytes: u64) -> Result<u64, DeviceError> {
    let refused = DeviceError::OutOfMemory { device: "cuda (host memory)", bytes };
    // Powers of two, so that lists stay short.
    bytes.max(MIN_BYTES).checked_next_power_of_two().filter(|room| *room <= 1 << 46).ok_or(refused)
}

/// # Safety
/// `room` bytes at `start` belong to `keep`.
unsafe fn buffer(start: *mut u8, room: u64, bytes: u64, keep: crate::device::Keep) -> DeviceBuffer {
    // SAFETY: the memory was just taken, so nobody else touches it.
    unsafe { ptr::write_bytes(start, 0, room as usize) };
    // SAFETY: as required, and with unified addresses the GPU reaches it at the same one.
    unsafe { DeviceBuffer::from_raw(start.expose_provenance() as u64, bytes, keep) }
}
