//! Poison from outside a barrier: a host that gives up, a verdict that work before it left, or only a look.

use crate::abi::PoisonParams;
use crate::arch;
use crate::signal::{self, FAULT_RECORDED};

/// Raises the record, if there is one, on all ranks; then shows the host what stands in the own pad. One lane.
///
/// # Safety
/// The addresses in `params` are valid as documented there; nobody writes `record` while the kernel runs.
pub(crate) unsafe fn poison(params: &PoisonParams) {
    if arch::lane() != 0 || arch::block() != 0 {
        return;
    }
    if params.record != 0 {
        // By the word first, with acquire: the host, or work before, may have written the rest.
        // SAFETY: a record, as required.
        if let Some(record) = unsafe { signal::read_fault(params.record) }
            && record.word == FAULT_RECORDED
        {
            // SAFETY: the pads are valid.
            unsafe { signal::raise_on_all(params.pads, params.rank, params.num_ranks, record) };
        }
    }
    // SAFETY: the table has an entry for every rank.
    let pad = unsafe { signal::pad_addr(params.pads, params.rank) };
    // SAFETY: the own record, and the host's.
    unsafe { signal::report(signal::poison_addr(pad), params.status) };
}
