//! Symmetric memory of ranks that are processes of one machine: anonymous files, passed as descriptors.
//!
//! Life cycle of a region:
//! 1. allocate: check that the machine has the memory, create an anonymous file (`memfd_create`), reserve it
//!    (`fallocate`), seal its size, map it;
//! 2. export: serve the descriptor ([`super::fd_passing`]) until every peer has opened it;
//! 3. open: fetch the descriptor, check size and seals, map it, close the descriptor;
//! 4. the memory is the kernel's again when the last process has unmapped it - or has died: no name of it
//!    exists anywhere that could be left behind.
//!
//! The seals (no shrinking, no growing, no further seals) mean that no process can cut the file under a mapping:
//! an access inside a mapping never raises `SIGBUS`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

use super::available::available_bytes;
use super::backend::{Export, Mapping, SymmBackend, SymmError};
use super::fd_passing::{FdServer, FetchError, Ticket, fetch};
use super::map::{Map, whole_pages};
use crate::deadline::Deadline;
use crate::units::Rank;

const NAME: &str = "memfd";

/// What is reserved in one call, in bytes: a signal that interrupts it costs this much work, not all of it.
const RESERVE_STEP_BYTES: u64 = 256 << 20;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Anonymous shared memory among processes of one machine and one user.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemfdBackend;

/// What an allocation holds.
#[derive(Debug)]
struct Region {
    map: Map,
    file: OwnedFd,
    bytes: u64,
}

// SAFETY: a mapping is made by `mmap` and unmapped when its last `keep` drops; a peer's is what it exported.
unsafe impl SymmBackend for MemfdBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Ranks that allocate at the same time can each find the memory there and together be too many, and then the
    /// kernel kills before `fallocate` refuses: registration looks at all of them together first.
    fn allocate(&self, bytes: u64) -> Result<Mapping, SymmError> {
        let available = available_bytes();
        let refused = |call, code| SymmError::Reserve {
            backend: NAME,
            bytes,
            call,
            code,
            available_bytes: available.unwrap_or(0),
        };
        // Before any page is touched: inside a control group the kernel would kill, not refuse.
        let Some(file_bytes) = whole_pages(bytes).filter(|&size| available.is_none_or(|room| size <= room))
        else {
            return Err(refused("check", 0));
        };
        let file = rustix::fs::memfd_create("cpkv", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|error| failed("memfd_create", error))?;
        reserve(&file, file_bytes).map_err(|error| refused("fallocate", error.raw_os_error()))?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(|error| failed("fcntl(F_ADD_SEALS)", error))?;
        let map = Map::shared(file.as_fd(), file_bytes as usize).map_err(|error| failed("mmap", error))?;
        map.advise_huge_pages();
        Ok(Mapping { addr: map.addr(), bytes, keep: Arc::new(Region { map, file, bytes }) })
    }

    fn available_bytes(&self) -> Option<u64> {
        available_bytes()
    }

    fn export(&self, mapping: &Mapping, deadline: Deadline) -> Result<Export, SymmError> {
        let foreign = SymmError::ForeignMapping { backend: NAME };
        let region = Arc::clone(&mapping.keep).downcast::<Region>().map_err(|_| foreign)?;
        debug_assert_eq!(region.map.addr(), mapping.addr, "a mapping is its whole region");
        let file = region.file.try_clone().map_err(|error| SymmError::Call {
            backend: NAME,
            call: "fcntl(F_DUPFD_CLOEXEC)",
            code: error.raw_os_error().unwrap_or(0),
        })?;
        let (server, ticket) = FdServer::start(file, deadline).map_err(|error| SymmError::Call {
            backend: NAME,
            call: error.call,
            code: error.code,
        })?;
        let handle = Handle { ticket, bytes: region.bytes }.encode();
        Ok(Export { handle, server: Arc::new(server) })
    }

    fn open(&self, peer: Rank, handle: &[u8], bytes: u64, deadline: Deadline) -> Result<Mapping, SymmError> {
        let bad_handle = || SymmError::BadHandle { backend: NAME, peer };
        let failed =
            |call, error: Errno| SymmError::Open { backend: NAME, peer, call, code: error.raw_os_error() };
        let handle = Handle::decode(handle).ok_or_else(bad_handle)?;
        if handle.bytes != bytes {
            let got_bytes = handle.bytes;
            return Err(SymmError::SizeMismatch { backend: NAME, peer, expected_bytes: bytes, got_bytes });
        }
        let file_bytes = whole_pages(bytes).ok_or_else(bad_handle)?;
        let file = fetch(&handle.ticket, deadline).map_err(|error| match error {
            FetchError::Deadline => {
                SymmError::OpenTimeout { backend: NAME, peer, waited_ms: deadline.waited_ms() }
            }
            FetchError::Call { call, code } => SymmError::Open { backend: NAME, peer, call, code },
        })?;
        let seals =
            rustix::fs::fcntl_get_seals(&file).map_err(|error| failed("fcntl(F_GET_SEALS)", error))?;
        if !seals.contains(SEALS) {
            return Err(failed("fcntl(F_GET_SEALS)", Errno::PERM));
        }
        let stat = rustix::fs::fstat(&file).map_err(|error| failed("fstat", error))?;
        if u64::try_from(stat.st_size).ok() != Some(file_bytes) {
            return Err(failed("fstat", Errno::INVAL));
        }
        let map = Map::shared(file.as_fd(), file_bytes as usize).map_err(|error| failed("mmap", error))?;
        map.advise_huge_pages();
        Ok(Mapping { addr: map.addr(), bytes, keep: Arc::new(map) })
    }
}

fn failed(call: &'static str, error: Errno) -> SymmError {
    SymmError::Call { backend: NAME, call, code: error.raw_os_error() }
}

/// Gives every page of the file to it, zeroed.
fn reserve(file: &OwnedFd, file_bytes: u64) -> Result<(), Errno> {
    let mut start = 0;
    while start < file_bytes {
        let step = RESERVE_STEP_BYTES.min(file_bytes - start);
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), start, step))?;
        start += step;
    }
    Ok(())
}

/// What peers need: `[magic: 8][ticket: 32][bytes: u64]`, little endian.
struct Handle {
    ticket: Ticket,
    bytes: u64,
}

impl Handle {
    const MAGIC: [u8; 8] = *b"cpkvmfd1";

    fn encode(&self) -> Vec<u8> {
        [&Self::MAGIC[..], &self.ticket.encode(), &self.bytes.to_le_bytes()].concat()
    }

    fn decode(handle: &[u8]) -> Option<Self> {
        let (ticket, bytes) = handle.strip_prefix(&Self::MAGIC)?.split_first_chunk()?;
        Some(Self { ticket: Ticket::decode(ticket), bytes: u64::from_le_bytes(bytes.try_into().ok()?) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(20))
    }

    #[test]
    fn two_mappings_show_the_same_bytes() {
        let mine = MemfdBackend.allocate(100_000).unwrap();
        let export = MemfdBackend.export(&mine, soon()).unwrap();
        let theirs = MemfdBackend.open(Rank(1), &export.handle, 100_000, soon()).unwrap();
        assert_ne!(mine.addr, theirs.addr);
        drop(export);
        let last =
            |mapping: &Mapping| std::ptr::with_exposed_provenance_mut::<u8>(mapping.addr as usize + 99_999);
        // SAFETY: the last byte of a live mapping that only this test uses.
        assert_eq!(unsafe { last(&theirs).read_volatile() }, 0);
        // SAFETY: as above.
        unsafe { last(&mine).write_volatile(9) };
        drop(mine);
        // SAFETY: as above; the second mapping keeps the memory.
        assert_eq!(unsafe { last(&theirs).read_volatile() }, 9);
    }

    #[test]
    fn the_size_of_a_region_cannot_be_changed() {
        let mine = MemfdBackend.allocate(8192).unwrap();
        let region = mine.keep.downcast::<Region>().unwrap();
        for bytes in [0, 4096, 1 << 20] {
            assert_eq!(rustix::fs::ftruncate(&region.file, bytes), Err(Errno::PERM));
        }
        assert!(rustix::fs::fcntl_add_seals(&region.file, SealFlags::WRITE).is_err());
    }

    #[test]
    fn more_than_the_machine_has_is_refused_before_any_page_is_touched() {
        for bytes in [available_bytes().unwrap() * 4, 1 << 46, u64::MAX] {
            let error = MemfdBackend.allocate(bytes).err().unwrap();
            assert!(matches!(error, SymmError::Reserve { call: "check", code: 0, .. }), "{error}");
        }
    }

    #[test]
    fn malformed_handles_and_other_sizes_are_refused_without_a_connection() {
        let mine = MemfdBackend.allocate(4096).unwrap();
        let export = MemfdBackend.export(&mine, soon()).unwrap();
        let mut other_version = export.handle.clone();
        other_version[7] = b'2';
        for handle in [
            &[][..],
            &export.handle[1..],
            &export.handle[..47],
            &[&export.handle[..], &[0]].concat(),
            &other_version,
        ] {
            let error = MemfdBackend.open(Rank(2), handle, 4096, soon()).err().unwrap();
            assert_eq!(error, SymmError::BadHandle { backend: NAME, peer: Rank(2) });
        }
        let error = MemfdBackend.open(Rank(2), &export.handle, 4097, soon()).err().unwrap();
        assert!(matches!(error, SymmError::SizeMismatch { expected_bytes: 4097, got_bytes: 4096, .. }));
    }

    #[test]
    fn a_closed_export_refuses_at_once() {
        let mine = MemfdBackend.allocate(4096).unwrap();
        let handle = MemfdBackend.export(&mine, soon()).unwrap().handle;
        let error = MemfdBackend.open(Rank(5), &handle, 4096, soon()).err().unwrap();
        assert!(matches!(error, SymmError::Open { peer: Rank(5), call: "connect", .. }), "{error}");
    }

    #[test]
    fn an_unsealed_or_wrongly_sized_file_is_not_mapped() {
        for (bytes, seals) in [(4096, SealFlags::empty()), (8192, SEALS)] {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = rustix::fs::memfd_create("other", flags).unwrap();
            rustix::fs::ftruncate(&file, bytes).unwrap();
            rustix::fs::fcntl_add_seals(&file, seals).unwrap();
            let (_server, ticket) = FdServer::start(file, soon()).unwrap();
            let handle = Handle { ticket, bytes: 4096 }.encode();
            assert!(matches!(MemfdBackend.open(Rank(0), &handle, 4096, soon()), Err(SymmError::Open { .. })));
        }
    }
}
