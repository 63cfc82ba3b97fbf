//! Launches: what a device accepts, and how a kernel runs on a stream.

use std::sync::Arc;
use std::time::Duration;

use super::code::Code;
use super::context::Context;
use super::device;
use super::driver::Driver;
use super::module::Function;
use super::report;
use super::staged::Fault;
use super::view::View;
use super::work::pause;
use crate::exec::{Execution, FaultKind, Launch, Progress, Rules};

/// Instructions between two looks at whether the context still works.
const QUANTUM: u64 = 20_000;

/// A grid of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Blocks, by dimension.
    pub(super) grid: [u32; 3],
    /// Threads of a block, by dimension.
    pub(super) block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub(super) dynamic_shared_bytes: u32,
}

/// A kernel to run.
pub(super) struct KernelWork {
    function: Arc<Function>,
    shape: Shape,
    params: Vec<u8>,
}

impl Shape {
    fn num_blocks(&self) -> u64 {
        self.grid.iter().fold(1, |product, &blocks| product.saturating_mul(u64::from(blocks)))
    }

    fn block_threads(&self) -> u64 {
        self.block.iter().fold(1, |product, &threads| product.saturating_mul(u64::from(threads)))
    }
}

/// How many blocks of a function fit on a multiprocessor.
pub(super) fn blocks_per_sm(function: &Function, block_threads: u32, dynamic: u32) -> Result<u32, Code> {
    let kernel = function.kernel()?;
    if block_threads == 0 || block_threads > function.max_threads()? || dynamic > function.max_dynamic() {
        return Ok(0);
    }
    let threads = block_threads.next_multiple_of(32);
    let registers = function.registers()? * threads;
    let shared = kernel.static_shared_bytes() + dynamic + device::SHARED_RESERVED_BYTES;
    Ok((device::SM_THREADS / threads)
        .min(device::SM_BLOCKS)
        .min(device::REGISTERS / registers)
        .min(device::SHARED_SM_BYTES / shared))
}

/// Decides whether a device takes a launch.
///
/// # Errors
///
/// `InvalidValue` for a shape that no device takes; `LaunchOutOfResources` for too many registers, and for more threads
/// than the interpreter keeps resident (stderr says so: a real device would run the blocks one after another);
/// `CooperativeLaunchTooLarge`.
pub(super) fn check(
    driver: &Driver,
    function: &Function,
    shape: &Shape,
    cooperative: bool,
) -> Result<(), Code> {
    let within =
        |size: [u32; 3], limit: [u32; 3]| size.iter().zip(limit).all(|(&n, limit)| (1..=limit).contains(&n));
    let block_threads = shape.block_threads();
    if !within(shape.grid, device::GRID_DIM)
        || !within(shape.block, device::BLOCK_DIM)
        || block_threads > u64::from(function.max_threads()?)
        || shape.dynamic_shared_bytes > function.max_dynamic()
        || function.kernel()?.required_block.is_some_and(|required| required != shape.block)
    {
        return Err(Code::InvalidValue);
    }
    let blocks = blocks_per_sm(function, block_threads as u32, shape.dynamic_shared_bytes)?;
    if blocks == 0 {
        return Err(Code::LaunchOutOfResources);
    }
    if cooperative && shape.num_blocks() > u64::from(blocks * device::SMS) {
        return Err(Code::CooperativeLaunchTooLarge);
    }
    let threads = shape.num_blocks().saturating_mul(block_threads);
    if threads > driver.options.max_threads {
        report::note(&format!(
            "kernel {}: a launch of {threads} threads is refused: the virtual GPU keeps all blocks resident, at most {} \
             threads (CPKV_VGPU_MAX_THREADS); a real device would run the blocks one after another",
            function.name, driver.options.max_threads,
        ));
        return Err(Code::LaunchOutOfResources);
    }
    Ok(())
}

impl KernelWork {
    /// A launch; `params` are as long as the kernel says.
    pub(super) fn new(function: Arc<Function>, shape: Shape, params: Vec<u8>) -> KernelWork {
        KernelWork { function, shape, params }
    }

    /// What it is, for a report.
    pub(super) fn describe(&self) -> String {
        let Shape { grid, block, .. } = self.shape;
        format!("kernel {} (grid {grid:?}, block {block:?})", self.function.name)
    }

    /// Runs it to its end, or until the context is over.
    ///
    /// # Errors
    ///
    /// The code of its fault, which has been reported.
    pub(super) fn run(&self, driver: &Driver, context: &Context) -> Result<(), Code> {
        let device = context.device.physical;
        let name = &self.function.name;
        let staged = &driver.options.staged;
        if let Some(microseconds) = staged.number(Fault::Slow, device) {
            std::thread::sleep(Duration::from_micros(microseconds));
        }
        if staged.names(Fault::Stuck, device, name) {
            while !context.is_over() {
                std::thread::sleep(Duration::from_millis(1));
            }
            return Ok(());
        }
        let globals = &self.function.module.globals;
        let launch = Launch {
            grid: self.shape.grid,
            block: self.shape.block,
            dynamic_shared_bytes: self.shape.dynamic_shared_bytes,
            params: self.params.clone(),
            globals: globals.iter().map(|(name, placed)| (name.clone(), placed.start)).collect(),
        };
        let rules = Rules { report_uninitialised: driver.options.report_uninitialised };
        let module = Arc::clone(&self.function.module.module);
        let mut execution = Execution::new(module, name, launch, rules).map_err(|error| {
            driver.fault(&format!("device {device} kernel {name}: not launched: {error}"));
            Code::LaunchFailed
        })?;
        let mut view = View::new(driver, context);
        let mut waits = 0;
        while !context.is_over() {
            view.refresh();
            match execution.run(&view, QUANTUM) {
                Ok(Progress::Done) => break,
                Ok(Progress::Running) => waits = 0,
                Ok(Progress::Waiting) => {
                    waits += 1;
                    pause(waits);
                }
                Err(fault) => {
                    driver.fault(&format!("device {device} kernel {name}: {fault}"));
                    return Err(code(fault.kind()));
                }
            }
        }
        Ok(())
    }
}

/// What a context fails with after a kernel's fault.
fn code(kind: FaultKind) -> Code {
    match kind {
        FaultKind::IllegalAddress => Code::IllegalAddress,
        FaultKind::Misaligned => Code::MisalignedAddress,
        _ => Code::LaunchFailed,
    }
}
