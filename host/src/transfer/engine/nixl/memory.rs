//! Registered memory: what NIXL may read and what peers may write, alive for as long as either can happen.

use std::collections::BTreeMap;
use std::sync::Arc;

use nixl_sys::{Agent, MemType, MemoryRegion, NixlDescriptor, RegistrationHandle};

use crate::device::{DeviceBuffer, MemoryKind};
use crate::transfer::blocks::Block;
use crate::transfer::engine::{EngineError, EngineProblem, RegistrationId};

use super::call::{foreign, problem};

/// What an engine's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Of which kind.
    pub(super) memory: MemoryKind,
    /// Of which device; 0 for memory of the host.
    pub(super) device_id: u64,
}

impl Place {
    /// NIXL's word for it.
    pub(super) const fn mem_type(self) -> MemType {
        match self.memory {
            MemoryKind::Host => MemType::Dram,
            MemoryKind::Cuda => MemType::Vram,
        }
    }
}

/// A range, described to NIXL.
#[derive(Debug)]
struct Region {
    addr: u64,
    bytes: u64,
    place: Place,
}

impl MemoryRegion for Region {
    unsafe fn as_ptr(&self) -> *const u8 {
        std::ptr::with_exposed_provenance(self.addr as usize)
    }

    fn size(&self) -> usize {
        self.bytes as usize
    }
}

impl NixlDescriptor for Region {
    fn mem_type(&self) -> MemType {
        self.place.mem_type()
    }

    fn device_id(&self) -> u64 {
        self.place.device_id
    }
}

/// One registration. Batches that read the memory share it: it ends with the last of them.
#[derive(Debug)]
pub(super) struct Registration {
    /// Ends the registration when dropped, before the memory may be freed. None for memory without a byte.
    _handle: Option<RegistrationHandle>,
    pub(super) memory: DeviceBuffer,
}

impl Registration {
    fn holds(&self, block: &Block) -> bool {
        let end = block.src.checked_add(block.bytes);
        let held = self.memory.addr().saturating_add(self.memory.bytes());
        block.src >= self.memory.addr() && end.is_some_and(|end| end <= held)
    }
}

/// All registrations of an engine.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    by_id: BTreeMap<RegistrationId, Arc<Registration>>,
    num_made: u64,
}

impl Registrations {
    /// Registers `memory`. A range that is registered already is not told NIXL twice.
    pub(super) fn add(
        &mut self,
        agent: &Agent,
        memory: &DeviceBuffer,
        place: Place,
    ) -> Result<RegistrationId, EngineError> {
        let is_same = |other: &&Arc<Registration>| {
            (other.memory.addr(), other.memory.bytes()) == (memory.addr(), memory.bytes())
        };
        let registration = match self.by_id.values().find(is_same) {
            Some(same) => Arc::clone(same),
            None => {
                let region = Region { addr: memory.addr(), bytes: memory.bytes(), place };
                let told = (region.bytes > 0).then(|| agent.register_memory(&region, None)).transpose();
                let handle = told.map_err(|error| foreign("register", &error))?;
                Arc::new(Registration { _handle: handle, memory: memory.clone() })
            }
        };
        Ok(self.insert(registration))
    }

    fn insert(&mut self, registration: Arc<Registration>) -> RegistrationId {
        let id = RegistrationId(self.num_made);
        self.num_made += 1;
        self.by_id.insert(id, registration);
        id
    }

    /// Ends a registration, once no batch reads its memory.
    pub(super) fn remove(&mut self, id: RegistrationId) -> Result<(), EngineError> {
        let removed = self.by_id.remove(&id);
        removed.map(drop).ok_or_else(|| problem("unregister", EngineProblem::UnknownRegistration))
    }

    /// What `blocks` are read from, each once.
    pub(super) fn sources_of(&self, blocks: &[Block]) -> Result<Vec<Arc<Registration>>, EngineError> {
        let mut sources: Vec<Arc<Registration>> = Vec::new();
        for block in blocks {
            // Most blocks of a batch lie in one buffer, the one found last.
            if sources.last().is_some_and(|source| source.holds(block)) {
                continue;
            }
            let Some(source) = self.by_id.values().find(|registration| registration.holds(block)) else {
                let Block { src, bytes, .. } = *block;
                return Err(problem("submit", EngineProblem::NotRegistered { addr: src, bytes }));
            };
            sources.retain(|other| !Arc::ptr_eq(other, source));
            sources.push(Arc::clone(source));
        }
        Ok(sources)
    }

    /// All registered memory.
    pub(super) fn memory(&self) -> impl Iterator<Item = DeviceBuffer> {
        self.by_id.values().map(|registration| registration.memory.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registrations(ranges: &[(u64, u64)]) -> Registrations {
        let mut all = Registrations::default();
        for &(addr, bytes) in ranges {
            // SAFETY: nobody reads or writes it: only the numbers are looked at.
            let memory = unsafe { DeviceBuffer::from_raw(addr, bytes, Arc::new(())) };
            all.insert(Arc::new(Registration { _handle: None, memory }));
        }
        all
    }

    fn block(src: u64, bytes: u64) -> Block {
        Block { src, dst: 0, bytes }
    }

    #[test]
    fn sources_are_found_once_each_and_to_their_last_byte() {
        let all = registrations(&[(1000, 100), (2000, 50), (1050, 100)]);
        let blocks = [block(1000, 100), block(2049, 1), block(1001, 1), block(2000, 50), block(1149, 1)];
        let mut found: Vec<_> = all.sources_of(&blocks).unwrap().iter().map(|it| it.memory.addr()).collect();
        found.sort_unstable();
        assert_eq!(found, [1000, 1050, 2000]);
        assert!(all.sources_of(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_byte_outside_is_refused_with_its_place() {
        let all = registrations(&[(1000, 100), (1100, 10)]);
        for outside in [block(999, 2), block(1000, 101), block(1099, 2), block(1110, 1), block(u64::MAX, 2)] {
            let error = all.sources_of(&[block(1000, 1), outside]).unwrap_err();
            let expected = EngineProblem::NotRegistered { addr: outside.src, bytes: outside.bytes };
            assert_eq!(error.problem, expected);
        }
    }
}
