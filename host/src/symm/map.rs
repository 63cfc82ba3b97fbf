//! A mapping of memory, unmapped when dropped.

use std::os::fd::BorrowedFd;
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Pages mapped into this process, readable and writable. The addresses stay valid until this drops.
#[derive(Debug)]
pub(crate) struct Map {
    addr: u64,
    bytes: usize,
}

/// `bytes` rounded up to whole pages, at least one; `None` past the address space.
pub(crate) fn whole_pages(bytes: u64) -> Option<u64> {
    let limit = bytes.max(1).checked_next_multiple_of(rustix::param::page_size() as u64)?;
    (limit <= isize::MAX as u64).then_some(limit)
}

impl Map {
    /// Maps the first `bytes` of `file` (whole pages), shared with everyone who maps it.
    pub(crate) fn shared(file: BorrowedFd<'_>, bytes: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a free range (no fixed address), so no existing memory is replaced.
        let addr =
            unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Self { addr: addr.expose_provenance() as u64, bytes })
    }

    /// Maps `bytes` of zeroed memory (whole pages) of this process alone.
    pub(crate) fn anonymous(bytes: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE;
        // SAFETY: the kernel chooses a free range (no fixed address), so no existing memory is replaced.
        let addr = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, flags) }?;
        Ok(Self { addr: addr.expose_provenance() as u64, bytes })
    }

    /// First address, aligned to a page.
    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }

    /// Asks for huge pages: fewer address translations in long copies. A kernel that has none is no error.
    pub(crate) fn advise_huge_pages(&self) {
        let _ = self.advise(Advice::LinuxHugepage);
    }

    /// Makes every page present now, so that a full machine is an error here and not a signal later.
    pub(crate) fn populate(&self) -> Result<(), Errno> {
        match self.advise(Advice::LinuxPopulateWrite) {
            // Kernels before 5.14 do not know it.
            Err(Errno::INVAL) => {
                self.touch();
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        let addr = ptr::with_exposed_provenance_mut(self.addr as usize);
        // SAFETY: the range is this mapping, whole; both advices used here keep its contents.
        unsafe { rustix::mm::madvise(addr, self.bytes, advice) }
    }

    /// Writes a zero into every page of a fresh, zeroed mapping.
    fn touch(&self) {
        for offset in (0..self.bytes).step_by(rustix::param::page_size()) {
            let byte = ptr::with_exposed_provenance_mut::<u8>(self.addr as usize + offset);
            // SAFETY: `offset` is inside the mapping, which nobody else knows of yet.
            unsafe { byte.write_volatile(0) };
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let addr = ptr::with_exposed_provenance_mut(self.addr as usize);
        // SAFETY: this mapping was made here and is unmapped once; whoever uses its addresses holds it.
        let outcome = unsafe { rustix::mm::munmap(addr, self.bytes) };
        debug_assert!(outcome.is_ok(), "munmap of a whole mapping cannot fail: {outcome:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_up_to_whole_pages() {
        let page = rustix::param::page_size() as u64;
        assert_eq!(whole_pages(0), Some(page));
        assert_eq!(whole_pages(page), Some(page));
        assert_eq!(whole_pages(page + 1), Some(2 * page));
        assert_eq!(whole_pages(u64::MAX), None);
        assert_eq!(whole_pages(1 << 63), None);
    }

    #[test]
    fn both_ways_of_populating_leave_zeroes() {
        for touch in [false, true] {
            let map = Map::anonymous(8 * rustix::param::page_size()).unwrap();
            map.advise_huge_pages();
            if touch {
                map.touch()
            } else {
                map.populate().unwrap()
            }
            let first = ptr::with_exposed_provenance::<u8>(map.addr() as usize);
            // SAFETY: the mapping is `bytes` long, lives, and only this test knows it.
            let bytes = unsafe { std::slice::from_raw_parts(first, map.bytes) };
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
    }
}
