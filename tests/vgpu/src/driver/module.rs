//! Modules: PTX that a context has loaded, its variables and its functions.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Once};

use super::code::Code;
use super::context::Context;
use super::copying::{self, Place};
use super::device::{BLOCK_THREADS, SHARED_BYTES, SHARED_OPTIN_BYTES};
use super::driver::Driver;
use super::report;
use super::space::{Allocation, Kind};
use super::staged::Fault;
use crate::ptx::{Kernel, Module};

/// A module.
pub(super) struct LoadedModule {
    /// The context that loaded it, by number.
    pub(super) context: u64,
    /// What was loaded.
    pub(super) module: Arc<Module>,
    /// Where its variables lie.
    pub(super) globals: BTreeMap<String, Arc<Allocation>>,
}

/// A kernel of a module.
pub(super) struct Function {
    /// Its module.
    pub(super) module: Arc<LoadedModule>,
    /// Its module's handle.
    pub(super) module_handle: u64,
    /// Its name.
    pub(super) name: String,
    /// The most dynamic shared memory that a launch may ask for, in bytes.
    max_dynamic: AtomicI32,
}

/// Why an image is no module, with a text for a person.
pub(super) struct Refused {
    pub(super) code: Code,
    pub(super) text: String,
}

impl LoadedModule {
    /// Loads PTX into a context and places its variables.
    pub(super) fn load(driver: &Driver, context: &Context, image: &[u8]) -> Result<LoadedModule, Refused> {
        let refuse = |code, text: String| Refused { code, text };
        if driver.options.staged.is(Fault::ModuleFails, context.device.physical) {
            return Err(refuse(Code::InvalidPtx, "module-fails is staged".to_owned()));
        }
        let image = &*replaced(driver, image)?;
        if image.starts_with(b"\x7fELF") || image.starts_with(&[0x50, 0xED, 0x55, 0xBA]) {
            let text = "the virtual GPU runs PTX, no binaries: load the PTX".to_owned();
            return Err(refuse(Code::NoBinaryForGpu, text));
        }
        let text =
            std::str::from_utf8(image).map_err(|error| refuse(Code::InvalidImage, error.to_string()))?;
        let module = Module::parse(text).map_err(|error| refuse(Code::InvalidPtx, error.to_string()))?;
        let mut loaded =
            LoadedModule { context: context.number, module: Arc::new(module), globals: BTreeMap::new() };
        let parsed = Arc::clone(&loaded.module);
        for global in parsed.globals() {
            let bytes = global.bytes.max(1);
            let placed = driver.allocate(context, bytes, Kind::Global).map_err(|code| {
                loaded.unload(driver, context);
                refuse(code, format!("no memory for the variable {}", global.name))
            })?;
            let init: Arc<[u8]> = global.init.as_slice().into();
            let length = (init.len() as u64).min(bytes);
            // SAFETY: the allocation is at least as long as what is copied.
            unsafe { copying::copy(&Place::Device(Arc::clone(&placed), 0), &Place::Bytes(init), length) };
            loaded.globals.insert(global.name.clone(), placed);
        }
        Ok(loaded)
    }

    /// Gives its variables back. Nothing may be running of it.
    pub(super) fn unload(&self, driver: &Driver, context: &Context) {
        self.globals.values().for_each(|global| driver.release_memory(context, global));
    }
}

/// The image to load: the caller's, or what the environment wants in its place.
fn replaced<'a>(driver: &Driver, image: &'a [u8]) -> Result<Cow<'a, [u8]>, Refused> {
    static SAID: Once = Once::new();
    let Some(path) = &driver.options.module else { return Ok(Cow::Borrowed(image)) };
    let instead = std::fs::read(path).map_err(|error| Refused {
        code: Code::FileNotFound,
        text: format!("CPKV_VGPU_MODULE={}: {error}", path.display()),
    })?;
    SAID.call_once(|| report::note(&format!("modules are replaced by {}", path.display())));
    Ok(Cow::Owned(instead))
}

impl Function {
    /// The kernel with a name.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub(super) fn find(module: Arc<LoadedModule>, module_handle: u64, name: &str) -> Result<Function, Code> {
        let kernel = module.module.kernel(name).ok_or(Code::NotFound)?;
        let room = SHARED_BYTES.saturating_sub(kernel.static_shared_bytes());
        let max_dynamic = AtomicI32::new(room as i32);
        Ok(Function { module, module_handle, name: name.to_owned(), max_dynamic })
    }

    /// What was loaded of it.
    pub(super) fn kernel(&self) -> Result<&Kernel, Code> {
        self.module.module.kernel(&self.name).ok_or(Code::NotFound)
    }

    /// The most dynamic shared memory that a launch may ask for, in bytes.
    pub(super) fn max_dynamic(&self) -> u32 {
        self.max_dynamic.load(Ordering::Relaxed) as u32
    }

    /// The most threads of a block.
    pub(super) fn max_threads(&self) -> Result<u32, Code> {
        Ok(self.kernel()?.max_threads().unwrap_or(BLOCK_THREADS).min(BLOCK_THREADS))
    }

    /// Registers of a thread. PTX has virtual ones; what an assembler would need of them is taken to be at most 64, so
    /// that the largest block fits.
    pub(super) fn registers(&self) -> Result<u32, Code> {
        Ok(self.kernel()?.num_regs().clamp(16, 64))
    }

    /// A `CUfunction_attribute`.
    pub(super) fn attribute(&self, number: i32) -> Result<i32, Code> {
        let kernel = self.kernel()?;
        Ok(match number {
            0 => self.max_threads()? as i32,
            1 => kernel.static_shared_bytes() as i32,
            3 => kernel.local_bytes() as i32,
            4 => self.registers()? as i32,
            5 => 83,
            6 => 90,
            8 => self.max_dynamic() as i32,
            9 => -1,
            // Constant memory, cache mode, clusters.
            2 | 7 | 10..=15 => 0,
            _ => return Err(Code::InvalidValue),
        })
    }

    /// Sets a `CUfunction_attribute`.
    pub(super) fn set_attribute(&self, number: i32, value: i32) -> Result<(), Code> {
        match number {
            8 => {
                let room = SHARED_OPTIN_BYTES.saturating_sub(self.kernel()?.static_shared_bytes());
                if value < 0 || value as u32 > room {
                    return Err(Code::InvalidValue);
                }
                self.max_dynamic.store(value, Ordering::Relaxed);
                Ok(())
            }
            9 if (-1..=100).contains(&value) => Ok(()),
            _ => Err(Code::InvalidValue),
        }
    }
}
