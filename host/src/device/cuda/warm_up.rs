//! Every kernel once, on nothing: so that the driver has loaded them all, and the GPU is known to run them.

use std::sync::Arc;
use std::time::Duration;

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{
    AddBytesParams, BarrierParams, FillIndexKParams, FillPagesParams, FillRowsParams, GatherParams,
    GroupState, HalfSelect, PoisonParams, ProbeParams, RowLayout, ZeroParams,
};
use cpkv_kernels::signal::{FaultRecord, SignalPad};

use super::context::Shared;
use super::stream::CudaStream;
use super::{memory, pinned};
use crate::deadline::Deadline;
use crate::device::{DeviceError, Keep, Stream};

/// Loading the kernels may take the driver this long.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs them all.
pub(super) fn run_every_kernel(shared: &Arc<Shared>) -> Result<(), DeviceError> {
    let stream = CudaStream::start(shared)?;
    let pad = memory::alloc(shared, size_of::<SignalPad>() as u64)?;
    let table = memory::alloc(shared, size_of::<u64>() as u64)?;
    shared.setup().write(shared, &pad.addr().to_le_bytes(), &table)?;
    let state = memory::alloc(shared, size_of::<GroupState>() as u64)?;
    let status = pinned::alloc(shared, size_of::<FaultRecord>() as u64)?;
    let keep: Keep = Arc::new((pad, table.clone(), state.clone(), status.clone()));
    for kernel in kernels(table.addr(), state.addr(), status.addr()) {
        // SAFETY: the barrier's and the poison kernel's addresses live in `keep`, in a group of one rank; the other
        // kernels have nothing to do, and read no address.
        unsafe { stream.launch(kernel, &keep) }?;
        // One at a time, so that one which never ends is named.
        stream.synchronize(Deadline::after(TIMEOUT))?;
    }
    let mut epoch = [0; size_of::<GroupState>()];
    shared.setup().read(shared, &state, &mut epoch)?;
    if u64::from_le_bytes(epoch) != 1 {
        let reason = format!("{}: the barrier of one rank was not passed", shared.info());
        return Err(DeviceError::NoGpu { reason });
    }
    Ok(())
}

/// All kernels; those that could touch memory have none to touch.
fn kernels(pads: u64, state: u64, status: u64) -> [Kernel; 10] {
    let one = HalfSelect::default();
    let layout = RowLayout { page_bytes: 0, offset: 0 };
    let gather = GatherParams {
        dst: 0,
        descriptors: 0,
        bases: 0,
        pool_offset: 0,
        src_half: one,
        dst_half: one,
        page_bytes: 16,
        poison: 0,
        num_slots: 0,
        first_halved: 0,
    };
    [
        Kernel::Gather(gather),
        Kernel::GatherBulk(gather),
        Kernel::FillRows(FillRowsParams {
            src: 0,
            src_rows: 0,
            dst: 0,
            dst_rows: 0,
            src_layout: layout,
            dst_layout: layout,
            dst_half: one,
            poison: 0,
            row_bytes: 16,
            num_rows: 0,
            page_size: 1,
        }),
        Kernel::FillPages(FillPagesParams {
            src: 0,
            src_pages: 0,
            pages: 0,
            inverse: 0,
            dst: 0,
            src_half: one,
            dst_half: one,
            page_bytes: 16,
            poison: 0,
            first_page: 0,
            inverse_len: 0,
            num_pages: 0,
            reserved: 0,
        }),
        Kernel::FillIndexK(FillIndexKParams {
            keys: 0,
            dst: 0,
            dst_rows: 0,
            dst_half: one,
            poison: 0,
            num_rows: 0,
            page_size: 1,
        }),
        Kernel::Zero(ZeroParams { dst: 0, ranges: 0, dst_half: one, poison: 0, num_ranges: 0, reserved: 0 }),
        Kernel::Probe(ProbeParams { words: 0, num_ranks: 0, num_adds: 0 }),
        Kernel::AddBytes(AddBytesParams { dst: 0, src: 0, bytes: 0, poison: 0 }),
        Kernel::Poison(PoisonParams { pads, status, record: 0, rank: 0, num_ranks: 1 }),
        Kernel::Barrier(BarrierParams {
            pads,
            state,
            status,
            timing: 0,
            timeout_ns: 1_000_000_000,
            rank: 0,
            num_ranks: 1,
            num_spins: 0,
            tag: 0,
        }),
    ]
}
