//! The kernels that the host launches.

use std::mem::MaybeUninit;

use cpkv_kernels::{Kernel, abi};

/// What a kernel takes, and the registers it may use.
pub(crate) struct Expected {
    /// Of its entry point.
    pub(crate) name: String,
    pub(crate) params_bytes: usize,
    /// 64 let a multiprocessor of Hopper, which has 65,536, hold 1024 threads.
    pub(crate) max_registers: u32,
}

/// A parameter struct of zeros.
///
/// # Safety
/// `T` is valid as zeros.
unsafe fn zeros<T>() -> T {
    let zeros = MaybeUninit::zeroed();
    // SAFETY: the caller's promise.
    unsafe { zeros.assume_init() }
}

impl Expected {
    /// Of a kernel. A new one does not compile here until it has its size and its bound; and without its place in
    /// [`all`] its entry point is one too many.
    fn of(kernel: Kernel) -> Self {
        let (params_bytes, max_registers) = match kernel {
            Kernel::Barrier(params) => (size_of_val(&params), 40),
            Kernel::Gather(params) | Kernel::GatherBulk(params) => (size_of_val(&params), 64),
            Kernel::FillRows(params) => (size_of_val(&params), 48),
            Kernel::FillPages(params) => (size_of_val(&params), 64),
            Kernel::FillIndexK(params) => (size_of_val(&params), 48),
            Kernel::Zero(params) => (size_of_val(&params), 32),
            Kernel::Probe(params) => (size_of_val(&params), 24),
            Kernel::Poison(params) => (size_of_val(&params), 32),
            Kernel::AddBytes(params) => (size_of_val(&params), 32),
        };
        Self { name: format!("cpkv_{}", kernel.name()), params_bytes, max_registers }
    }
}

/// All kernels.
pub(crate) fn all() -> Vec<Expected> {
    // SAFETY: parameter structs are made of integers, here and below.
    let gather = unsafe { zeros::<abi::GatherParams>() };
    let kernels = [
        // SAFETY: as above.
        Kernel::Barrier(unsafe { zeros() }),
        Kernel::Gather(gather),
        Kernel::GatherBulk(gather),
        // SAFETY: as above.
        Kernel::FillRows(unsafe { zeros() }),
        // SAFETY: as above.
        Kernel::FillPages(unsafe { zeros() }),
        // SAFETY: as above.
        Kernel::FillIndexK(unsafe { zeros() }),
        // SAFETY: as above.
        Kernel::Zero(unsafe { zeros() }),
        // SAFETY: as above.
        Kernel::Probe(unsafe { zeros() }),
        // SAFETY: as above.
        Kernel::Poison(unsafe { zeros() }),
        // SAFETY: as above.
        Kernel::AddBytes(unsafe { zeros() }),
    ];
    kernels.map(Expected::of).into()
}
