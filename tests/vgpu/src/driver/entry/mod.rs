//! The C entry points, one file a kind of object.
//!
//! Every entry point is written with `entries!`, which catches panics, refuses calls from inside a host function, and
//! lists the symbol for `cuGetProcAddress`. Handles are numbers (`u64`), as wide as the pointers that C declares.

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::code::Code;
use super::current;
use super::driver::Driver;
use super::host_function;
use super::stream::{Lane, Stream};

/// Declares entry points: each is an expression block that gives `Result<(), Code>`.
macro_rules! entries {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            ///
            /// As the CUDA driver API asks: every pointer is null, or valid for what the call does with it.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $kind),*) -> $crate::driver::Code {
                $crate::driver::entry::guard(move || $body)
            }
        )*

        /// The entry points of this file, by name.
        pub(super) fn symbols() -> Vec<(&'static str, *const std::ffi::c_void)> {
            vec![$((stringify!($name), $name as *const std::ffi::c_void)),*]
        }
    };
}

pub mod context;
pub mod copy;
pub mod device;
pub mod error;
pub mod event;
pub mod graph;
pub mod host_memory;
pub mod ipc;
pub mod launch;
pub mod memory;
pub mod module;
pub mod out;
pub mod peer;
pub mod pointer;
pub mod set;
pub mod stream;
pub mod symbol;
mod unsupported;

/// Runs a call: a panic becomes `Unknown`; inside a host function every call is `NotPermitted`.
fn guard(call: impl FnOnce() -> Result<(), Code>) -> Code {
    if host_function::inside() {
        return Code::NotPermitted;
    }
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => Code::Success,
        Ok(Err(code)) => code,
        Err(_) => Code::Unknown,
    }
}

/// The stream with a handle: 0 and 1 are the current context's legacy default stream.
///
/// # Errors
///
/// `NotSupported` for the per-thread default stream (2), `InvalidHandle`, what its context failed with.
fn stream(handle: u64) -> Result<(&'static Driver, Arc<Stream>), Code> {
    if handle == 2 {
        return Err(Code::NotSupported);
    }
    let (driver, context) = current::working()?;
    if handle > 2 {
        let stream = driver.streams.get(handle)?;
        stream.context.check()?;
        return Ok((driver, stream));
    }
    let mut streams = context.streams();
    let make = || Stream::new(1, Arc::clone(&context), Lane::Legacy, 0);
    let legacy = Arc::clone(streams.legacy.get_or_insert_with(make));
    drop(streams);
    Ok((driver, legacy))
}

/// A string of the caller's.
///
/// # Errors
///
/// `InvalidValue` when it is null or not UTF-8.
fn text<'a>(string: *const c_char) -> Result<&'a str, Code> {
    if string.is_null() {
        return Err(Code::InvalidValue);
    }
    // SAFETY: not null, so the entry point's caller promises a string with a zero behind it, valid during the call.
    let string = unsafe { CStr::from_ptr(string) };
    string.to_str().map_err(|_| Code::InvalidValue)
}

/// Every entry point, by name.
fn symbols() -> Vec<(&'static str, *const c_void)> {
    [
        context::symbols(),
        copy::symbols(),
        device::symbols(),
        error::symbols(),
        event::symbols(),
        graph::symbols(),
        host_memory::symbols(),
        ipc::symbols(),
        launch::symbols(),
        memory::symbols(),
        module::symbols(),
        peer::symbols(),
        pointer::symbols(),
        set::symbols(),
        stream::symbols(),
        symbol::symbols(),
    ]
    .concat()
}
