//! Global memory: located, checked, and accessed with host atomics, so that the interpreter itself never races.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::machine::{Memory, Region, Sharing};
use crate::ptx::types::{Order, Scope};

use super::fault::{Cause, FaultKind};
use super::launch::Rules;
use super::shadow::Shadow;

/// For `load_all` and `store_all`: an access that orders nothing.
const RELAXED: bool = false;
/// For `load_all` and `store_all`: an acquire or release.
const ORDERED: bool = true;
/// Regions that are remembered.
const NUM_CACHED: usize = 8;

/// Global memory as one call of `run` sees it.
pub(crate) struct Globals<'m> {
    memory: &'m dyn Memory,
    rules: Rules,
    cache: [Option<Region>; NUM_CACHED],
    oldest: usize,
}

/// Where an access lies.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Its first byte in this process.
    pub(crate) data: *mut u8,
    pub(crate) shadow: Shadow,
    pub(crate) sharing: Sharing,
    pub(crate) address: u64,
}

impl<'m> Globals<'m> {
    pub(crate) fn new(memory: &'m dyn Memory, rules: Rules) -> Self {
        Self { memory, rules, cache: [None; NUM_CACHED], oldest: 0 }
    }

    /// Whether reads of memory that nothing wrote are faults.
    pub(crate) fn reports_uninitialised(&self) -> bool {
        self.rules.report_uninitialised
    }

    /// The place of `bytes` bytes at `address`, which must be a multiple of `align`, and of `host_align` in this
    /// process. Both are powers of two.
    pub(crate) fn place(
        &mut self,
        address: u64,
        bytes: u64,
        align: u64,
        host_align: u64,
    ) -> Result<Place, Box<Cause>> {
        let holds = |region: &Region| address.wrapping_sub(region.start) < region.bytes;
        let cached = self.cache.iter().flatten().find(|region| holds(region)).copied();
        let region = match cached {
            Some(region) => region,
            None => {
                let Some(region) = self.memory.locate(address) else {
                    let what = format!("no live allocation is at {address:#x}, {bytes} bytes are accessed");
                    return Err(Cause::at(FaultKind::IllegalAddress, address, what));
                };
                self.cache[self.oldest] = Some(region);
                self.oldest = (self.oldest + 1) % NUM_CACHED;
                region
            }
        };
        let offset = address.wrapping_sub(region.start);
        if offset >= region.bytes || bytes > region.bytes - offset {
            let what = format!(
                "{bytes} bytes are accessed, the allocation of {} bytes at {:#x} ends before",
                region.bytes, region.start
            );
            return Err(Cause::at(FaultKind::IllegalAddress, address, what));
        }
        if address & (align - 1) != 0 {
            let what = format!("the access needs an address that is a multiple of {align}");
            return Err(Cause::at(FaultKind::Misaligned, address, what));
        }
        let data = region.data.wrapping_add(offset as usize);
        if data as u64 & (host_align - 1) != 0 {
            let what =
                "the allocation's bytes lie in this process at another alignment than at their address";
            return Err(Cause::at(FaultKind::Other, address, what));
        }
        let shadow = Shadow::new(&region, offset, bytes);
        Ok(Place { data, shadow, sharing: region.sharing, address })
    }

    /// Loads `count` elements of `bytes` bytes.
    pub(crate) fn load(
        &mut self,
        address: u64,
        (bytes, count): (u8, u8),
        (order, scope): (Order, Scope),
    ) -> Result<[u64; 4], Box<Cause>> {
        let size = u64::from(bytes) * u64::from(count);
        let place = self.place(address, size, size, u64::from(bytes))?;
        if order != Order::Acquire {
            place.shadow.check_load(self.rules.report_uninitialised)?;
            return Ok(place.load_all::<RELAXED>(bytes, count));
        }
        place.check_scope(scope, "an acquire")?;
        place.shadow.check_init(self.rules.report_uninitialised)?;
        place.shadow.synchronise(false);
        Ok(place.load_all::<ORDERED>(bytes, count))
    }

    /// Stores `count` elements of `bytes` bytes.
    pub(crate) fn store(
        &mut self,
        address: u64,
        (bytes, count): (u8, u8),
        (order, scope): (Order, Scope),
        values: [u64; 4],
    ) -> Result<(), Box<Cause>> {
        let size = u64::from(bytes) * u64::from(count);
        let place = self.place(address, size, size, u64::from(bytes))?;
        if order != Order::Release {
            place.shadow.store()?;
            place.store_all::<RELAXED>(bytes, &values[..usize::from(count)]);
            return Ok(());
        }
        place.check_scope(scope, "a release")?;
        place.shadow.synchronise(true);
        place.store_all::<ORDERED>(bytes, &values[..usize::from(count)]);
        Ok(())
    }
}

impl Place {
    /// Refuses a scope that does not reach everybody who shares the memory.
    pub(crate) fn check_scope(&self, scope: Scope, what: &str) -> Result<(), Box<Cause>> {
        if self.sharing == Sharing::Private || scope == Scope::Sys {
            return Ok(());
        }
        let what = format!(
            "{what} of {scope:?} scope on memory that others share: it orders nothing for them; use `.sys`"
        );
        Err(Cause::at(FaultKind::Ordering, self.address, what))
    }

    /// `count` elements of `bytes` bytes; `ORDERED`: they acquire.
    fn load_all<const ORDERED: bool>(&self, bytes: u8, count: u8) -> [u64; 4] {
        let order = if ORDERED { Ordering::Acquire } else { Ordering::Relaxed };
        let mut values = [0; 4];
        let data = self.data;
        macro_rules! load {
            ($atomic:ty) => {
                for (at, value) in values.iter_mut().take(usize::from(count)).enumerate() {
                    let at = data.cast::<$atomic>().wrapping_add(at);
                    // SAFETY: `place` checked bounds and alignment of all elements, and processes access these bytes
                    // by atomics alone while kernels run.
                    *value = unsafe { &*at }.load(order).into();
                }
            };
        }
        match bytes {
            1 => load!(AtomicU8),
            2 => load!(AtomicU16),
            4 => load!(AtomicU32),
            _ => load!(AtomicU64),
        }
        values
    }

    /// Stores elements of `bytes` bytes; `ORDERED`: they release.
    fn store_all<const ORDERED: bool>(&self, bytes: u8, values: &[u64]) {
        let order = if ORDERED { Ordering::Release } else { Ordering::Relaxed };
        let data = self.data;
        macro_rules! store {
            ($atomic:ty, $word:ty) => {
                for (at, &value) in values.iter().enumerate() {
                    let at = data.cast::<$atomic>().wrapping_add(at);
                    // SAFETY: as in `load_all`.
                    unsafe { &*at }.store(value as $word, order);
                }
            };
        }
        match bytes {
            1 => store!(AtomicU8, u8),
            2 => store!(AtomicU16, u16),
            4 => store!(AtomicU32, u32),
            _ => store!(AtomicU64, u64),
        }
    }

    /// The 8 bytes at `offset`.
    pub(crate) fn load_word(&self, offset: usize) -> u64 {
        Self { data: self.data.wrapping_add(offset), ..*self }.load_all::<RELAXED>(8, 1)[0]
    }

    /// Stores 8 bytes at `offset`.
    pub(crate) fn store_word(&self, offset: usize, value: u64) {
        Self { data: self.data.wrapping_add(offset), ..*self }.store_all::<RELAXED>(8, &[value]);
    }
}
