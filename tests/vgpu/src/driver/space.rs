//! The address space: which allocation an address means.
//!
//! Device addresses are never mapped in the process (bit 62 is set, which no processor maps), are not used twice, and
//! differ from process to process: a stale address, a peer's own address and a dereference on the host all fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use super::block::Block;
use super::code::Code;
use super::lock;

/// The first device address, before the process's own offset.
const FIRST: u64 = 1 << 62;
/// Room between allocations, so that an overrun meets no neighbour, in bytes.
const GAP: u64 = 2 << 20;

/// What kind of memory an allocation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `cuMemAlloc`.
    Device,
    /// A module's `.global` variable.
    Global,
    /// Opened from another process; `key` is the memfd's inode.
    Opened { key: u64 },
    /// `cuMemHostAlloc`, with its flags.
    Host { flags: u32 },
    /// `cuMemHostRegister`, with its flags.
    Registered { flags: u32 },
}

/// One live allocation.
pub(super) struct Allocation {
    /// Its first address.
    pub(super) start: u64,
    /// Its bytes.
    pub(super) block: Block,
    /// The context it belongs to, by number.
    pub(super) context: u64,
    /// The device it lies on: its place on the machine.
    pub(super) physical: u32,
    /// What it is.
    pub(super) kind: Kind,
    /// Whether a handle was made of it.
    pub(super) exported: AtomicBool,
    /// How often it was opened and not closed.
    pub(super) opened: AtomicU64,
}

impl Allocation {
    /// Its size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.block.bytes()
    }

    /// Whether the host may dereference its addresses.
    pub(super) fn is_host(&self) -> bool {
        matches!(self.kind, Kind::Host { .. } | Kind::Registered { .. })
    }
}

/// All live allocations of the process.
pub(super) struct Space {
    map: RwLock<BTreeMap<u64, Arc<Allocation>>>,
    next: AtomicU64,
    generation: AtomicU64,
}

impl Space {
    pub(super) fn new() -> Space {
        let own = u64::from(std::process::id()) & 0xF_FFFF;
        Space {
            map: RwLock::new(BTreeMap::new()),
            next: AtomicU64::new(FIRST + (own << 40)),
            generation: AtomicU64::new(1),
        }
    }

    /// Whether an address can only be a device's.
    pub(super) fn is_virtual(address: u64) -> bool {
        address >= FIRST
    }

    /// Places a block. Host memory lies at its own address; the rest at a new one, a multiple of 512.
    ///
    /// # Errors
    ///
    /// `HostMemoryAlreadyRegistered` when host memory overlaps other host memory.
    pub(super) fn place(
        &self,
        block: Block,
        context: u64,
        physical: u32,
        kind: Kind,
    ) -> Result<Arc<Allocation>, Code> {
        let start = match kind {
            Kind::Host { .. } | Kind::Registered { .. } => block.data() as u64,
            _ => {
                let room = (block.bytes() + GAP).next_multiple_of(GAP);
                self.next.fetch_add(room, Ordering::Relaxed)
            }
        };
        let end = start + block.bytes();
        let (exported, opened) = (AtomicBool::new(false), AtomicU64::new(1));
        let allocation = Arc::new(Allocation { start, block, context, physical, kind, exported, opened });
        let mut map = lock::write(&self.map);
        let before = map.range(..end).next_back();
        if before.is_some_and(|(at, other)| at + other.bytes() > start) {
            return Err(Code::HostMemoryAlreadyRegistered);
        }
        map.insert(start, Arc::clone(&allocation));
        self.changed();
        Ok(allocation)
    }

    /// The allocation that holds an address, and the offset in it.
    pub(super) fn find(&self, address: u64) -> Option<(Arc<Allocation>, u64)> {
        let map = lock::read(&self.map);
        let (start, allocation) = map.range(..=address).next_back()?;
        let offset = address - start;
        (offset < allocation.bytes()).then(|| (Arc::clone(allocation), offset))
    }

    /// The allocation that holds a whole range.
    ///
    /// # Errors
    ///
    /// `InvalidValue` when nothing lies there, or the range leaves what lies there.
    pub(super) fn range(&self, address: u64, bytes: u64) -> Result<(Arc<Allocation>, u64), Code> {
        let (allocation, offset) = self.find(address).ok_or(Code::InvalidValue)?;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= allocation.bytes());
        if fits { Ok((allocation, offset)) } else { Err(Code::InvalidValue) }
    }

    /// The allocation that begins at an address.
    pub(super) fn at(&self, start: u64) -> Option<Arc<Allocation>> {
        lock::read(&self.map).get(&start).cloned()
    }

    /// The first allocation that `wanted` likes.
    pub(super) fn first(&self, wanted: impl Fn(&Allocation) -> bool) -> Option<Arc<Allocation>> {
        lock::read(&self.map).values().find(|allocation| wanted(allocation)).cloned()
    }

    /// Every allocation that `wanted` likes.
    pub(super) fn all(&self, wanted: impl Fn(&Allocation) -> bool) -> Vec<Arc<Allocation>> {
        lock::read(&self.map).values().filter(|allocation| wanted(allocation)).cloned().collect()
    }

    /// Takes an allocation out. Its bytes stay mapped while somebody holds it.
    pub(super) fn remove(&self, start: u64) -> Option<Arc<Allocation>> {
        let removed = lock::write(&self.map).remove(&start);
        self.changed();
        removed
    }

    /// Says that what contexts see has changed.
    pub(super) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// A number that grows with every change.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_up_to_its_end_and_no_further() {
        let space = Space::new();
        let place = |bytes| space.place(Block::device(bytes).unwrap(), 1, 0, Kind::Device).unwrap();
        let (first, second) = (place(1000), place(4 << 20));
        assert_eq!(first.start % 512, 0);
        assert!(second.start >= first.start + 1000);
        assert_eq!(space.range(first.start + 10, 990).map(|(_, offset)| offset), Ok(10));
        assert_eq!(space.range(first.start + 10, 991).err(), Some(Code::InvalidValue));
        assert!(space.find(first.start + 1000).is_none());
        assert!(space.find(first.start - 1).is_none());
        space.remove(first.start);
        assert!(space.find(first.start).is_none());
        assert!(place(1000).start > second.start, "an address was used twice");
    }

    #[test]
    fn host_memory_lies_at_its_own_address_once() {
        let space = Space::new();
        let host = space.place(Block::host(100).unwrap(), 1, 0, Kind::Host { flags: 0 }).unwrap();
        assert_eq!(host.start, host.block.data() as u64);
        let again = Block::registered(host.block.data().wrapping_add(50), 100).unwrap();
        let refused = space.place(again, 1, 0, Kind::Registered { flags: 0 }).err();
        assert_eq!(refused, Some(Code::HostMemoryAlreadyRegistered));
    }
}
