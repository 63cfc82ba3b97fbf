//! Symmetric memory of ranks that are threads: plain memory, opened by looking it up.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rustix::rand::GetRandomFlags;

use super::available::available_bytes;
use super::backend::{Export, Mapping, SymmBackend, SymmError};
use super::map::{Map, whole_pages};
use crate::deadline::Deadline;
use crate::device::Keep;
use crate::units::Rank;

const NAME: &str = "threads";

/// Memory of one process, shared by its threads. It lives until the last holder of a mapping drops it.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalBackend;

/// An allocation that can be exported, and what owns it.
pub(super) struct Region {
    pub(super) addr: u64,
    pub(super) bytes: u64,
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "it only has to be dropped last"))]
    pub(super) owner: Keep,
}

/// Exported regions by id. An entry exists as long as its [`Listing`].
static EXPORTED: LazyLock<Mutex<Exported>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Exported {
    next_id: u64,
    regions: BTreeMap<u64, Arc<Region>>,
}

/// Keeps an export open; takes it off the list when dropped.
struct Listing {
    id: u64,
}

/// `[magic: 8][process: 16][id: 8]`: the random process number tells another process's handle from ours.
const MAGIC: [u8; 8] = *b"cpkvloc1";
const HANDLE_BYTES: usize = 32;

// SAFETY: a mapping is made by `mmap` and unmapped when its last `keep` drops; a peer's is what it exported.
unsafe impl SymmBackend for LocalBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn allocate(&self, bytes: u64) -> Result<Mapping, SymmError> {
        let available = available_bytes();
        let refused = |call, code| SymmError::Reserve {
            backend: NAME,
            bytes,
            call,
            code,
            available_bytes: available.unwrap_or(0),
        };
        let Some(map_bytes) = whole_pages(bytes).filter(|&size| available.is_none_or(|room| size <= room))
        else {
            return Err(refused("check", 0));
        };
        let map =
            Map::anonymous(map_bytes as usize).map_err(|error| refused("mmap", error.raw_os_error()))?;
        map.advise_huge_pages();
        map.populate().map_err(|error| refused("madvise", error.raw_os_error()))?;
        Ok(Arc::new(Region { addr: map.addr(), bytes, owner: Arc::new(map) }).into_mapping())
    }

    fn available_bytes(&self) -> Option<u64> {
        available_bytes()
    }

    fn export(&self, mapping: &Mapping, _deadline: Deadline) -> Result<Export, SymmError> {
        export(NAME, mapping)
    }

    /// [`SymmError::Open`] with the code of "no such entry" once the export is closed.
    fn open(&self, peer: Rank, handle: &[u8], bytes: u64, _deadline: Deadline) -> Result<Mapping, SymmError> {
        Ok(open(NAME, peer, handle, bytes)?.into_mapping())
    }
}

/// Lists `mapping`, whose keep is a [`Region`], for the threads of this process.
pub(super) fn export(backend: &'static str, mapping: &Mapping) -> Result<Export, SymmError> {
    let foreign = SymmError::ForeignMapping { backend };
    let region = Arc::clone(&mapping.keep).downcast::<Region>().map_err(|_| foreign)?;
    let process = process_number(backend)?;
    let mut exported = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    let id = exported.next_id;
    exported.next_id += 1;
    exported.regions.insert(id, region);
    let handle = [&MAGIC[..], &process, &id.to_le_bytes()].concat();
    Ok(Export { handle, server: Arc::new(Listing { id }) })
}

/// Looks up what `peer` exported as `handle`, `bytes` long.
pub(super) fn open(
    backend: &'static str,
    peer: Rank,
    handle: &[u8],
    bytes: u64,
) -> Result<Arc<Region>, SymmError> {
    let id = parse(handle, &process_number(backend)?).ok_or(SymmError::BadHandle { backend, peer })?;
    let exported = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(region) = exported.regions.get(&id) else {
        let code = rustix::io::Errno::NOENT.raw_os_error();
        return Err(SymmError::Open { backend, peer, call: "lookup", code });
    };
    if region.bytes != bytes {
        return Err(SymmError::SizeMismatch {
            backend,
            peer,
            expected_bytes: bytes,
            got_bytes: region.bytes,
        });
    }
    Ok(Arc::clone(region))
}

impl Region {
    pub(super) fn into_mapping(self: Arc<Self>) -> Mapping {
        Mapping { addr: self.addr, bytes: self.bytes, keep: self }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let region = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner).regions.remove(&self.id);
        // Outside the lock: the last holder unmaps here, which takes a while.
        drop(region);
    }
}

/// The id in a handle of the process numbered `process`.
fn parse(handle: &[u8], process: &[u8; 16]) -> Option<u64> {
    let handle: &[u8; HANDLE_BYTES] = handle.try_into().ok()?;
    let id = handle.strip_prefix(&MAGIC)?.strip_prefix(process)?;
    id.try_into().ok().map(u64::from_le_bytes)
}

/// A random number of this process, chosen once.
fn process_number(backend: &'static str) -> Result<[u8; 16], SymmError> {
    static NUMBER: LazyLock<Result<[u8; 16], i32>> = LazyLock::new(|| {
        let mut number = [0; 16];
        let outcome = rustix::rand::getrandom(&mut number, GetRandomFlags::empty());
        outcome.map(|_| number).map_err(|error| error.raw_os_error())
    });
    NUMBER.map_err(|code| SymmError::Call { backend, call: "getrandom", code })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(10))
    }

    fn byte(mapping: &Mapping, offset: u64) -> *mut u8 {
        assert!(offset < mapping.bytes);
        std::ptr::with_exposed_provenance_mut((mapping.addr + offset) as usize)
    }

    #[test]
    fn what_is_opened_is_the_same_memory_and_outlives_its_maker() {
        let mine = LocalBackend.allocate(10_000).unwrap();
        assert_eq!(mine.addr % 4096, 0);
        let export = LocalBackend.export(&mine, soon()).unwrap();
        let theirs = LocalBackend.open(Rank(1), &export.handle, 10_000, soon()).unwrap();
        // SAFETY: inside the mapping, which this test alone uses.
        unsafe { byte(&mine, 9_999).write(7) };
        drop((mine, export));
        // SAFETY: as above; the opened mapping keeps the memory.
        assert_eq!(unsafe { byte(&theirs, 9_999).read() }, 7);
        // SAFETY: as above.
        assert_eq!(unsafe { byte(&theirs, 0).read() }, 0);
    }

    #[test]
    fn a_closed_export_and_a_wrong_size_are_named() {
        let mine = LocalBackend.allocate(4096).unwrap();
        let export = LocalBackend.export(&mine, soon()).unwrap();
        let error = LocalBackend.open(Rank(3), &export.handle, 8192, soon()).err().unwrap();
        let expected =
            SymmError::SizeMismatch { backend: NAME, peer: Rank(3), expected_bytes: 8192, got_bytes: 4096 };
        assert_eq!(error, expected);
        let handle = export.handle.clone();
        drop(export);
        let error = LocalBackend.open(Rank(3), &handle, 4096, soon()).err().unwrap();
        assert!(matches!(error, SymmError::Open { peer: Rank(3), call: "lookup", .. }));
    }

    #[test]
    fn handles_of_others_are_malformed() {
        let mine = LocalBackend.allocate(1).unwrap();
        let handle = LocalBackend.export(&mine, soon()).unwrap().handle;
        for position in 0..24 {
            let mut other = handle.clone();
            other[position] ^= 1;
            let error = LocalBackend.open(Rank(0), &other, 1, soon()).err().unwrap();
            assert!(matches!(error, SymmError::BadHandle { .. }));
        }
        for handle in [&[][..], &handle[1..]] {
            let error = LocalBackend.open(Rank(0), handle, 1, soon()).err().unwrap();
            assert!(matches!(error, SymmError::BadHandle { .. }));
        }
    }

    #[test]
    fn more_than_the_machine_has_is_refused() {
        for bytes in [1 << 46, u64::MAX] {
            let error = LocalBackend.allocate(bytes).err().unwrap();
            assert!(matches!(error, SymmError::Reserve { call: "check", .. }), "{error}");
        }
    }

    #[test]
    fn a_mapping_of_another_backend_is_not_exported() {
        let foreign = Mapping { addr: 4096, bytes: 1, keep: Arc::new(()) };
        let error = LocalBackend.export(&foreign, soon()).err().unwrap();
        assert_eq!(error, SymmError::ForeignMapping { backend: NAME });
    }
}
