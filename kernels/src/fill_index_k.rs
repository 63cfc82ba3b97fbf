//! The index-K fill: bf16 keys become fp8 keys and a scale, in the page layout peers read.

use core::ptr;

use crate::abi::{FillIndexKParams, ROW_SKIP};
use crate::fill_rows::row_at;
use crate::{arch, fp8, signal};

const DIM: u64 = 128;

/// Runs the fill. One row a lane at a time.
///
/// # Safety
/// The addresses in `params` are valid as documented there; no peer reads the selected half while it runs.
pub(crate) unsafe fn fill_index_k(params: &FillIndexKParams) {
    // SAFETY: 0 or a poison word.
    if unsafe { signal::is_poisoned(params.poison) } {
        return;
    }
    // SAFETY: 0 or this rank's state.
    let dst_base = params.dst + unsafe { params.dst_half.offset() };
    let page_size = u64::from(params.page_size);
    let page_bytes = page_size * (DIM + size_of::<f32>() as u64);
    let stride = arch::num_blocks() * arch::num_lanes();
    let mut i = arch::block() * arch::num_lanes() + arch::lane();
    while i < params.num_rows {
        // SAFETY: `i` is below the table's length.
        let dst_row = unsafe { row_at(params.dst_rows, i) };
        if dst_row != ROW_SKIP {
            let keys = params.keys + u64::from(i) * DIM * size_of::<u16>() as u64;
            // SAFETY: row `i` of the source, which nothing writes.
            let keys = unsafe { &*ptr::with_exposed_provenance::<[u16; DIM as usize]>(keys as usize) };
            let scale = fp8::row_scale(keys);
            let mut codes = [0; DIM as usize];
            fp8::quantise_row(keys, scale, &mut codes);
            let (page, row) = (dst_row as u64 / page_size, dst_row as u64 % page_size);
            let page = dst_base + page * page_bytes;
            let codes_addr = (page + row * DIM) as usize;
            let scale_addr = (page + page_size * DIM + row * size_of::<f32>() as u64) as usize;
            // SAFETY: the row's keys in the destination, any alignment.
            unsafe { ptr::with_exposed_provenance_mut::<[u8; DIM as usize]>(codes_addr).write(codes) };
            // SAFETY: the row's scale in the destination; pages and rows are multiples of 4 bytes.
            unsafe { ptr::with_exposed_provenance_mut::<f32>(scale_addr).write(scale) };
        }
        i += stride;
    }
}
