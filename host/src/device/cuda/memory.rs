//! Memory of a GPU: zeroed, and back to a free list when its last holder drops it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cust::memory::{DevicePointer, cuda_free, cuda_malloc};
use cust::stream::{Stream, StreamFlags};
use cust_raw::{
    CUresult, CUstream, cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2, cuMemsetD8Async, cuStreamQuery,
};

use super::call::{checked, failed};
use super::context::Shared;
use super::event::poll;
use super::{keeps, pinned};
use crate::deadline::Deadline;
use crate::device::{DeviceBuffer, DeviceError};

/// Allocations are multiples of this; larger ones of [`LARGE_BYTES`].
const SMALL_BYTES: u64 = 512;
/// What the driver allocates at a time.
const LARGE_BYTES: u64 = 2 << 20;
/// Bytes of a copy at set-up, at a time.
const COPY_BYTES: usize = 1 << 20;
/// A copy at set-up that is not done after this never will be.
const COPY_TIMEOUT: Duration = Duration::from_secs(60);

/// Memory that nobody holds, by size.
#[derive(Default)]
pub(super) struct FreeList {
    blocks: Mutex<BTreeMap<u64, Vec<u64>>>,
}

impl FreeList {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<u64>>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: u64) -> Option<u64> {
        self.lock().get_mut(&bytes)?.pop()
    }

    /// Gives everything back to the driver, which waits for all kernels of the GPU.
    fn give_back(&self) -> bool {
        let blocks = std::mem::take(&mut *self.lock());
        let addrs: Vec<u64> = blocks.into_values().flatten().collect();
        for &addr in &addrs {
            // SAFETY: from `cuda_malloc`, and nobody holds it.
            let _ = unsafe { cuda_free(DevicePointer::<u8>::from_raw(addr)) };
        }
        !addrs.is_empty()
    }
}

impl Drop for FreeList {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// An allocation.
struct Block {
    shared: Arc<Shared>,
    addr: u64,
    bytes: u64,
    /// Whether it goes back to the list, or to the driver: an exported one must not be handed out again under the
    /// peers that knew it.
    reused: bool,
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.reused {
            self.shared.free().lock().entry(self.bytes).or_default().push(self.addr);
        } else if self.shared.enter().is_ok() {
            // SAFETY: from `cuda_malloc`, and this was its last holder.
            let _ = unsafe { cuda_free(DevicePointer::<u8>::from_raw(self.addr)) };
        }
    }
}

/// Allocates zeroed memory.
pub(super) fn alloc(shared: &Arc<Shared>, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
    shared.enter()?;
    keeps::release_orphans();
    let unit = if bytes > LARGE_BYTES / 2 { LARGE_BYTES } else { SMALL_BYTES };
    let room = round_up(bytes, unit)?;
    let addr = match shared.free().take(room) {
        Some(addr) => addr,
        None => match malloc(room) {
            Err(DeviceError::OutOfMemory { .. }) if shared.free().give_back() => malloc(room)?,
            outcome => outcome?,
        },
    };
    zeroed(Block { shared: Arc::clone(shared), addr, bytes: room, reused: true }, bytes)
}

/// Allocates zeroed memory of its own, in whole units of the driver: its handle opens nothing else.
pub(super) fn alloc_exported(shared: &Arc<Shared>, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
    shared.enter()?;
    let room = round_up(bytes, LARGE_BYTES)?;
    let addr = malloc(room)?;
    zeroed(Block { shared: Arc::clone(shared), addr, bytes: room, reused: false }, bytes)
}

fn round_up(bytes: u64, unit: u64) -> Result<u64, DeviceError> {
    let refused = DeviceError::OutOfMemory { device: "cuda", bytes };
    bytes.max(1).checked_next_multiple_of(unit).filter(|room| *room <= i64::MAX as u64).ok_or(refused)
}

fn malloc(bytes: u64) -> Result<u64, DeviceError> {
    // SAFETY: the memory is zeroed before anything reads it.
    match unsafe { cuda_malloc::<u8>(bytes as usize) } {
        Ok(pointer) => Ok(pointer.as_raw()),
        Err(cust::error::CudaError::OutOfMemory) => Err(DeviceError::OutOfMemory { device: "cuda", bytes }),
        Err(problem) => Err(failed("cuda", "cuMemAlloc")(problem)),
    }
}

fn zeroed(block: Block, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
    if let Err(problem) = block.shared.setup().zero(&block.shared, block.addr, block.bytes) {
        // It may still be written.
        std::mem::forget(block);
        return Err(problem);
    }
    let addr = block.addr;
    // SAFETY: `block` owns as many bytes at least.
    Ok(unsafe { DeviceBuffer::from_raw(addr, bytes, Arc::new(block)) })
}

/// The stream of copies at set-up: ordered with no other.
pub(super) struct Setup {
    stream: Stream,
    /// Host memory that copies go through; one copy at a time.
    bounce: Mutex<Option<DeviceBuffer>>,
}

impl Setup {
    pub(super) fn start(device: &str) -> Result<Self, DeviceError> {
        let stream =
            Stream::new(StreamFlags::NON_BLOCKING, None).map_err(failed(device, "cuStreamCreate"))?;
        Ok(Self { stream, bounce: Mutex::new(None) })
    }

    fn zero(&self, shared: &Shared, addr: u64, bytes: u64) -> Result<(), DeviceError> {
        // SAFETY: memory that nobody else holds yet.
        let result = unsafe { cuMemsetD8Async(addr, 0, bytes as usize, self.stream.as_inner()) };
        checked(shared, "cuMemsetD8Async", result)?;
        wait(shared, self.stream.as_inner(), Deadline::after(COPY_TIMEOUT), "zeroing memory")
    }

    /// Copies `bytes` to the start of `dst`.
    pub(super) fn write(
        &self,
        shared: &Arc<Shared>,
        bytes: &[u8],
        dst: &DeviceBuffer,
    ) -> Result<(), DeviceError> {
        dst.check("write", bytes.len() as u64, bytes.len() as u64 <= dst.bytes())?;
        let mut bounce = self.bounce.lock().unwrap_or_else(PoisonError::into_inner);
        let host = bounce_buffer(shared, &mut bounce)?;
        for (at, part) in bytes.chunks(COPY_BYTES).enumerate() {
            let addr = dst.addr() + (at * COPY_BYTES) as u64;
            // SAFETY: the bounce buffer is as large as a part, and the lock makes it this call's.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), host, part.len()) };
            let stream = self.stream.as_inner();
            // SAFETY: inside `dst`, which is alive until the copy is done, as is the bounce buffer.
            let result = unsafe { cuMemcpyHtoDAsync_v2(addr, host.cast(), part.len(), stream) };
            checked(shared, "cuMemcpyHtoDAsync", result)?;
            let waited = wait(shared, stream, Deadline::after(COPY_TIMEOUT), "a copy to the device");
            waited.inspect_err(|_| abandon(&mut bounce, dst))?;
        }
        Ok(())
    }

    /// Copies all of `src` to `dst`.
    pub(super) fn read(
        &self,
        shared: &Arc<Shared>,
        src: &DeviceBuffer,
        dst: &mut [u8],
    ) -> Result<(), DeviceError> {
        src.check("read", dst.len() as u64, dst.len() as u64 == src.bytes())?;
        let mut bounce = self.bounce.lock().unwrap_or_else(PoisonError::into_inner);
        let host = bounce_buffer(shared, &mut bounce)?;
        for (at, part) in dst.chunks_mut(COPY_BYTES).enumerate() {
            let addr = src.addr() + (at * COPY_BYTES) as u64;
            let stream = self.stream.as_inner();
            // SAFETY: inside `src`, which is alive until the copy is done, as is the bounce buffer.
            let result = unsafe { cuMemcpyDtoHAsync_v2(host.cast(), addr, part.len(), stream) };
            checked(shared, "cuMemcpyDtoHAsync", result)?;
            let waited = wait(shared, stream, Deadline::after(COPY_TIMEOUT), "a copy to the host");
            waited.inspect_err(|_| abandon(&mut bounce, src))?;
            // SAFETY: the bounce buffer is as large as a part, and the lock makes it this call's.
            unsafe { std::ptr::copy_nonoverlapping(host, part.as_mut_ptr(), part.len()) };
        }
        Ok(())
    }
}

/// Gives up on a copy that may still run: what it touches is never freed.
fn abandon(bounce: &mut Option<DeviceBuffer>, device: &DeviceBuffer) {
    std::mem::forget((bounce.take(), device.clone()));
}

fn bounce_buffer(shared: &Arc<Shared>, bounce: &mut Option<DeviceBuffer>) -> Result<*mut u8, DeviceError> {
    shared.enter()?;
    let buffer = match bounce {
        Some(buffer) => buffer,
        // Not from the list of pinned memory: that holds the context, which holds this.
        None => bounce.insert(pinned::alloc_unlisted(shared, COPY_BYTES as u64)?),
    };
    Ok(std::ptr::with_exposed_provenance_mut(buffer.addr() as usize))
}

/// Waits until `stream` is idle.
pub(super) fn wait(
    shared: &Shared,
    stream: CUstream,
    deadline: Deadline,
    running: &'static str,
) -> Result<(), DeviceError> {
    poll("synchronize", deadline, || is_idle(shared, stream), || running)
}

/// Whether `stream` has nothing to do.
pub(super) fn is_idle(shared: &Shared, stream: CUstream) -> Result<bool, DeviceError> {
    shared.enter()?;
    // SAFETY: a stream that its owner keeps.
    match unsafe { cuStreamQuery(stream) } {
        CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        result => checked(shared, "cuStreamQuery", result).map(|()| true),
    }
}
