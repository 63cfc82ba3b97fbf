//! The slot-dense gather: every destination page is written exactly once, padding with zeros.

use core::ptr;

use crate::abi::{BASE_KEEP, BASE_ZERO, Descriptor, GatherParams};
use crate::arch::Reuse;
use crate::{arch, signal};

/// Runs the gather. One page a block at a time.
///
/// # Safety
/// The addresses in `params` are valid as documented there. No source page is written while the gather runs:
/// the epoch's barrier came before.
pub(crate) unsafe fn gather(params: &GatherParams) {
    // SAFETY: 0 or a poison word.
    if unsafe { signal::is_poisoned(params.poison) } {
        return;
    }
    // SAFETY: 0 or this rank's state.
    let src_half = unsafe { params.src_half.offset() };
    // SAFETY: 0 or this rank's state.
    let dst = params.dst + unsafe { params.dst_half.offset() };
    let mut slot = arch::block();
    while slot < params.num_slots {
        let slot_addr = dst + u64::from(slot) * params.page_bytes;
        let dst = ptr::with_exposed_provenance_mut::<u8>(slot_addr as usize);
        // SAFETY: `slot` is below the number of slots.
        match unsafe { slot_bytes(params, slot, src_half) } {
            SlotBytes::Keep => {}
            // SAFETY: the slot is writable.
            SlotBytes::Zero => unsafe { arch::zero(dst, params.page_bytes as usize) },
            SlotBytes::Page(src) => {
                let src = ptr::with_exposed_provenance::<u8>(src as usize);
                // SAFETY: the page is readable behind its base, the slot writable and aligned to 16; pools,
                // stagings and dense buffers are different memory.
                unsafe { arch::copy_page(dst, src, params.page_bytes as usize, Reuse::Later) };
            }
        }
        slot += arch::num_blocks();
    }
    arch::copies_done();
}

/// What a slot becomes.
pub(crate) enum SlotBytes {
    /// What it is.
    Keep,
    /// Zeros.
    Zero,
    /// The page at this address.
    Page(u64),
}

/// What slot `slot` becomes, by its descriptor.
///
/// # Safety
/// The addresses in `params` are valid as documented there; `slot` is below the number of slots.
#[inline(always)]
pub(crate) unsafe fn slot_bytes(params: &GatherParams, slot: u32, src_half: u64) -> SlotBytes {
    let descriptors = ptr::with_exposed_provenance::<Descriptor>(params.descriptors as usize);
    // SAFETY: `slot` is below the number of descriptors.
    let descriptor = unsafe { descriptors.add(slot as usize) };
    // SAFETY: inside the table.
    let descriptor = unsafe { descriptor.read() };
    match descriptor.base {
        BASE_KEEP => SlotBytes::Keep,
        BASE_ZERO => SlotBytes::Zero,
        base => {
            // SAFETY: `base` is an index into the table.
            let src = unsafe { source(params, base as u32, src_half) };
            SlotBytes::Page(src + descriptor.page as u64 * params.page_bytes)
        }
    }
}

/// Address behind base `base`, its layer or half included.
unsafe fn source(params: &GatherParams, base: u32, src_half: u64) -> u64 {
    let table = ptr::with_exposed_provenance::<u64>(params.bases as usize);
    // SAFETY: `base` is below the table's length.
    let entry = unsafe { table.add(base as usize) };
    // SAFETY: inside the table.
    let addr = unsafe { entry.read() };
    addr + if base < params.first_halved { params.pool_offset } else { src_half }
}
