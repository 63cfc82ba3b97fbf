//! Sets of memory. The forms without a stream run on the default stream, and the host waits for pinned memory only.

use std::ffi::{c_uchar, c_uint, c_ushort};

use super::stream;
use crate::driver::Code;
use crate::driver::work::Work;

fn set(on: Option<u64>, address: u64, value: u32, width: u8, count: usize) -> Result<(), Code> {
    let (driver, stream) = stream(on.unwrap_or(0))?;
    if on.is_none() {
        driver.captures.refuse_unsafe()?;
    }
    if count == 0 {
        return Ok(());
    }
    let count = count as u64;
    let bytes = count.checked_mul(u64::from(width)).ok_or(Code::InvalidValue)?;
    let (target, offset) = driver.space.range(address, bytes)?;
    if !address.is_multiple_of(u64::from(width)) {
        return Err(Code::InvalidValue);
    }
    let pinned = target.is_host();
    let work = Work::Set { target, offset, value, width, count };
    if on.is_some() {
        return stream.submit(driver, work, Vec::new()).map(drop);
    }
    let done = stream.submit_now(driver, work)?;
    if pinned { driver.wait("a set", &stream.context, &[done]) } else { Ok(()) }
}

entries! {
    /// Sets bytes.
    fn cuMemsetD8_v2(address: u64, value: c_uchar, count: usize) {
        set(None, address, u32::from(value), 1, count)
    }

    /// Sets elements of 2 bytes.
    fn cuMemsetD16_v2(address: u64, value: c_ushort, count: usize) {
        set(None, address, u32::from(value), 2, count)
    }

    /// Sets elements of 4 bytes.
    fn cuMemsetD32_v2(address: u64, value: c_uint, count: usize) {
        set(None, address, value, 4, count)
    }

    /// Sets bytes, on a stream.
    fn cuMemsetD8Async(address: u64, value: c_uchar, count: usize, on: u64) {
        set(Some(on), address, u32::from(value), 1, count)
    }

    /// Sets elements of 2 bytes, on a stream.
    fn cuMemsetD16Async(address: u64, value: c_ushort, count: usize, on: u64) {
        set(Some(on), address, u32::from(value), 2, count)
    }

    /// Sets elements of 4 bytes, on a stream.
    fn cuMemsetD32Async(address: u64, value: c_uint, count: usize, on: u64) {
        set(Some(on), address, value, 4, count)
    }
}
