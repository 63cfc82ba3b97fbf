//! Symmetric memory that cannot really be shared: what `can_access_peer` promises on some machines.

use cpkv::deadline::Deadline;
use cpkv::device::MemoryKind;
use cpkv::symm::{Export, Mapping, SharedBackend, SymmBackend, SymmError};
use cpkv::units::Rank;

/// How it fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lie {
    /// Exporting the own memory fails.
    FailsAtExport,
    /// Opening a peer's memory fails.
    FailsAtOpen,
    /// Opening succeeds, but what is mapped is not the peer's memory.
    ReadsOtherMemory,
}

/// A backend that cannot open peers' memory.
pub(crate) struct LyingBackend {
    inner: SharedBackend,
    lie: Lie,
}

impl LyingBackend {
    /// A backend as `inner`, but for its `lie`.
    pub(crate) fn new(inner: SharedBackend, lie: Lie) -> Self {
        Self { inner, lie }
    }
}

// SAFETY: mappings are the inner backend's, valid memory all of them; that some are not the peer's is what the probe
// must find.
unsafe impl SymmBackend for LyingBackend {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn memory(&self) -> MemoryKind {
        self.inner.memory()
    }

    fn outlives_its_owner(&self) -> bool {
        self.inner.outlives_its_owner()
    }

    fn available_bytes(&self) -> Option<u64> {
        self.inner.available_bytes()
    }

    fn allocate(&self, bytes: u64) -> Result<Mapping, SymmError> {
        self.inner.allocate(bytes)
    }

    fn export(&self, mapping: &Mapping, deadline: Deadline) -> Result<Export, SymmError> {
        match self.lie {
            Lie::FailsAtExport => Err(SymmError::Call { backend: self.name(), call: "export", code: 1 }),
            _ => self.inner.export(mapping, deadline),
        }
    }

    fn open(&self, peer: Rank, handle: &[u8], bytes: u64, deadline: Deadline) -> Result<Mapping, SymmError> {
        match self.lie {
            Lie::FailsAtExport => self.inner.open(peer, handle, bytes, deadline),
            Lie::FailsAtOpen => Err(SymmError::Open { backend: self.name(), peer, call: "open", code: 13 }),
            Lie::ReadsOtherMemory => self.inner.allocate(bytes),
        }
    }
}
