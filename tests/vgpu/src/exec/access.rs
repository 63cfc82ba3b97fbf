//! Loads and stores of every space.

use crate::ptx::program::{Access, Addr};
use crate::ptx::types::{Order, Space};

use super::block::range;
use super::fault::Cause;
use super::integer::{mask, signed};
use super::step::Slice;
use super::window;

impl Slice<'_, '_> {
    /// The space and the address that an operand means.
    pub(super) fn address(&self, addr: Addr) -> (Space, u64) {
        let base = self.thread.regs[usize::from(addr.base)];
        window::resolve(addr.space, base.wrapping_add(addr.offset as u64))
    }

    pub(super) fn load(&mut self, access: &Access) -> Result<(), Box<Cause>> {
        let Access { bytes, count, .. } = *access;
        let (space, address) = self.address(access.addr);
        let size = u64::from(bytes) * u64::from(count);
        let values = match space {
            Space::Global | Space::Generic => {
                self.globals.load(address, (bytes, count), (access.order, access.scope))?
            }
            Space::Shared => {
                self.common.check_load(address, size)?;
                elements(self.common.bytes(address, size, size)?, bytes)
            }
            Space::Local => {
                let range =
                    range(self.thread.local.len(), 0, address, size, size, "the thread's local memory")?;
                elements(&self.thread.local[range], bytes)
            }
            Space::Param => {
                let range = range(self.thread.params.len(), 0, address, size, size, "the parameters")?;
                elements(&self.thread.params[range], bytes)
            }
        };
        for (at, mut value) in values.into_iter().enumerate().take(usize::from(count)) {
            if access.signed {
                value = signed(bytes * 8, value) as u64 & mask(access.slot_bits[at]);
            }
            self.thread.regs[usize::from(access.slots[at])] = value;
        }
        if access.order != Order::Weak {
            self.num_polls += 1;
        }
        Ok(())
    }

    pub(super) fn store(&mut self, access: &Access) -> Result<(), Box<Cause>> {
        let Access { bytes, count, .. } = *access;
        let (space, address) = self.address(access.addr);
        let size = u64::from(bytes) * u64::from(count);
        let mut values = [0; 4];
        for (value, &slot) in values.iter_mut().zip(&access.slots).take(usize::from(count)) {
            *value = self.thread.regs[usize::from(slot)];
        }
        match space {
            Space::Global | Space::Generic => {
                self.thread.fenced = false;
                self.globals.store(address, (bytes, count), (access.order, access.scope), values)?;
            }
            Space::Shared => {
                self.common.check_store(address, size)?;
                put(self.common.bytes_mut(address, size, size)?, bytes, values);
                self.common.note_write(address, size, self.now, self.thread.ids.linear);
            }
            Space::Local => {
                let range =
                    range(self.thread.local.len(), 0, address, size, size, "the thread's local memory")?;
                put(&mut self.thread.local[range], bytes, values);
            }
            Space::Param => {
                let range = range(self.thread.params.len(), 0, address, size, size, "the parameters")?;
                put(&mut self.thread.params[range], bytes, values);
            }
        }
        Ok(())
    }
}

/// The elements of `memory`, each `bytes` bytes; at most four.
pub(super) fn elements(memory: &[u8], bytes: u8) -> [u64; 4] {
    let mut values = [0; 4];
    for (value, element) in values.iter_mut().zip(memory.chunks_exact(usize::from(bytes))) {
        let mut word = [0; 8];
        word[..element.len()].copy_from_slice(element);
        *value = u64::from_le_bytes(word);
    }
    values
}

/// Writes elements of `bytes` bytes.
pub(super) fn put(memory: &mut [u8], bytes: u8, values: [u64; 4]) {
    for (value, element) in values.iter().zip(memory.chunks_exact_mut(usize::from(bytes))) {
        element.copy_from_slice(&value.to_le_bytes()[..usize::from(bytes)]);
    }
}
