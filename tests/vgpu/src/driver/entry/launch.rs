//! Launches, host functions, occupancy.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::out::Out;
use super::stream;
use crate::driver::Code;
use crate::driver::current;
use crate::driver::device;
use crate::driver::launch::{self, KernelWork, Shape};
use crate::driver::module::Function;
use crate::driver::staged::Fault;
use crate::driver::work::{HostFunction, Work};

/// The parameter space of a launch, from one pointer for each parameter.
fn pack(function: &Function, pointers: Out<*const u8>) -> Result<Vec<u8>, Code> {
    let kernel = function.kernel()?;
    let mut space = vec![0; kernel.params_bytes()];
    for (index, param) in kernel.params().iter().enumerate() {
        pointers.wanted()?;
        // SAFETY: not null; the caller promises a pointer for each parameter.
        let from = unsafe { pointers.at(index) };
        if from.is_null() {
            return Err(Code::InvalidValue);
        }
        // SAFETY: not null, so the caller promises a value of the parameter's size there.
        let value = unsafe { std::slice::from_raw_parts(from, param.bytes as usize) };
        let room = space.get_mut(param.offset as usize..).and_then(|rest| rest.get_mut(..value.len()));
        room.ok_or(Code::InvalidValue)?.copy_from_slice(value);
    }
    Ok(space)
}

fn put(
    function: u64,
    shape: Shape,
    on: u64,
    pointers: Out<*const u8>,
    cooperative: bool,
) -> Result<(), Code> {
    let (driver, stream) = stream(on)?;
    let function = driver.functions.get(function)?;
    if function.module.context != stream.context.number {
        return Err(Code::InvalidContext);
    }
    launch::check(driver, &function, &shape, cooperative)?;
    let params = pack(&function, pointers)?;
    let (staged, context) = (&driver.options.staged, &stream.context);
    let physical = context.device.physical;
    if staged.nth(Fault::LaunchFails, physical) {
        return Err(Code::LaunchOutOfResources);
    }
    if staged.beyond(Fault::Ecc, physical) {
        driver.fault(&format!("device {physical} kernel {}: an ECC error is staged", function.name));
        context.fail(Code::EccUncorrectable);
        return Err(Code::EccUncorrectable);
    }
    let work = Work::Kernel(Arc::new(KernelWork::new(function, shape, params)));
    stream.submit(driver, work, Vec::new()).map(drop)
}

fn occupancy(blocks: Out<c_int>, function: u64, threads: c_int, dynamic: usize) -> Result<(), Code> {
    let function = current::working()?.0.functions.get(function)?;
    let threads = u32::try_from(threads).map_err(|_| Code::InvalidValue)?;
    let dynamic = u32::try_from(dynamic).map_err(|_| Code::InvalidValue)?;
    blocks.set(launch::blocks_per_sm(&function, threads, dynamic)? as c_int)
}

/// `CUoccupancyB2DSize`.
pub type DynamicOfBlock = Option<unsafe extern "C" fn(c_int) -> usize>;

fn best_block(
    grid: Out<c_int>,
    block: Out<c_int>,
    function: u64,
    dynamic_of: DynamicOfBlock,
    dynamic: usize,
    limit: c_int,
) -> Result<(), Code> {
    let function = current::working()?.0.functions.get(function)?;
    let most = function.max_threads()?;
    let limit = if limit <= 0 { most } else { (limit as u32).min(most) };
    let mut best = (0, 0, 0);
    for threads in (32..=limit).step_by(32) {
        let dynamic = match dynamic_of {
            // SAFETY: the caller gives a function to be called with sizes of blocks.
            Some(dynamic_of) => unsafe { dynamic_of(threads as c_int) },
            None => dynamic,
        };
        let blocks = launch::blocks_per_sm(&function, threads, dynamic as u32)?;
        best = best.max((blocks * threads, threads, blocks));
    }
    let (_, threads, blocks) = best;
    grid.set((blocks * device::SMS) as c_int)?;
    block.set(threads as c_int)
}

entries! {
    /// Puts a kernel on a stream. Parameters come as one pointer each; `extra` is not supported.
    fn cuLaunchKernel(
        function: u64,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        dynamic_shared_bytes: c_uint,
        on: u64,
        params: Out<*const u8>,
        extra: *const c_void,
    ) {
        if !extra.is_null() {
            return Err(Code::NotSupported);
        }
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        put(function, Shape { grid, block, dynamic_shared_bytes }, on, params, false)
    }

    /// Puts a kernel on a stream whose blocks must all be resident.
    fn cuLaunchCooperativeKernel(
        function: u64,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        dynamic_shared_bytes: c_uint,
        on: u64,
        params: Out<*const u8>,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        put(function, Shape { grid, block, dynamic_shared_bytes }, on, params, true)
    }

    /// Puts a function of the host on a stream.
    fn cuLaunchHostFunc(on: u64, function: Option<HostFunction>, data: usize) {
        let (driver, stream) = stream(on)?;
        let function = function.ok_or(Code::InvalidValue)?;
        stream.submit(driver, Work::Host { function, data }, Vec::new()).map(drop)
    }

    /// How many blocks fit on a multiprocessor.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<c_int>,
        function: u64,
        threads: c_int,
        dynamic: usize,
    ) {
        occupancy(blocks, function, threads, dynamic)
    }

    /// How many blocks fit on a multiprocessor.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<c_int>,
        function: u64,
        threads: c_int,
        dynamic: usize,
        _flags: c_uint,
    ) {
        occupancy(blocks, function, threads, dynamic)
    }

    /// The block with which most threads are resident, and the grid that fills the device.
    fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<c_int>,
        block: Out<c_int>,
        function: u64,
        dynamic_of: DynamicOfBlock,
        dynamic: usize,
        limit: c_int,
    ) {
        best_block(grid, block, function, dynamic_of, dynamic, limit)
    }

    /// The block with which most threads are resident, and the grid that fills the device.
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<c_int>,
        block: Out<c_int>,
        function: u64,
        dynamic_of: DynamicOfBlock,
        dynamic: usize,
        limit: c_int,
        _flags: c_uint,
    ) {
        best_block(grid, block, function, dynamic_of, dynamic, limit)
    }

    /// The dynamic shared memory that lets so many blocks be resident.
    fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<usize>,
        function: u64,
        blocks: c_int,
        _threads: c_int,
    ) {
        let function = current::working()?.0.functions.get(function)?;
        let blocks = u32::try_from(blocks).ok().filter(|&blocks| blocks > 0).ok_or(Code::InvalidValue)?;
        let taken = function.kernel()?.static_shared_bytes() + device::SHARED_RESERVED_BYTES;
        let room = (device::SHARED_SM_BYTES / blocks).saturating_sub(taken);
        bytes.set(room.min(function.max_dynamic()) as usize)
    }
}
