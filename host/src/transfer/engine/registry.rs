//! Registered memory: which buffers there are, and which of them cover a range. No synchronisation of its own.

use std::collections::BTreeMap;

use super::RegistrationId;
use crate::device::DeviceBuffer;

/// The registrations of one engine, each keeping its buffer alive.
#[derive(Debug, Default)]
pub(super) struct Registry {
    num_registered: u64,
    buffers: BTreeMap<RegistrationId, DeviceBuffer>,
}

/// A range that no registration covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Uncovered {
    pub(super) addr: u64,
    pub(super) bytes: u64,
}

impl Registry {
    pub(super) fn add(&mut self, memory: &DeviceBuffer) -> RegistrationId {
        let registration = RegistrationId(self.num_registered);
        self.num_registered += 1;
        self.buffers.insert(registration, memory.clone());
        registration
    }

    /// The buffer whose registration ended here; `None` where there is no such registration.
    pub(super) fn remove(&mut self, registration: RegistrationId) -> Option<DeviceBuffer> {
        self.buffers.remove(&registration)
    }

    /// How many registrations there ever were: all so far have a smaller id.
    pub(super) const fn num_registered(&self) -> u64 {
        self.num_registered
    }

    /// The buffers that hold all of `ranges` (address and bytes), each named once; only the first `num_known`
    /// registrations count. A range lies in one buffer; an empty one lies anywhere.
    pub(super) fn cover(
        &self,
        ranges: impl Iterator<Item = (u64, u64)>,
        num_known: u64,
    ) -> Result<Vec<DeviceBuffer>, Uncovered> {
        let mut used: BTreeMap<RegistrationId, &DeviceBuffer> = BTreeMap::new();
        // Neighbours in a batch mostly lie in one buffer: the last one is tried first.
        let mut last: Option<&DeviceBuffer> = None;
        for (addr, bytes) in ranges {
            if bytes == 0 || last.is_some_and(|buffer| holds(buffer, addr, bytes)) {
                continue;
            }
            let known = self.buffers.range(..RegistrationId(num_known));
            let found = known.into_iter().find(|(_, buffer)| holds(buffer, addr, bytes));
            let Some((&registration, buffer)) = found else { return Err(Uncovered { addr, bytes }) };
            used.insert(registration, buffer);
            last = Some(buffer);
        }
        Ok(used.into_values().cloned().collect())
    }
}

/// Whether all of the range lies in the buffer.
fn holds(buffer: &DeviceBuffer, addr: u64, bytes: u64) -> bool {
    let before = addr.checked_sub(buffer.addr());
    before.and_then(|before| before.checked_add(bytes)).is_some_and(|end| end <= buffer.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{CpuDevice, Device};

    #[test]
    fn a_range_is_covered_by_one_buffer_and_only_to_its_last_byte() {
        let memory = CpuDevice.alloc(200).unwrap();
        let (first, second) = (memory.slice(0..100).unwrap(), memory.slice(100..200).unwrap());
        let mut registry = Registry::default();
        registry.add(&first);
        registry.add(&second);
        let at = memory.addr();
        let covers = |addr: u64, bytes: u64| registry.cover([(addr, bytes)].into_iter(), 2);
        for (addr, bytes) in [(at, 100), (at + 99, 1), (at + 100, 100), (7, 0)] {
            assert!(covers(addr, bytes).is_ok(), "{bytes} bytes at {addr}");
        }
        for (addr, bytes) in [(at, 101), (at + 99, 2), (at + 200, 1), (at - 1, 2), (at + 1, u64::MAX)] {
            assert_eq!(covers(addr, bytes).unwrap_err(), Uncovered { addr, bytes });
        }
    }

    #[test]
    fn buffers_are_named_once_and_unknown_ones_not_at_all() {
        let (a, b) = (CpuDevice.alloc(64).unwrap(), CpuDevice.alloc(64).unwrap());
        let mut registry = Registry::default();
        registry.add(&a);
        registry.add(&b);
        let ranges = [(a.addr(), 8), (b.addr(), 8), (a.addr() + 8, 8)];
        assert_eq!(registry.cover(ranges.into_iter(), 2).unwrap().len(), 2);
        let unknown = registry.cover(ranges.into_iter(), 1).unwrap_err();
        assert_eq!(unknown, Uncovered { addr: b.addr(), bytes: 8 });
    }

    #[test]
    fn an_ended_registration_covers_nothing_and_its_id_is_not_used_again() {
        let memory = CpuDevice.alloc(64).unwrap();
        let mut registry = Registry::default();
        let registration = registry.add(&memory);
        assert!(registry.remove(registration).is_some());
        assert!(registry.remove(registration).is_none());
        assert!(registry.cover([(memory.addr(), 1)].into_iter(), 1).is_err());
        assert_ne!(registry.add(&memory), registration);
        assert_eq!(registry.num_registered(), 2);
    }
}
