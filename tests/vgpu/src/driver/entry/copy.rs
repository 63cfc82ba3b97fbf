//! Copies.
//!
//! As CUDA has it: copies between device memory do not make the host wait; the others do, and the `Async` forms do when
//! the host memory is not pinned (to the device: the bytes are taken at the call).

use std::sync::Arc;

use crate::driver::Code;
use crate::driver::copying::Place;
use crate::driver::driver::Driver;
use crate::driver::space::Space;
use crate::driver::stream::{Stream, Submitted};
use crate::driver::work::Work;

use super::stream;

/// What a host address is: pinned memory, device memory (addresses are unified), or the caller's own.
fn host(driver: &Driver, address: u64, bytes: u64) -> Result<Place, Code> {
    if address == 0 {
        return Err(Code::InvalidValue);
    }
    match driver.space.find(address) {
        Some(_) => device(driver, address, bytes),
        None if Space::is_virtual(address) => Err(Code::InvalidValue),
        None => Ok(Place::Host(address as usize)),
    }
}

fn device(driver: &Driver, address: u64, bytes: u64) -> Result<Place, Code> {
    let (allocation, offset) = driver.space.range(address, bytes)?;
    Ok(Place::Device(allocation, offset))
}

fn is_host(place: &Place) -> bool {
    match place {
        Place::Device(allocation, _) => allocation.is_host(),
        _ => true,
    }
}

/// A copy that is done when the call returns, unless both sides are device memory.
fn now(to: u64, from: u64, bytes: usize, any_device: bool) -> Result<(), Code> {
    let (driver, stream) = stream(0)?;
    driver.captures.refuse_unsafe()?;
    if bytes == 0 {
        return Ok(());
    }
    let bytes = bytes as u64;
    let (to, from) = (host(driver, to, bytes)?, host(driver, from, bytes)?);
    let waits = is_host(&to) || is_host(&from);
    let done = stream.submit_now(driver, Work::Copy { to, from, bytes, any_device })?;
    if waits { driver.wait("a copy", &stream.context, &[done]) } else { Ok(()) }
}

/// A copy on a stream.
fn later(
    driver: &'static Driver,
    stream: &Arc<Stream>,
    to: u64,
    from: u64,
    bytes: usize,
    any_device: bool,
) -> Result<(), Code> {
    if bytes == 0 {
        return Ok(());
    }
    let bytes = bytes as u64;
    let (to, mut from) = (host(driver, to, bytes)?, host(driver, from, bytes)?);
    if let (Place::Host(address), true) = (&from, stream.capture().is_none()) {
        // SAFETY: the caller's memory is valid for the copy, which begins now.
        let seen = unsafe { std::slice::from_raw_parts(*address as *const u8, bytes as usize) };
        from = Place::Bytes(seen.into());
    }
    let pageable = matches!(to, Place::Host(_));
    let submitted = stream.submit(driver, Work::Copy { to, from, bytes, any_device }, Vec::new())?;
    match submitted {
        Submitted::Queued(done) if pageable => {
            driver.wait("a copy to pageable memory", &stream.context, &[done])
        }
        _ => Ok(()),
    }
}

/// `to` (`from`) must be device memory.
fn want_device(driver: &Driver, address: u64, bytes: usize) -> Result<(), Code> {
    if bytes == 0 { Ok(()) } else { device(driver, address, bytes as u64).map(drop) }
}

entries! {
    /// Copies whatever the addresses are.
    fn cuMemcpy(to: u64, from: u64, bytes: usize) {
        now(to, from, bytes, false)
    }

    /// Copies to the device.
    fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) {
        want_device(stream(0)?.0, to, bytes)?;
        now(to, from, bytes, false)
    }

    /// Copies from the device.
    fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) {
        want_device(stream(0)?.0, from, bytes)?;
        now(to, from, bytes, false)
    }

    /// Copies on the device; the host does not wait.
    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) {
        want_device(stream(0)?.0, from, bytes)?;
        want_device(stream(0)?.0, to, bytes)?;
        now(to, from, bytes, false)
    }

    /// Copies between contexts, with or without peer access; the host does not wait.
    fn cuMemcpyPeer(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize) {
        let (driver, _) = stream(0)?;
        driver.contexts.get(to_context)?;
        driver.contexts.get(from_context)?;
        want_device(driver, from, bytes)?;
        want_device(driver, to, bytes)?;
        now(to, from, bytes, true)
    }

    /// Copies whatever the addresses are, on a stream.
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, on: u64) {
        let (driver, stream) = stream(on)?;
        later(driver, &stream, to, from, bytes, false)
    }

    /// Copies to the device, on a stream.
    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, on: u64) {
        let (driver, stream) = stream(on)?;
        want_device(driver, to, bytes)?;
        later(driver, &stream, to, from, bytes, false)
    }

    /// Copies from the device, on a stream.
    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, on: u64) {
        let (driver, stream) = stream(on)?;
        want_device(driver, from, bytes)?;
        later(driver, &stream, to, from, bytes, false)
    }

    /// Copies on the device, on a stream.
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, on: u64) {
        let (driver, stream) = stream(on)?;
        want_device(driver, from, bytes)?;
        want_device(driver, to, bytes)?;
        later(driver, &stream, to, from, bytes, false)
    }

    /// Copies between contexts, on a stream.
    fn cuMemcpyPeerAsync(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, on: u64) {
        let (driver, stream) = stream(on)?;
        driver.contexts.get(to_context)?;
        driver.contexts.get(from_context)?;
        want_device(driver, from, bytes)?;
        want_device(driver, to, bytes)?;
        later(driver, &stream, to, from, bytes, true)
    }
}
