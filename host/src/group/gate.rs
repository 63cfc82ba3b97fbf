//! A look at a group's poison, for queued work that must not start once it is set.

use cpkv_kernels::signal;

use crate::device::Keep;

/// What queued host calls look at before they start, as kernels look at their poison word. Behind a barrier that was
/// not passed, a collective would wait for ranks that never come.
#[derive(Clone, Default)]
pub struct PoisonGate {
    /// Address of the poison word; 0: none.
    word: u64,
    _keep: Option<Keep>,
}

impl PoisonGate {
    /// A gate on the poison word at `word`.
    ///
    /// # Safety
    /// `word` is the address of a poison word, valid as long as `keep` lives.
    pub(super) unsafe fn new(word: u64, keep: Keep) -> Self {
        Self { word, _keep: Some(keep) }
    }

    /// Whether the group is poisoned. Never, for a gate that belongs to no group ([`PoisonGate::default`]).
    pub fn is_poisoned(&self) -> bool {
        // SAFETY: 0, or a poison word that `_keep` keeps alive.
        unsafe { signal::is_poisoned(self.word) }
    }
}
