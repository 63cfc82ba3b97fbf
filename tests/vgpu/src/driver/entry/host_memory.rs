//! Pinned host memory.

use std::ffi::c_uint;

use super::out::Out;
use crate::driver::Code;
use crate::driver::block::Block;
use crate::driver::current;
use crate::driver::space::{Allocation, Kind};
use crate::driver::staged::Fault;

fn allocate(address: Out<u64>, bytes: usize, flags: u32) -> Result<(), Code> {
    let (driver, context) = current::working()?;
    driver.captures.refuse_unsafe()?;
    address.wanted()?;
    if bytes == 0 || flags & !7 != 0 {
        return Err(Code::InvalidValue);
    }
    let physical = context.device.physical;
    if driver.options.staged.nth(Fault::HostAllocFails, physical) {
        return Err(Code::OutOfMemory);
    }
    let block = Block::host(bytes as u64).map_err(|_| Code::OutOfMemory)?;
    address.set(driver.space.place(block, context.number, physical, Kind::Host { flags })?.start)
}

fn release(address: u64, wanted: impl Fn(&Allocation) -> bool, otherwise: Code) -> Result<(), Code> {
    let (driver, _) = current::working()?;
    driver.captures.refuse_unsafe()?;
    let allocation = driver.space.at(address).filter(|found| wanted(found)).ok_or(otherwise)?;
    let owner = driver.contexts.get(allocation.context)?;
    driver.wait("cuMemFreeHost", &owner, &owner.unfinished())?;
    driver.space.remove(address);
    Ok(())
}

entries! {
    /// New pinned host memory.
    fn cuMemAllocHost_v2(address: Out<u64>, bytes: usize) {
        allocate(address, bytes, 0)
    }

    /// New pinned host memory. Every kind of it is portable and mapped here.
    fn cuMemHostAlloc(address: Out<u64>, bytes: usize, flags: c_uint) {
        allocate(address, bytes, flags)
    }

    /// Frees pinned host memory, after all work of its context.
    fn cuMemFreeHost(address: u64) {
        release(address, |found| matches!(found.kind, Kind::Host { .. }), Code::InvalidValue)
    }

    /// Makes the caller's memory pinned.
    fn cuMemHostRegister_v2(address: u64, bytes: usize, flags: c_uint) {
        let (driver, context) = current::working()?;
        driver.captures.refuse_unsafe()?;
        if address == 0 || bytes == 0 {
            return Err(Code::InvalidValue);
        }
        let block = Block::registered(address as *mut u8, bytes as u64).map_err(|_| Code::OutOfMemory)?;
        let kind = Kind::Registered { flags };
        driver.space.place(block, context.number, context.device.physical, kind).map(drop)
    }

    /// Ends that.
    fn cuMemHostUnregister(address: u64) {
        let registered = |found: &Allocation| matches!(found.kind, Kind::Registered { .. });
        release(address, registered, Code::HostMemoryNotRegistered)
    }

    /// The device's address of pinned memory: the same.
    fn cuMemHostGetDevicePointer_v2(device: Out<u64>, address: u64, _flags: c_uint) {
        let (driver, _) = current::working()?;
        let pinned = driver.space.find(address).filter(|(found, _)| found.is_host());
        pinned.ok_or(Code::InvalidValue)?;
        device.set(address)
    }

    /// The flags that pinned memory was made with.
    fn cuMemHostGetFlags(flags: Out<c_uint>, address: u64) {
        let (driver, _) = current::working()?;
        let (allocation, _) = driver.space.find(address).ok_or(Code::InvalidValue)?;
        match allocation.kind {
            Kind::Host { flags: made } | Kind::Registered { flags: made } => flags.set(made),
            _ => Err(Code::InvalidValue),
        }
    }
}
