//! A mapping of memory, unmapped when dropped.

use std::os::fd::BorrowedFd;
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Pages that this process has mapped.
pub(super) struct Mapping {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: it is memory that nothing but this value unmaps; who dereferences its pointer answers for the access.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed pages of this process alone.
    pub(super) fn anonymous(bytes: usize) -> Result<Mapping, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so no mapping of others is touched.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) }?;
        Ok(Mapping { start: start.cast(), bytes })
    }

    /// The first `bytes` of a file, shared.
    pub(super) fn shared(file: BorrowedFd<'_>, bytes: usize) -> Result<Mapping, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `anonymous`.
        let start = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) }?;
        Ok(Mapping { start: start.cast(), bytes })
    }

    /// Makes a part of a shared mapping copy-on-write: what this process writes there, nobody else sees.
    ///
    /// `offset` and `bytes` are whole pages inside the mapping.
    pub(super) fn make_private(
        &mut self,
        file: BorrowedFd<'_>,
        offset: usize,
        bytes: usize,
    ) -> Result<(), Errno> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(Errno::INVAL);
        }
        let at = self.start.wrapping_add(offset);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: the range lies inside this mapping (checked above), and `&mut self` says that nobody uses it yet.
        unsafe { mmap(at.cast(), bytes, access, flags, file, offset as u64) }?;
        Ok(())
    }

    /// Its first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this value and is unmapped once; its users hold the value.
        let unmapped = unsafe { munmap(self.start.cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
