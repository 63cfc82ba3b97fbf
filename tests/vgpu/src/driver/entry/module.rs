//! Modules and functions.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use super::out::Out;
use super::text;
use crate::driver::Code;
use crate::driver::current;
use crate::driver::module::{Function, LoadedModule};
use crate::driver::report;

const JIT_ERROR_LOG: c_int = 5;
const JIT_ERROR_LOG_BYTES: c_int = 6;

/// Loads an image; on refusal the text goes to stderr and to `log`.
fn load(module: Out<u64>, image: &[u8], log: impl FnOnce(&str)) -> Result<(), Code> {
    let (driver, context) = current::working()?;
    driver.captures.refuse_unsafe()?;
    module.wanted()?;
    match LoadedModule::load(driver, &context, image) {
        Ok(loaded) => module.set(driver.modules.insert(Arc::new(loaded))),
        Err(refused) => {
            report::note(&format!("a module was refused: {}", refused.text));
            log(&refused.text);
            Err(refused.code)
        }
    }
}

/// The bytes of an image: up to its zero, as PTX ends; of a binary, enough to know it.
fn bytes<'a>(image: *const c_void) -> Result<&'a [u8], Code> {
    if image.is_null() {
        return Err(Code::InvalidValue);
    }
    // SAFETY: not null, so the entry point's caller promises an image, valid during the call; PTX ends with a zero, and a
    // binary's first zero ends what is looked at.
    Ok(unsafe { CStr::from_ptr(image.cast()) }.to_bytes())
}

/// The value of an option, if it is among the caller's.
fn option(wanted: c_int, count: c_uint, names: Out<c_int>, values: Out<u64>) -> Option<(usize, u64)> {
    if names.is_null() || values.is_null() {
        return None;
    }
    // SAFETY: the caller's arrays are not null and `count` long.
    let at = (0..count as usize).find(|&at| unsafe { names.at(at) } == wanted)?;
    // SAFETY: as above.
    Some((at, unsafe { values.at(at) }))
}

/// Puts a refusal's text into the buffer that the options name, and its length into the option of the length.
fn put_log(refusal: &str, count: c_uint, names: Out<c_int>, values: Out<u64>) {
    let buffer = option(JIT_ERROR_LOG, count, names, values);
    let room = option(JIT_ERROR_LOG_BYTES, count, names, values);
    let (Some((_, buffer)), Some((place, room))) = (buffer, room) else { return };
    if buffer == 0 || room as u32 == 0 {
        return;
    }
    let length = refusal.len().min(room as u32 as usize - 1);
    // SAFETY: the options say that the buffer has room for that many bytes.
    let buffer = unsafe { Out::new(buffer as *mut u8) };
    for (index, byte) in refusal.bytes().take(length).chain([0]).enumerate() {
        // SAFETY: `length + 1` bytes are at most the room.
        unsafe { buffer.set_at(index, byte) };
    }
    // SAFETY: the place is one of the caller's `count` options.
    unsafe { values.set_at(place, length as u64) };
}

entries! {
    /// Loads PTX.
    fn cuModuleLoadData(module: Out<u64>, image: *const c_void) {
        load(module, bytes(image)?, |_| ())
    }

    /// Loads PTX; of the options, the error log is acted on.
    fn cuModuleLoadDataEx(
        module: Out<u64>,
        image: *const c_void,
        count: c_uint,
        names: Out<c_int>,
        values: Out<u64>,
    ) {
        load(module, bytes(image)?, |refusal| put_log(refusal, count, names, values))
    }

    /// Loads PTX from a file.
    fn cuModuleLoad(module: Out<u64>, path: *const c_char) {
        let image = std::fs::read(text(path)?).map_err(|_| Code::FileNotFound)?;
        load(module, &image, |_| ())
    }

    /// Unloads a module, after all work of its context.
    fn cuModuleUnload(module: u64) {
        let (driver, _) = current::working()?;
        driver.captures.refuse_unsafe()?;
        let loaded = driver.modules.get(module)?;
        let context = driver.contexts.get(loaded.context)?;
        driver.wait("cuModuleUnload", &context, &context.unfinished())?;
        driver.modules.remove(module)?;
        driver.functions.remove_all(|function| function.module_handle == module);
        loaded.unload(driver, &context);
        Ok(())
    }

    /// The kernel of a module with a name.
    fn cuModuleGetFunction(function: Out<u64>, module: u64, name: *const c_char) {
        let (driver, _) = current::working()?;
        function.wanted()?;
        let (loaded, name) = (driver.modules.get(module)?, text(name)?);
        let same = |known: &Function| known.module_handle == module && known.name == name;
        if let Some((handle, _)) = driver.functions.find(same) {
            return function.set(handle);
        }
        function.set(driver.functions.insert(Arc::new(Function::find(loaded, module, name)?)))
    }

    /// The address and size of a module's variable.
    fn cuModuleGetGlobal_v2(address: Out<u64>, bytes: Out<usize>, module: u64, name: *const c_char) {
        let (driver, _) = current::working()?;
        let loaded = driver.modules.get(module)?;
        let global = loaded.globals.get(text(name)?).ok_or(Code::NotFound)?;
        address.set_if_wanted(global.start);
        bytes.set_if_wanted(global.bytes() as usize);
        Ok(())
    }

    /// Modules are loaded eagerly (1).
    fn cuModuleGetLoadingMode(mode: Out<c_int>) {
        mode.set(1)
    }

    /// An attribute of a function.
    fn cuFuncGetAttribute(value: Out<c_int>, attribute: c_int, function: u64) {
        value.set(current::working()?.0.functions.get(function)?.attribute(attribute)?)
    }

    /// Sets an attribute of a function.
    fn cuFuncSetAttribute(function: u64, attribute: c_int, value: c_int) {
        current::working()?.0.functions.get(function)?.set_attribute(attribute, value)
    }

    /// No cache, no preference.
    fn cuFuncSetCacheConfig(function: u64, _config: c_int) {
        current::working()?.0.functions.get(function).map(drop)
    }

    /// No banks: nothing to set.
    fn cuFuncSetSharedMemConfig(function: u64, _config: c_int) {
        current::working()?.0.functions.get(function).map(drop)
    }

    /// The module of a function.
    fn cuFuncGetModule(module: Out<u64>, function: u64) {
        module.set(current::working()?.0.functions.get(function)?.module_handle)
    }
}
