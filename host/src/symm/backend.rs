//! How symmetric memory is allocated, exported and opened: one seam for threads, processes and GPUs.

use std::sync::Arc;

use thiserror::Error;

use crate::deadline::Deadline;
use crate::device::{DeviceError, Keep, MemoryKind};
use crate::units::Rank;

/// Memory this process can address. Unmapped when dropped, whoever holds it last.
#[derive(Clone)]
pub struct Mapping {
    /// First address, aligned to at least 4096 bytes.
    pub addr: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// What owns the mapping.
    pub keep: Keep,
}

/// An exported allocation: what peers need to open it, and what must live until all of them have.
pub struct Export {
    /// Given to every peer through the bootstrap. At most 4 KiB.
    pub handle: Vec<u8>,
    /// Serves the peers; dropped after the last one has opened (or failed to).
    pub server: Keep,
}

/// One kind of symmetric memory.
///
/// # Safety
/// A [`Mapping`] it returns is `bytes` of memory at `addr` that can be read and written for as long as its `keep`
/// lives, by nobody outside the group; what `open` returns is the peer's memory, or an error.
pub unsafe trait SymmBackend: Send + Sync {
    /// Its name, for reports: `memfd`, `threads`, `cuda-ipc`.
    fn name(&self) -> &'static str;

    /// What its memory is: a device of the same kind works on it.
    fn memory(&self) -> MemoryKind {
        MemoryKind::Host
    }

    /// Whether memory may be freed while a peer has it open: if not, it is leaked wherever the ranks cannot agree
    /// that all have closed it.
    fn outlives_its_owner(&self) -> bool {
        true
    }

    /// Allocates `bytes` of zeroed memory that peers can open, reserved here and now.
    ///
    /// # Errors
    /// [`SymmError::Reserve`] where the machine does not have it.
    fn allocate(&self, bytes: u64) -> Result<Mapping, SymmError>;

    /// Bytes that all ranks of this machine together may still allocate. `None`: not known beforehand; `allocate`
    /// refuses.
    fn available_bytes(&self) -> Option<u64> {
        None
    }

    /// Makes `mapping` (from [`SymmBackend::allocate`]) openable by the peers.
    ///
    /// # Errors
    /// [`SymmError::Call`].
    fn export(&self, mapping: &Mapping, deadline: Deadline) -> Result<Export, SymmError>;

    /// Opens what `peer` exported as `handle`, `bytes` long.
    ///
    /// # Errors
    /// [`SymmError::Open`] where the peer's memory cannot be mapped here.
    fn open(&self, peer: Rank, handle: &[u8], bytes: u64, deadline: Deadline) -> Result<Mapping, SymmError>;
}

/// A backend that can be shared by the regions of a group.
pub type SharedBackend = Arc<dyn SymmBackend>;

/// Why symmetric memory could not be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SymmError {
    /// The machine cannot reserve that much.
    #[error(
        "{backend}: cannot reserve {bytes} bytes of symmetric memory ({call}, os error {code}; {available_bytes} \
         bytes available): use fewer pages, layers or ranks, or set CPKV_SYMM_HEAP_MB lower"
    )]
    Reserve {
        /// The backend.
        backend: &'static str,
        /// The refused size.
        bytes: u64,
        /// The system call that refused; `check` where the library refused first.
        call: &'static str,
        /// The system's code; 0 for `check`.
        code: i32,
        /// What the machine said is available, in bytes.
        available_bytes: u64,
    },
    /// A system call of this side failed.
    #[error("{backend}: {call} failed (os error {code})")]
    Call {
        /// The backend.
        backend: &'static str,
        /// The system call.
        call: &'static str,
        /// The system's code.
        code: i32,
    },
    /// A peer's memory could not be opened.
    #[error("{backend}: cannot open the memory of rank {peer}: {call} failed (os error {code})")]
    Open {
        /// The backend.
        backend: &'static str,
        /// Whose memory.
        peer: Rank,
        /// The failing call.
        call: &'static str,
        /// The system's code.
        code: i32,
    },
    /// A call of the device's driver failed, while `action`.
    #[error("{backend}: {action}: {problem}")]
    Device {
        /// The backend.
        backend: &'static str,
        /// What was being done.
        action: String,
        /// The driver's error.
        problem: Box<DeviceError>,
    },
    /// A peer did not serve its memory in time.
    #[error("{backend}: rank {peer} did not hand over its memory within {waited_ms} ms: is it alive?")]
    OpenTimeout {
        /// The backend.
        backend: &'static str,
        /// Whose memory.
        peer: Rank,
        /// How long, in milliseconds.
        waited_ms: u64,
    },
    /// A handle that no export of this backend made.
    #[error("{backend}: the handle of rank {peer} is malformed: do all ranks run the same version?")]
    BadHandle {
        /// The backend.
        backend: &'static str,
        /// Whose handle.
        peer: Rank,
    },
    /// A peer's region has another size than asked for.
    #[error(
        "{backend}: the memory of rank {peer} has {got_bytes} bytes, not {expected_bytes}: do all ranks use the same geometry?"
    )]
    SizeMismatch {
        /// The backend.
        backend: &'static str,
        /// Whose memory.
        peer: Rank,
        /// What was asked for, in bytes.
        expected_bytes: u64,
        /// What the peer exports, in bytes.
        got_bytes: u64,
    },
    /// The mapping to export comes from another backend.
    #[error("{backend}: the mapping to export was not allocated by this backend")]
    ForeignMapping {
        /// The backend.
        backend: &'static str,
    },
}
