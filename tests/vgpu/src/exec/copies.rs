//! Bulk copies that were issued and not yet made. They are made late: when somebody waits for them, or long after.
//! Until then the shared memory they use is not to be touched.

use std::collections::VecDeque;

/// A copy from global to shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingLoad {
    pub(crate) dst: u64,
    pub(crate) src: u64,
    pub(crate) bytes: u64,
    /// The `mbarrier` that counts the bytes.
    pub(crate) barrier: u64,
    /// The instruction that issued it.
    pub(crate) pc: u32,
}

/// A copy from shared to global memory.
#[derive(Debug, Clone)]
pub(crate) struct PendingStore {
    pub(crate) dst: u64,
    pub(crate) src: u64,
    pub(crate) bytes: u64,
    /// The source's bytes, once read.
    pub(crate) read: Option<Vec<u8>>,
    /// The instruction that issued it.
    pub(crate) pc: u32,
}

/// Stores that are waited for together.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreGroup {
    pub(crate) stores: Vec<PendingStore>,
}

/// The stores of a thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stores {
    /// Those that no group holds yet.
    pub(crate) uncommitted: StoreGroup,
    /// Groups that are not complete, oldest first.
    pub(crate) groups: VecDeque<StoreGroup>,
}

impl Stores {
    /// Those whose source was not read yet.
    pub(crate) fn unread(&self) -> impl Iterator<Item = &PendingStore> {
        let stores = self.groups.iter().chain([&self.uncommitted]).flat_map(|group| &group.stores);
        stores.filter(|store| store.read.is_none())
    }
}
