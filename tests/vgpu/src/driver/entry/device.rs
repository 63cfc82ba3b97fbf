//! Devices.

use std::ffi::{c_char, c_int, c_uint};

use super::out::Out;
use super::text;
use crate::driver::Code;
use crate::driver::driver::driver;

const NAME: &str = "cpkv virtual GPU";

/// `CUuuid`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Uuid {
    /// Its bytes.
    pub bytes: [u8; 16],
}

/// Puts a string into the caller's buffer, cut to what fits, with a zero behind.
fn put(string: &str, buffer: Out<c_char>, room: c_int) -> Result<(), Code> {
    buffer.wanted()?;
    let room = usize::try_from(room).ok().and_then(|room| room.checked_sub(1)).ok_or(Code::InvalidValue)?;
    let length = string.len().min(room);
    for (index, byte) in string.bytes().take(length).chain([0]).enumerate() {
        // SAFETY: `length + 1` is at most the room that the caller named.
        unsafe { buffer.set_at(index, byte as c_char) };
    }
    Ok(())
}

entries! {
    /// The device with an index.
    fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) {
        driver()?.device(ordinal)?;
        device.set(ordinal)
    }

    /// How many devices the process sees.
    fn cuDeviceGetCount(count: Out<c_int>) {
        count.set(driver()?.devices.len() as c_int)
    }

    /// The name of a device.
    fn cuDeviceGetName(name: Out<c_char>, room: c_int, device: c_int) {
        driver()?.device(device)?;
        put(NAME, name, room)
    }

    /// The UUID of a device.
    fn cuDeviceGetUuid(uuid: Out<Uuid>, device: c_int) {
        uuid.set(Uuid { bytes: driver()?.device(device)?.uuid() })
    }

    /// The UUID of a device.
    fn cuDeviceGetUuid_v2(uuid: Out<Uuid>, device: c_int) {
        uuid.set(Uuid { bytes: driver()?.device(device)?.uuid() })
    }

    /// The memory of a device, in bytes.
    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) {
        let driver = driver()?;
        driver.device(device)?;
        bytes.set(driver.options.memory_bytes as usize)
    }

    /// An attribute of a device.
    fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_int, device: c_int) {
        value.set(driver()?.device(device)?.attribute(attribute).ok_or(Code::InvalidValue)?)
    }

    /// The compute capability of a device.
    fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: c_int) {
        driver()?.device(device)?;
        major.set(9)?;
        minor.set(0)
    }

    /// Where on the bus a device is.
    fn cuDeviceGetPCIBusId(name: Out<c_char>, room: c_int, device: c_int) {
        put(&driver()?.device(device)?.pci(), name, room)
    }

    /// The device at a place on the bus.
    fn cuDeviceGetByPCIBusId(device: Out<c_int>, name: *const c_char) {
        let (driver, name) = (driver()?, text(name)?);
        let at = driver.devices.iter().position(|device| device.pci().eq_ignore_ascii_case(name));
        device.set(at.ok_or(Code::InvalidDevice)? as c_int)
    }

    /// Retains a device's primary context.
    fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: c_int) {
        context.wanted()?;
        let driver = driver()?;
        context.set(driver.retain(driver.device(device)?).number)
    }

    /// Releases a device's primary context; the last release destroys it.
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        let driver = driver()?;
        driver.captures.refuse_unsafe()?;
        driver.release(driver.device(device)?, false)
    }

    /// Destroys a device's primary context.
    fn cuDevicePrimaryCtxReset_v2(device: c_int) {
        let driver = driver()?;
        driver.captures.refuse_unsafe()?;
        driver.release(driver.device(device)?, true)
    }

    /// Sets the flags of a device's primary context.
    fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) {
        let driver = driver()?;
        driver.set_primary_flags(driver.device(device)?, flags);
        Ok(())
    }

    /// The flags of a device's primary context, and whether it exists.
    fn cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        let driver = driver()?;
        let (seen, exists) = driver.primary_state(driver.device(device)?);
        flags.set_if_wanted(seen);
        active.set_if_wanted(c_int::from(exists));
        Ok(())
    }
}
