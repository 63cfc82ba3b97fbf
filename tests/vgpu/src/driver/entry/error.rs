//! `cuInit`, versions, names of errors.

use std::ffi::{c_char, c_int, c_uint};

use super::out::Out;
use crate::driver::Code;
use crate::driver::driver;

/// CUDA 12.8: PTX 8.7 and older.
const VERSION: c_int = 12080;

fn code(number: c_int) -> Result<Code, Code> {
    Code::from_number(number).ok_or(Code::InvalidValue)
}

entries! {
    /// Starts the driver; reads the environment, once.
    fn cuInit(flags: c_uint) {
        if flags == 0 { driver::start().map(drop) } else { Err(Code::InvalidValue) }
    }

    /// The version of the driver.
    fn cuDriverGetVersion(version: Out<c_int>) {
        version.set(VERSION)
    }

    /// The name of a code.
    fn cuGetErrorName(error: c_int, name: Out<*const c_char>) {
        name.set(code(error)?.name().as_ptr())
    }

    /// The meaning of a code.
    fn cuGetErrorString(error: c_int, text: Out<*const c_char>) {
        text.set(code(error)?.text().as_ptr())
    }

    /// Nothing to profile.
    fn cuProfilerStart() {
        Ok(())
    }

    /// Nothing to profile.
    fn cuProfilerStop() {
        Ok(())
    }
}
