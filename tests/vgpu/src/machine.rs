//! The seam between the interpreter (`ptx`, `exec`) and the driver (`driver`): what a running kernel sees of memory.
//!
//! Global addresses are *virtual*: an allocation's address is never the address of its bytes in this process, so that
//! host code that dereferences device memory, and a kernel that dereferences a host pointer, both fail as on a GPU.
//! The exception is host memory made by `cuMemAllocHost`/`cuMemHostAlloc`: there both addresses agree.

use std::sync::atomic::AtomicU8;

/// One live allocation, as a kernel reaches it.
///
/// `data` and `shadow` stay valid while the kernel that located them runs: freeing memory waits for running kernels,
/// as a GPU's driver does.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Its first virtual address.
    pub start: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its first byte in this process.
    pub data: *mut u8,
    /// One byte for every 4 bytes of data, shared by all processes that open the allocation: what the rules of
    /// ordering and of initialisation know about that word. See [`SHADOW_INIT`] and [`SHADOW_SYNC`].
    pub shadow: *const AtomicU8,
    /// Who else may reach it.
    pub sharing: Sharing,
}

/// Who may reach an allocation beside the device it lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody.
    Private,
    /// It was exported: other processes may have opened it. This is the exporter.
    Exported,
    /// It lies on another device, or was opened from another process.
    Peer,
    /// Host memory that the device reaches too.
    Host,
}

/// Shadow bits 0 to 3: byte 0 to 3 of the word has been written.
pub const SHADOW_INIT: u8 = 0x0F;
/// Shadow bit 4: the word has been used to synchronise (a read-modify-write, an acquire or a release at any scope);
/// from then on an ordinary access to it is a fault.
pub const SHADOW_SYNC: u8 = 0x10;

// SAFETY: a description of memory; who dereferences it answers for the access.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// The memory that a kernel's global addresses mean.
pub trait Memory: Sync {
    /// The live allocation that holds `address`; `None`: an illegal address. The caller checks the end.
    fn locate(&self, address: u64) -> Option<Region>;
}
