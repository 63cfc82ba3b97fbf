//! Device memory.

use std::sync::atomic::Ordering;

use super::out::Out;
use crate::driver::Code;
use crate::driver::current;
use crate::driver::space::Kind;
use crate::driver::staged::Fault;

entries! {
    /// New device memory, poisoned.
    fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) {
        let (driver, context) = current::working()?;
        driver.captures.refuse_unsafe()?;
        address.wanted()?;
        if bytes == 0 {
            return Err(Code::InvalidValue);
        }
        if driver.options.staged.nth(Fault::AllocFails, context.device.physical) {
            return Err(Code::OutOfMemory);
        }
        address.set(driver.allocate(&context, bytes as u64, Kind::Device)?.start)
    }

    /// Frees device memory, after all work of its context. Memory that another process still has open: a fault.
    fn cuMemFree_v2(address: u64) {
        let (driver, _) = current::working()?;
        driver.captures.refuse_unsafe()?;
        let found = driver.space.at(address).filter(|found| found.kind == Kind::Device);
        let allocation = found.ok_or(Code::InvalidValue)?;
        let owner = driver.contexts.get(allocation.context)?;
        driver.wait("cuMemFree", &owner, &owner.unfinished())?;
        let openers = allocation.block.openers();
        driver.release_memory(&owner, &allocation);
        if allocation.exported.load(Ordering::Acquire) && !openers.is_empty() {
            let (device, bytes) = (owner.device.physical, allocation.bytes());
            driver.fault(&format!(
                "device {device}: cuMemFree of {bytes} bytes at {address:#x} that processes {openers:?} have open"
            ));
            owner.fail(Code::IllegalAddress);
        }
        Ok(())
    }

    /// The free and the whole memory of the current device, for this process, in bytes.
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let (driver, context) = current::working()?;
        let whole = driver.options.memory_bytes;
        free.set(whole.saturating_sub(context.device.used()) as usize)?;
        total.set(whole as usize)
    }

    /// The first address and the size of the allocation that holds an address.
    fn cuMemGetAddressRange_v2(start: Out<u64>, bytes: Out<usize>, address: u64) {
        let (driver, _) = current::working()?;
        let (allocation, _) = driver.space.find(address).ok_or(Code::NotFound)?;
        start.set_if_wanted(allocation.start);
        bytes.set_if_wanted(allocation.bytes() as usize);
        Ok(())
    }
}
