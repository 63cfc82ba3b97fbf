//! Contexts.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use super::out::Out;
use crate::driver::Code;
use crate::driver::current;
use crate::driver::driver::driver;

entries! {
    /// Makes a context and makes it current.
    fn cuCtxCreate_v2(context: Out<u64>, flags: c_uint, device: c_int) {
        context.wanted()?;
        let driver = driver()?;
        let made = driver.create(driver.device(device)?, false, flags);
        current::push(made.number);
        context.set(made.number)
    }

    /// Destroys a context, which is no primary one, after its work.
    fn cuCtxDestroy_v2(context: u64) {
        let driver = driver()?;
        driver.captures.refuse_unsafe()?;
        let found = driver.contexts.get(context)?;
        if found.primary {
            return Err(Code::InvalidContext);
        }
        driver.destroy(&found);
        if current::handle() == context {
            current::pop();
        }
        Ok(())
    }

    /// Makes a context current; the one before comes back with `cuCtxPopCurrent`.
    fn cuCtxPushCurrent_v2(context: u64) {
        driver()?.contexts.get(context)?;
        current::push(context);
        Ok(())
    }

    /// Takes the current context off.
    fn cuCtxPopCurrent_v2(context: Out<u64>) {
        driver()?;
        let popped = current::pop().ok_or(Code::InvalidContext)?;
        context.set_if_wanted(popped);
        Ok(())
    }

    /// Makes a context current in place of the current one; 0: none.
    fn cuCtxSetCurrent(context: u64) {
        let driver = driver()?;
        if context == 0 {
            current::pop();
        } else {
            driver.contexts.get(context)?;
            current::set(context);
        }
        Ok(())
    }

    /// The current context; 0: none.
    fn cuCtxGetCurrent(context: Out<u64>) {
        driver()?;
        context.set(current::handle())
    }

    /// The device of the current context.
    fn cuCtxGetDevice(device: Out<c_int>) {
        let (driver, context) = current::any()?;
        device.set(driver.index_of(context.device.physical).ok_or(Code::InvalidDevice)?)
    }

    /// The flags of the current context.
    fn cuCtxGetFlags(flags: Out<c_uint>) {
        flags.set(current::any()?.1.flags.load(Ordering::Relaxed))
    }

    /// Waits for all work of the current context.
    fn cuCtxSynchronize() {
        let (driver, context) = current::working()?;
        driver.captures.refuse_unsafe()?;
        if context.is_capturing() {
            return Err(Code::StreamCaptureUnsupported);
        }
        driver.wait("cuCtxSynchronize", &context, &context.unfinished())
    }

    /// The version of the interface that a context was made with.
    fn cuCtxGetApiVersion(context: u64, version: Out<c_uint>) {
        let driver = driver()?;
        driver.contexts.get(if context == 0 { current::handle() } else { context })?;
        version.set(3020)
    }

    /// The priorities that streams may have.
    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        current::any()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }

    /// A limit of the current context: stack, printf and heap have one.
    fn cuCtxGetLimit(value: Out<usize>, limit: c_int) {
        current::any()?;
        match limit {
            0 => value.set(1024),
            1 => value.set(1 << 20),
            2 => value.set(8 << 20),
            _ => Err(Code::UnsupportedLimit),
        }
    }

    /// Takes a limit and does nothing with it: the virtual GPU has none of them.
    fn cuCtxSetLimit(limit: c_int, _value: usize) {
        current::working()?;
        if (0..3).contains(&limit) { Ok(()) } else { Err(Code::UnsupportedLimit) }
    }

    /// No cache, no preference.
    fn cuCtxGetCacheConfig(config: Out<c_int>) {
        current::any()?;
        config.set(0)
    }

    /// No cache, no preference.
    fn cuCtxSetCacheConfig(_config: c_int) {
        current::working().map(drop)
    }

    /// No banks: the default.
    fn cuCtxGetSharedMemConfig(config: Out<c_int>) {
        current::any()?;
        config.set(0)
    }

    /// No banks: nothing to set.
    fn cuCtxSetSharedMemConfig(_config: c_int) {
        current::working().map(drop)
    }

    /// No cache to reset.
    fn cuCtxResetPersistingL2Cache() {
        current::working().map(drop)
    }
}
