//! What a kernel is launched with, and why a launch is refused.

use std::collections::BTreeMap;

use crate::ptx::{Kernel, Module};

/// Threads of a block, at most.
const MAX_BLOCK_THREADS: u64 = 1024;
/// Shared memory of a block in bytes, at most (sm_90).
const MAX_SHARED_BYTES: u64 = 227 * 1024;
/// Threads of a grid, at most: all are resident.
const MAX_THREADS: u64 = 1 << 20;

/// A launch.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub dynamic_shared_bytes: u32,
    /// The parameter space, [`Kernel::params_bytes`] long.
    pub params: Vec<u8>,
    /// The virtual address of every `.global` variable of the module.
    pub globals: BTreeMap<String, u64>,
}

/// What is checked beyond what every access is checked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rules {
    /// Reads of global memory that nothing ever wrote are faults. Host memory is excepted: what the host writes there
    /// is not seen.
    pub report_uninitialised: bool,
}

/// Why a launch is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The module has no such kernel.
    #[error("the module has no kernel `{0}`")]
    NoKernel(String),
    /// A grid or block that is empty or too large.
    #[error("grid {grid:?} of blocks {block:?}: {limit}")]
    Shape {
        /// Blocks of the grid.
        grid: [u32; 3],
        /// Threads of a block.
        block: [u32; 3],
        /// What is wrong.
        limit: String,
    },
    /// The parameters have another size than the kernel declares.
    #[error("{given} bytes of parameters, the kernel takes {wanted}")]
    Params {
        /// Bytes given.
        given: usize,
        /// Bytes the kernel declares.
        wanted: usize,
    },
    /// More shared memory than a block has.
    #[error("{bytes} bytes of shared memory, a block has {MAX_SHARED_BYTES}")]
    Shared {
        /// Bytes wanted, static and dynamic.
        bytes: u64,
    },
    /// A variable of the module has no address.
    #[error("the variable `{0}` was not placed")]
    NotPlaced(String),
}

impl Launch {
    /// Checks the launch against the kernel's limits and the machine's.
    pub(crate) fn check(&self, module: &Module, kernel: &Kernel) -> Result<(), LaunchError> {
        let shape = |limit: String| LaunchError::Shape { grid: self.grid, block: self.block, limit };
        let product = |shape: [u32; 3]| shape.iter().fold(1u64, |all, &n| all.saturating_mul(u64::from(n)));
        let (blocks, threads) = (product(self.grid), product(self.block));
        if blocks == 0 || threads == 0 {
            return Err(shape("it is empty".into()));
        }
        let most =
            kernel.max_threads.map_or(MAX_BLOCK_THREADS, |most| u64::from(most).min(MAX_BLOCK_THREADS));
        if threads > most || self.block[2] > 64 {
            return Err(shape(format!("a block of this kernel has at most {most} threads")));
        }
        if kernel.required_block.is_some_and(|required| required != self.block) {
            return Err(shape(format!("the kernel requires blocks of {:?}", kernel.required_block)));
        }
        if blocks.saturating_mul(threads) > MAX_THREADS {
            return Err(shape(format!("all threads are resident, and {MAX_THREADS} are the most")));
        }
        let (given, wanted) = (self.params.len(), kernel.params_bytes());
        if given != wanted {
            return Err(LaunchError::Params { given, wanted });
        }
        let bytes = u64::from(kernel.static_shared_bytes) + u64::from(self.dynamic_shared_bytes);
        if bytes > MAX_SHARED_BYTES {
            return Err(LaunchError::Shared { bytes });
        }
        let missing = module.globals().iter().find(|global| !self.globals.contains_key(&global.name));
        missing.map_or(Ok(()), |global| Err(LaunchError::NotPlaced(global.name.clone())))
    }
}
