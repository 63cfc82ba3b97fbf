//! A symmetric region: the same size and layout on every rank, each rank's mapped by all.
//!
//! Life cycle, every step collective:
//!
//! 1. *compare* the registration records: a rank that differs is named, nothing is allocated
//! 2. look whether all ranks' memory fits, *allocate* the own and fill its guards; whoever cannot says so, and all
//!    give up together
//! 3. *export* a handle and exchange it; where a rank's memory cannot be exported, none is opened
//! 4. *open* the peers' memory; the outcomes are exchanged, so all use the region or none does
//! 5. use: `base(r) + offset` is the same object on rank `r`
//! 6. *close* the peers' mappings -> bootstrap barrier -> free the own memory: [`SymmRegion::close`]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::arena::{ArenaLayout, Carve, GUARD_BYTE};
use super::backend::{Mapping, SymmBackend, SymmError};
use super::error::RegisterError;
use super::exchange::Exchange;
use super::record::RegistrationRecord;
use crate::deadline::Deadline;
use crate::device::{Device, DeviceBuffer, DeviceError};
use crate::group::{Bootstrap, BootstrapError};
use crate::units::{GroupSize, Rank, RankSet};

/// A registered region.
pub struct SymmRegion {
    name: String,
    rank: Rank,
    layout: ArenaLayout,
    own: OwnMemory,
    peers: PeerMemory,
    pad_taken: AtomicBool,
}

/// The own memory of a region. Dropped without [`OwnMemory::free`], it stays allocated where freeing it under a peer
/// that still has it open is not allowed.
struct OwnMemory {
    mapping: Mapping,
    may_free: bool,
}

impl OwnMemory {
    /// Frees the memory, unless somebody else holds it: every peer has closed it.
    fn free(mut self) {
        self.may_free = true;
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        if !self.may_free {
            std::mem::forget(Arc::clone(&self.mapping.keep));
        }
    }
}

/// The mappings of all ranks, by rank; the own entry is the own mapping. Dropped without [`PeerMemory::close`], they stay
/// open where closing them may wait for work that never ends: the region of a poisoned group is dropped so.
struct PeerMemory {
    mappings: Vec<Mapping>,
    may_close: bool,
}

impl PeerMemory {
    /// Closes them: nothing that is queued uses them any more.
    fn close(mut self) {
        self.may_close = true;
    }
}

impl Drop for PeerMemory {
    fn drop(&mut self) {
        if !self.may_close {
            std::mem::forget(std::mem::take(&mut self.mappings));
        }
    }
}

/// What registering came to, on all ranks alike.
pub enum Registered {
    /// Every rank can address every rank's memory.
    Mapped(SymmRegion),
    /// Some rank cannot export its memory, or not open some peer's: who, and why.
    Unreachable(Vec<(Rank, String)>),
}

impl SymmRegion {
    /// Registers a region of `layout`. Collective.
    ///
    /// # Errors
    /// [`RegisterError`], on every rank, naming the rank that caused it.
    pub fn register(
        name: &str,
        bootstrap: &dyn Bootstrap,
        device: &dyn Device,
        backend: &dyn SymmBackend,
        record: &RegistrationRecord,
        layout: ArenaLayout,
        deadline: Deadline,
    ) -> Result<Registered, RegisterError> {
        let rank = bootstrap.rank();
        let exchange = Exchange { name, bootstrap, deadline };
        let layout_hash = format!("{:016x}", layout.fingerprint());
        let record = record
            .clone()
            .with("memory of the device", device.memory().name())
            .with("backend", backend.name())
            .with("order of carves", layout_hash);
        exchange.compare(&record)?;
        // All ranks have the same of both, so all are refused or none.
        if device.memory() != backend.memory() {
            let (device, backend) = (device.memory().name(), backend.name());
            return Err(RegisterError::WrongMemory { region: name.to_owned(), device, backend });
        }
        let memory = |problem| RegisterError::Memory { region: name.to_owned(), problem };
        // All ranks together, before any of them takes its part.
        let room = room_for_all(backend, layout.region_bytes(), bootstrap.group_size());
        exchange.all_or_none("register: check memory", room.as_ref().err())?;
        room.map_err(memory)?;
        let allocated = backend.allocate(layout.region_bytes());
        exchange.all_or_none("register: allocate", allocated.as_ref().err())?;
        let own = allocated.map_err(memory)?;
        let mut own = OwnMemory { mapping: own, may_free: true };
        let guarded = fill_guards(device, &layout, &own.mapping);
        exchange.all_or_none("register: fill guards", guarded.as_ref().err())?;
        guarded.map_err(|problem| RegisterError::Device { region: name.to_owned(), problem })?;
        let exported = backend.export(&own.mapping, deadline);
        let failures = exchange.outcomes("register: export", exported.as_ref().err())?;
        if !failures.is_empty() {
            // No handle was sent, so nobody has it open.
            return Ok(Registered::Unreachable(failures));
        }
        let exported = exported.map_err(memory)?;
        // From here on peers may have it open.
        own.may_free = backend.outlives_its_owner();
        let handles = exchange.all_gather("register: handles", &exported.handle)?;
        let opened: Result<Vec<Mapping>, SymmError> = (0..)
            .zip(&handles)
            .map(|(peer, handle)| match Rank(peer) {
                peer if peer == rank => Ok(own.mapping.clone()),
                peer => backend.open(peer, handle, layout.region_bytes(), deadline),
            })
            .collect();
        let failures = exchange.outcomes("register: open", opened.as_ref().err())?;
        // Everyone has opened or given up: the handle is of no further use.
        drop(exported);
        match opened {
            Ok(peers) if failures.is_empty() => Ok(Registered::Mapped(Self {
                name: name.to_owned(),
                rank,
                layout,
                peers: PeerMemory { mappings: peers, may_close: own.may_free },
                own,
                pad_taken: AtomicBool::new(false),
            })),
            opened => {
                drop(opened);
                exchange
                    .bootstrap
                    .barrier("register: give up", deadline)
                    .map_err(|problem| RegisterError::Bootstrap { region: name.to_owned(), problem })?;
                own.free();
                Ok(Registered::Unreachable(failures))
            }
        }
    }

    /// The region's name, for reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The layout it was registered with.
    pub const fn layout(&self) -> &ArenaLayout {
        &self.layout
    }

    /// Address of `carve` in rank `rank`'s memory, in this rank's address space.
    pub fn addr(&self, rank: Rank, carve: &Carve) -> u64 {
        self.peers.mappings[rank.idx()].addr + carve.offset
    }

    /// Addresses of `carve` on every rank.
    pub fn addrs(&self, carve: &Carve) -> Vec<u64> {
        self.peers.mappings.iter().map(|peer| peer.addr + carve.offset).collect()
    }

    /// This rank's `carve`, as a buffer; empty where the carve is not one of this region.
    pub fn own(&self, carve: &Carve) -> DeviceBuffer {
        let own = &self.own.mapping;
        let is_inside = carve.offset.checked_add(carve.bytes).is_some_and(|end| end <= own.bytes);
        let (offset, bytes) = if is_inside { (carve.offset, carve.bytes) } else { (0, 0) };
        // SAFETY: the range lies inside the mapping, as just looked at, and `keep` owns that.
        unsafe { DeviceBuffer::from_raw(own.addr + offset, bytes, Arc::clone(&own.keep)) }
    }

    /// All of this rank's memory, guards included.
    pub fn whole(&self) -> DeviceBuffer {
        whole(&self.own.mapping)
    }

    /// Marks the region's signal pad as serving a group.
    ///
    /// # Errors
    /// [`RegisterError::PadTaken`] the second time.
    pub fn take_pad(&self) -> Result<(), RegisterError> {
        // Relaxed: the flag orders nothing, it only admits one.
        if self.pad_taken.swap(true, Ordering::Relaxed) {
            return Err(RegisterError::PadTaken { region: self.name.clone() });
        }
        Ok(())
    }

    /// Offsets of guard bytes that somebody overwrote; empty when all is well. `device` is the one it was
    /// registered with.
    ///
    /// # Errors
    /// [`DeviceError`] where the guards cannot be read.
    pub fn broken_guards(&self, device: &dyn Device) -> Result<Vec<u64>, DeviceError> {
        broken_guards(device, &self.layout, &self.own.mapping)
    }

    /// Closes the peers' mappings, waits until every rank has, and frees the own memory. Collective.
    ///
    /// # Errors
    /// [`BootstrapError`] where a rank does not come; the memory is then freed only where its kind allows that.
    pub fn close(self, bootstrap: &dyn Bootstrap, deadline: Deadline) -> Result<(), BootstrapError> {
        let Self { own, peers, .. } = self;
        peers.close();
        bootstrap.barrier("close region", deadline)?;
        own.free();
        Ok(())
    }

    /// As [`SymmRegion::close`], for a region that may have other holders (a captured layer, say). Where memory may be
    /// freed under peers, the last of them frees it; else nobody's is freed.
    ///
    /// # Errors
    /// As [`SymmRegion::close`]; [`BootstrapError::StillHeld`], on every rank, where memory stays for that reason.
    pub fn close_shared(
        region: Arc<Self>,
        bootstrap: &dyn Bootstrap,
        deadline: Deadline,
    ) -> Result<(), BootstrapError> {
        const CALL: &str = "close region: holders";
        let (rank, outlives) = (region.rank, region.own.may_free);
        let region = Arc::into_inner(region);
        let held = bootstrap.all_gather(CALL, &[u8::from(region.is_none())], deadline)?;
        let holders: RankSet =
            (0..).map(Rank).zip(&held).filter(|(_, flag)| flag[..] != [0]).map(|(rank, _)| rank).collect();
        if !outlives && !holders.is_empty() {
            // Some rank still has this memory open, and may use what it holds of the others'.
            drop(region);
            return Err(BootstrapError::StillHeld { call: CALL, rank, holders });
        }
        match region {
            Some(region) => region.close(bootstrap, deadline),
            None => bootstrap.barrier("close region", deadline),
        }
    }

    /// This rank.
    pub const fn rank(&self) -> Rank {
        self.rank
    }
}

/// Whether every rank's `bytes` fit at once: the ranks share one machine.
fn room_for_all(backend: &dyn SymmBackend, bytes: u64, size: GroupSize) -> Result<(), SymmError> {
    let needed = bytes.saturating_mul(u64::from(size.get()));
    match backend.available_bytes() {
        Some(available_bytes) if needed > available_bytes => Err(SymmError::Reserve {
            backend: backend.name(),
            bytes: needed,
            call: "check of all ranks",
            code: 0,
            available_bytes,
        }),
        _ => Ok(()),
    }
}

fn whole(own: &Mapping) -> DeviceBuffer {
    // SAFETY: the whole mapping, which its `keep` owns.
    unsafe { DeviceBuffer::from_raw(own.addr, own.bytes, Arc::clone(&own.keep)) }
}

fn fill_guards(device: &dyn Device, layout: &ArenaLayout, own: &Mapping) -> Result<(), DeviceError> {
    for (offset, bytes) in layout.guards() {
        let guard = whole(own).slice(offset..offset + bytes)?;
        device.write(&vec![GUARD_BYTE; bytes as usize], &guard)?;
    }
    Ok(())
}

fn broken_guards(device: &dyn Device, layout: &ArenaLayout, own: &Mapping) -> Result<Vec<u64>, DeviceError> {
    let mut broken = Vec::new();
    for (offset, bytes) in layout.guards() {
        let guard = whole(own).slice(offset..offset + bytes)?;
        let mut found = vec![0; bytes as usize];
        device.read(&guard, &mut found)?;
        broken.extend((offset..).zip(found).filter(|(_, byte)| *byte != GUARD_BYTE).map(|(at, _)| at));
    }
    Ok(broken)
}
