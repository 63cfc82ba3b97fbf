//! The row scatter (`index_copy`): rows go straight to where peers read them.

use core::ptr;

use crate::abi::{FillRowsParams, ROW_SKIP, RowLayout};
use crate::{arch, signal};

/// Runs the scatter. One row a team at a time.
///
/// # Safety
/// The addresses in `params` are valid as documented there; no peer reads the selected half while it runs.
pub(crate) unsafe fn fill_rows(params: &FillRowsParams) {
    // SAFETY: 0 or a poison word.
    if unsafe { signal::is_poisoned(params.poison) } {
        return;
    }
    // SAFETY: 0 or this rank's state.
    let dst_base = params.dst + unsafe { params.dst_half.offset() };
    let mut i = arch::team();
    while i < params.num_rows {
        // SAFETY: `i` is below the table's length.
        let dst_row = unsafe { row_at(params.dst_rows, i) };
        if dst_row != ROW_SKIP {
            let src_row = match params.src_rows {
                0 => i64::from(i),
                // SAFETY: `i` is below the table's length.
                table => unsafe { row_at(table, i) },
            };
            let src = params.src + row_offset(params, &params.src_layout, src_row);
            let dst = dst_base + row_offset(params, &params.dst_layout, dst_row);
            let (src, dst) = (
                ptr::with_exposed_provenance::<u8>(src as usize),
                ptr::with_exposed_provenance_mut::<u8>(dst as usize),
            );
            // SAFETY: the row is readable in the source, writable in the destination, which is other memory.
            unsafe { arch::copy_row(dst, src, params.row_bytes as usize) };
        }
        i += arch::num_teams();
    }
}

/// Entry `i` of a table of rows.
pub(crate) unsafe fn row_at(table: u64, i: u32) -> i64 {
    // SAFETY: `i` is below the table's length.
    let entry = unsafe { ptr::with_exposed_provenance::<i64>(table as usize).add(i as usize) };
    // SAFETY: inside the table.
    unsafe { entry.read() }
}

/// Where row `row` starts, in bytes.
const fn row_offset(params: &FillRowsParams, layout: &RowLayout, row: i64) -> u64 {
    let (row, page_size) = (row as u64, params.page_size as u64);
    row / page_size * layout.page_bytes + layout.offset + row % page_size * params.row_bytes
}
