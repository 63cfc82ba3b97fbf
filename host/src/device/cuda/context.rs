//! A GPU's context, its kernels, and what all its streams and memory share.

use std::sync::atomic::{AtomicU8, Ordering};

use cpkv_kernels::GATHER_BULK_SHARED_BYTES;
use cust::context::{Context, CurrentContext};
use cust::module::Module;
use cust_raw::{CUfunction, CUfunction_attribute, cuFuncSetAttribute};

use super::PTX;
use super::call::{checked, failed};
use super::driver::{GpuChoice, GpuInfo, find};
use super::geometry::{ENTRY_POINTS, GatherVariant};
use super::memory::{FreeList, Setup};
use super::pinned::PinnedList;
use crate::device::DeviceError;

/// A kernel's handle. Valid as long as the module is loaded.
#[derive(Clone, Copy)]
struct Function(CUfunction);

// SAFETY: a handle of the driver, which takes it from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// The GPU's primary context and what belongs to it. Fields drop in order: memory before the context.
pub(crate) struct Shared {
    info: GpuInfo,
    functions: Vec<Function>,
    gather_variant: AtomicU8,
    setup: Setup,
    free: FreeList,
    pinned: PinnedList,
    _module: Module,
    context: Context,
}

impl Shared {
    /// Retains the context and loads the kernels.
    pub(super) fn open(choice: &GpuChoice) -> Result<Self, DeviceError> {
        let (device, info) = find(choice)?;
        let name = info.short_name();
        let context = Context::new(device).map_err(failed(&name, "cuDevicePrimaryCtxRetain"))?;
        CurrentContext::set_current(&context).map_err(failed(&name, "cuCtxSetCurrent"))?;
        let module = Module::from_ptx(PTX, &[]).map_err(failed(&name, "cuModuleLoadDataEx"))?;
        let function = |entry: &&str| {
            let function = module.get_function(entry).map_err(failed(&name, "cuModuleGetFunction"))?;
            Ok(Function(function.to_raw()))
        };
        let functions = ENTRY_POINTS.iter().map(function).collect::<Result<_, DeviceError>>()?;
        let shared = Self {
            setup: Setup::start(&name)?,
            info,
            functions,
            gather_variant: AtomicU8::new(GatherVariant::Vector as u8),
            free: FreeList::default(),
            pinned: PinnedList::default(),
            _module: module,
            context,
        };
        shared.allow_shared_memory("cpkv_gather_bulk", GATHER_BULK_SHARED_BYTES)?;
        Ok(shared)
    }

    fn allow_shared_memory(&self, entry: &str, bytes: u32) -> Result<(), DeviceError> {
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let at = ENTRY_POINTS.iter().position(|name| *name == entry).unwrap_or(0);
        // SAFETY: a function of the loaded module.
        let result = unsafe { cuFuncSetAttribute(self.function(at), attribute, bytes as i32) };
        checked(self, "cuFuncSetAttribute", result)
    }

    /// Makes the context current on this thread. Before every call of the driver: a thread of the caller may have made
    /// another one current.
    pub(crate) fn enter(&self) -> Result<(), DeviceError> {
        CurrentContext::set_current(&self.context)
            .map_err(|problem| failed(self.info.short_name(), "cuCtxSetCurrent")(problem))
    }

    /// What the driver says about the GPU.
    pub(crate) const fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// Handle of entry point `at` of [`ENTRY_POINTS`].
    pub(super) fn function(&self, at: usize) -> CUfunction {
        self.functions[at].0
    }

    pub(super) fn gather_variant(&self) -> GatherVariant {
        // Relaxed: a setting, it orders nothing.
        GatherVariant::from_u8(self.gather_variant.load(Ordering::Relaxed))
    }

    pub(super) fn set_gather_variant(&self, variant: GatherVariant) {
        // Relaxed: as above.
        self.gather_variant.store(variant as u8, Ordering::Relaxed);
    }

    /// The stream for copies at set-up.
    pub(super) const fn setup(&self) -> &Setup {
        &self.setup
    }

    pub(super) const fn free(&self) -> &FreeList {
        &self.free
    }

    pub(super) const fn pinned(&self) -> &PinnedList {
        &self.pinned
    }

    /// The raw context.
    pub(crate) fn raw_context(&self) -> cust_raw::CUcontext {
        self.context.as_raw()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // What the fields give back, they give back to the current context. Where that cannot be entered, it is lost.
        let _ = self.enter();
    }
}
