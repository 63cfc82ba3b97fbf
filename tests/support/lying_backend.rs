//! Symmetric memory that cannot really be shared: what `can_access_peer` promises on some machines.

use cpkv::deadline::Deadline;
use cpkv::symm::{Export, LocalBackend, Mapping, SymmBackend, SymmError};
use cpkv::units::Rank;

/// How it fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lie {
    /// Opening a peer's memory fails.
    FailsAtOpen,
    /// Opening succeeds, but what is mapped is not the peer's memory.
    ReadsOtherMemory,
}

/// A backend that cannot open peers' memory.
pub(crate) struct LyingBackend {
    inner: LocalBackend,
    lie: Lie,
}

impl LyingBackend {
    pub(crate) fn new(lie: Lie) -> Self {
        Self { inner: LocalBackend, lie }
    }
}

// SAFETY: mappings are the inner backend's, valid memory all of them; that some are not the peer's is what the probe
// must find.
unsafe impl SymmBackend for LyingBackend {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn allocate(&self, bytes: u64) -> Result<Mapping, SymmError> {
        self.inner.allocate(bytes)
    }

    fn export(&self, mapping: &Mapping, deadline: Deadline) -> Result<Export, SymmError> {
        self.inner.export(mapping, deadline)
    }

    fn open(
        &self,
        peer: Rank,
        _handle: &[u8],
        bytes: u64,
        _deadline: Deadline,
    ) -> Result<Mapping, SymmError> {
        match self.lie {
            Lie::FailsAtOpen => Err(SymmError::Open { backend: self.name(), peer, call: "open", code: 13 }),
            Lie::ReadsOtherMemory => self.inner.allocate(bytes),
        }
    }
}
