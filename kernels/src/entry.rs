//! The entry points: `cpkv_` and the name of the kernel. Each takes its parameter struct by value.

use core::panic::PanicInfo;

use crate::abi::{
    AddBytesParams, BarrierParams, FillIndexKParams, FillPagesParams, FillRowsParams, GatherParams,
    PoisonParams, ProbeParams, ZeroParams,
};
use crate::{
    add_bytes, arch, barrier, fill_index_k, fill_pages, fill_rows, gather, gather_bulk, poison, probe, zero,
};

/// The symmetric counting barrier. One warp; a peer a lane, or two.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn cpkv_barrier(params: BarrierParams) {
    // SAFETY: the launch's promise, as `Kernel::run` has it; so in every entry.
    unsafe { barrier::barrier(&params) }
}

/// The slot-dense gather. A page a block at a time.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn cpkv_gather(params: GatherParams) {
    // SAFETY: as above.
    unsafe { gather::gather(&params) }
}

/// The gather by the bulk copy engine. Wants [`gather_bulk::GATHER_BULK_LANES`] lanes a block and
/// [`gather_bulk::GATHER_BULK_SHARED_BYTES`] of dynamic shared memory.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn cpkv_gather_bulk(params: GatherParams) {
    // SAFETY: as above.
    unsafe { gather_bulk::gather_bulk(&params) }
}

/// The row scatter. A row a warp at a time.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn cpkv_fill_rows(params: FillRowsParams) {
    // SAFETY: as above.
    unsafe { fill_rows::fill_rows(&params) }
}

/// The page scatter. A page a block at a time.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn cpkv_fill_pages(params: FillPagesParams) {
    // SAFETY: as above.
    unsafe { fill_pages::fill_pages(&params) }
}

/// The index-K quantising fill. A row a warp at a time.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn cpkv_fill_index_k(params: FillIndexKParams) {
    // SAFETY: as above.
    unsafe { fill_index_k::fill_index_k(&params) }
}

/// Zeroing of ranges. A range a block at a time.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn cpkv_zero(params: ZeroParams) {
    // SAFETY: as above.
    unsafe { zero::zero(&params) }
}

/// Poison from outside a barrier. One lane.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn cpkv_poison(params: PoisonParams) {
    // SAFETY: as above.
    unsafe { poison::poison(&params) }
}

/// The byte-wise sum. Eight bytes a lane at a time.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn cpkv_add_bytes(params: AddBytesParams) {
    // SAFETY: as above.
    unsafe { add_bytes::add_bytes(&params) }
}

/// The adds of the capability probe. A rank's word a lane.
#[unsafe(no_mangle)]
unsafe extern "ptx-kernel" fn cpkv_probe(params: ProbeParams) {
    // SAFETY: as above.
    unsafe { probe::probe(&params) }
}

/// A body that panics is wrong: the grid ends with an error instead of going on.
#[panic_handler]
fn panic(_info: &PanicInfo<'_>) -> ! {
    arch::trap()
}
