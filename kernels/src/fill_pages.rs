//! The page scatter: whole pages go where a page inverse says (publish, persist, unpacking).

use core::ptr;

use crate::abi::{FillPagesParams, PAGE_NONE};
use crate::arch::Reuse;
use crate::{arch, signal};

/// Runs the scatter. One page a block at a time.
///
/// # Safety
/// The addresses in `params` are valid as documented there; no peer reads the destination while it runs.
pub(crate) unsafe fn fill_pages(params: &FillPagesParams) {
    // SAFETY: 0 or a poison word.
    if unsafe { signal::is_poisoned(params.poison) } {
        return;
    }
    // SAFETY: 0 or this rank's state.
    let src_base = params.src + unsafe { params.src_half.offset() };
    // SAFETY: 0 or this rank's state.
    let dst_base = params.dst + unsafe { params.dst_half.offset() };
    // What is double-buffered is what peers read next.
    let reuse = if params.dst_half.state == 0 { Reuse::Later } else { Reuse::Soon };
    let mut i = arch::block();
    while i < params.num_pages {
        // SAFETY: `i` is below the table's length.
        let page = unsafe { entry(params.pages, i) };
        let at = page.wrapping_sub(params.first_page) as u32;
        let dst_page = if at < params.inverse_len {
            // SAFETY: `at` is below the table's length.
            unsafe { entry(params.inverse, at) }
        } else {
            PAGE_NONE
        };
        if dst_page != PAGE_NONE {
            // SAFETY: `i` is below the table's length.
            let src_page = unsafe { entry(params.src_pages, i) };
            let src = src_base + src_page as u64 * params.page_bytes;
            let dst = dst_base + dst_page as u64 * params.page_bytes;
            let (src, dst) = (
                ptr::with_exposed_provenance::<u8>(src as usize),
                ptr::with_exposed_provenance_mut::<u8>(dst as usize),
            );
            // SAFETY: the page is readable in the source, writable in the destination, which is other memory.
            unsafe { arch::copy_page(dst, src, params.page_bytes as usize, reuse) };
        }
        i += arch::num_blocks();
    }
    arch::copies_done();
}

/// Entry `i` of a table of pages.
unsafe fn entry(table: u64, i: u32) -> i32 {
    // SAFETY: `i` is below the table's length.
    let entry = unsafe { ptr::with_exposed_provenance::<i32>(table as usize).add(i as usize) };
    // SAFETY: inside the table.
    unsafe { entry.read() }
}
