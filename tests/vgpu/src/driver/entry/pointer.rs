//! What an address is.

use std::ffi::{c_int, c_uint, c_void};

use super::out::Out;
use crate::driver::Code;
use crate::driver::current;
use crate::driver::driver::Driver;
use crate::driver::space::Kind;

/// Puts a `CUpointer_attribute` where the caller wants it, in the width that CUDA gives it.
fn attribute(driver: &Driver, data: *mut c_void, number: c_int, address: u64) -> Result<(), Code> {
    let (allocation, _) = driver.space.find(address).ok_or(Code::InvalidValue)?;
    let host = allocation.is_host();
    // SAFETY: the entry point's caller promises room as wide as CUDA gives the attribute.
    let word = unsafe { Out::new(data.cast::<u64>()) };
    // SAFETY: as above.
    let int = unsafe { Out::new(data.cast::<c_int>()) };
    // SAFETY: as above.
    let byte = unsafe { Out::new(data.cast::<u8>()) };
    match number {
        // The context, the device's and the host's address, the range.
        1 => word.set(allocation.context),
        3 => word.set(address),
        4 if host => word.set(address),
        11 => word.set(allocation.start),
        12 => word.set(allocation.bytes()),
        // An id of the buffer: addresses are not used twice.
        7 => word.set(allocation.start),
        // CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE.
        2 => int.set(if host { 1 } else { 2 }),
        9 => int.set(driver.index_of(allocation.physical).unwrap_or(-2)),
        // Managed, IPC capable, mapped.
        8 => byte.set(0),
        10 => byte.set(u8::from(allocation.kind == Kind::Device)),
        13 => byte.set(1),
        _ => Err(Code::InvalidValue),
    }
}

entries! {
    /// An attribute of an address.
    fn cuPointerGetAttribute(data: *mut c_void, number: c_int, address: u64) {
        let (driver, _) = current::working()?;
        attribute(driver, data, number, address)
    }

    /// Several attributes of an address.
    fn cuPointerGetAttributes(count: c_uint, numbers: Out<c_int>, data: Out<*mut c_void>, address: u64) {
        let (driver, _) = current::working()?;
        numbers.wanted()?;
        data.wanted()?;
        (0..count as usize).try_for_each(|at| {
            // SAFETY: the caller's array is not null (asked above) and `count` long.
            let data = unsafe { data.at(at) };
            // SAFETY: as above.
            let number = unsafe { numbers.at(at) };
            attribute(driver, data, number, address)
        })
    }
}
