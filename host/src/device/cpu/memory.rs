//! Device memory of the CPU device: anonymous pages, reserved when allocated.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::device::{DeviceBuffer, DeviceError};

/// Pages of this size save most TLB misses where the system grants them.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Memory of one allocation.
struct Pages {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the pages belong to this value alone, and no method gives out references to them.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn map(bytes: usize) -> Option<Self> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the system's choice disturbs no memory in use.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, prot, flags) }.ok()?;
        let pages = Self { start: NonNull::new(start)?, bytes };
        if bytes >= HUGE_PAGE_BYTES {
            // An advice: where huge pages are off, small ones serve.
            // SAFETY: the range was mapped above; the advice does not change its contents.
            let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        }
        // Touch all pages now: a full machine then says so here.
        // SAFETY: the range was mapped above; populating does not change its contents.
        unsafe { madvise(start, bytes, Advice::LinuxPopulateWrite) }.ok()?;
        Some(pages)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nobody holds the allocation any more.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Allocates zeroed memory, aligned to a page of the system.
pub(super) fn alloc(bytes: u64) -> Result<DeviceBuffer, DeviceError> {
    let refused = DeviceError::OutOfMemory { device: "cpu", bytes };
    let Ok(mapped) = usize::try_from(bytes.max(1)) else { return Err(refused) };
    let Some(pages) = Pages::map(mapped) else { return Err(refused) };
    let addr = pages.start.as_ptr().expose_provenance() as u64;
    // SAFETY: `pages` owns exactly this range.
    Ok(unsafe { DeviceBuffer::from_raw(addr, bytes, Arc::new(pages)) })
}

/// Copies `bytes` to the start of `dst`.
pub(super) fn write(bytes: &[u8], dst: &DeviceBuffer) -> Result<(), DeviceError> {
    dst.check("write", bytes.len() as u64, bytes.len() as u64 <= dst.bytes())?;
    for (&byte, addr) in bytes.iter().zip(dst.addr()..) {
        // SAFETY: inside the buffer, which `dst` keeps alive.
        let place = unsafe { AtomicU8::from_ptr(ptr::with_exposed_provenance_mut(addr as usize)) };
        // Relaxed: ordered with nothing, as documented; atomic, so that a race gives a byte and not a fault.
        place.store(byte, Ordering::Relaxed);
    }
    Ok(())
}

/// Copies all of `src` to `dst`.
pub(super) fn read(src: &DeviceBuffer, dst: &mut [u8]) -> Result<(), DeviceError> {
    src.check("read", dst.len() as u64, dst.len() as u64 == src.bytes())?;
    for (byte, addr) in dst.iter_mut().zip(src.addr()..) {
        // SAFETY: inside the buffer, which `src` keeps alive.
        let place = unsafe { AtomicU8::from_ptr(ptr::with_exposed_provenance_mut(addr as usize)) };
        // Relaxed: as in `write`.
        *byte = place.load(Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_does_not_exist_is_refused_with_its_size() {
        let error = alloc(1 << 60).unwrap_err();
        assert_eq!(error, DeviceError::OutOfMemory { device: "cpu", bytes: 1 << 60 });
    }

    #[test]
    fn an_empty_buffer_can_be_allocated_and_sliced() {
        let buffer = alloc(0).unwrap();
        assert_eq!(buffer.slice(0..0).unwrap().bytes(), 0);
        assert!(buffer.slice(0..1).is_err());
    }
}
