//! The index-K fill: bf16 keys become fp8 keys and a scale, in the page layout peers read.

use core::ptr;

use crate::abi::{FillIndexKParams, ROW_SKIP};
use crate::fill_rows::row_at;
use crate::{arch, fp8, signal};

/// Keys of a row.
const DIM: usize = 128;
/// Keys a lane converts.
const CHUNK: usize = DIM / arch::TEAM_LANES;

/// Runs the fill. One row a team at a time.
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
    let page_bytes = page_size * (DIM + size_of::<f32>()) as u64;
    let mut i = arch::team();
    while i < params.num_rows {
        // SAFETY: `i` is below the table's length.
        let dst_row = unsafe { row_at(params.dst_rows, i) };
        if dst_row != ROW_SKIP {
            let keys = params.keys + u64::from(i) * (DIM * size_of::<u16>()) as u64;
            // SAFETY: row `i` of the source, which nothing writes.
            let keys =
                unsafe { &*ptr::with_exposed_provenance::<[[u16; CHUNK]; arch::TEAM_LANES]>(keys as usize) };
            let (page, row) = (dst_row as u64 / page_size, dst_row as u64 % page_size);
            let page = dst_base + page * page_bytes;
            let codes_addr = page + row * DIM as u64;
            let scale_addr = page + page_size * DIM as u64 + row * size_of::<f32>() as u64;
            // SAFETY: the row's keys and scale in the destination.
            unsafe { quantise_row(keys, codes_addr, scale_addr) };
        }
        i += arch::num_teams();
    }
}

/// Quantises a row, every lane of the team its chunk.
///
/// # Safety
/// 128 bytes at `codes_addr` and 4 at `scale_addr` are writable; both are multiples of 4.
#[inline(always)]
unsafe fn quantise_row(keys: &[[u16; CHUNK]; arch::TEAM_LANES], codes_addr: u64, scale_addr: u64) {
    let lane = arch::team_lane();
    let keys = keys[lane];
    let mut largest = 0;
    for &key in &keys {
        largest = fp8::finite_magnitude(key).max(largest);
    }
    let scale = fp8::scale_of(arch::team_max(largest));
    let codes = keys.map(|key| fp8::quantise(key, scale));
    let dst = codes_addr as usize + lane * CHUNK;
    // SAFETY: this lane's codes.
    unsafe { arch::store_codes(ptr::with_exposed_provenance_mut(dst), codes) };
    if lane == 0 {
        // SAFETY: the row's scale, aligned to 4.
        unsafe { ptr::with_exposed_provenance_mut::<f32>(scale_addr as usize).write(scale) };
    }
}
