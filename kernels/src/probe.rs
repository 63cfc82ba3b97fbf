//! The adds of the capability probe: links without native atomics lose counts.

use core::ptr;

use crate::abi::ProbeParams;
use crate::arch;

/// Adds to every rank's word, all ranks at the same time. One rank's word a lane.
///
/// # Safety
/// The addresses in `params` are valid as documented there; the words are only accessed atomically.
pub(crate) unsafe fn probe(params: &ProbeParams) {
    let table = ptr::with_exposed_provenance::<u64>(params.words as usize);
    let mut rank = arch::block() * arch::num_lanes() + arch::lane();
    while rank < params.num_ranks {
        // SAFETY: `rank` is below the table's length.
        let entry = unsafe { table.add(rank as usize) };
        // SAFETY: inside the table.
        let word = unsafe { entry.read() };
        for _ in 0..params.num_adds {
            // SAFETY: a probe word.
            unsafe { arch::add_release_sys(ptr::with_exposed_provenance_mut(word as usize), 1) };
        }
        rank += arch::num_blocks() * arch::num_lanes();
    }
}
