//! A kernel with its parameters, as a value.

use crate::abi::{
    AddBytesParams, BarrierParams, FillIndexKParams, FillPagesParams, FillRowsParams, GatherParams,
    PoisonParams, ProbeParams, ZeroParams,
};
use crate::{add_bytes, barrier, fill_index_k, fill_pages, fill_rows, gather, poison, probe, zero};

/// What a stream runs.
#[derive(Clone, Copy, Debug)]
pub enum Kernel {
    /// The symmetric counting barrier.
    Barrier(BarrierParams),
    /// The slot-dense gather.
    Gather(GatherParams),
    /// The slot-dense gather by a GPU's bulk copy engine; the same bytes.
    GatherBulk(GatherParams),
    /// The row scatter.
    FillRows(FillRowsParams),
    /// The page scatter.
    FillPages(FillPagesParams),
    /// The index-K quantising fill.
    FillIndexK(FillIndexKParams),
    /// Zeroing of ranges.
    Zero(ZeroParams),
    /// The adds of the capability probe.
    Probe(ProbeParams),
    /// Poison from outside a barrier.
    Poison(PoisonParams),
    /// The byte-wise sum.
    AddBytes(AddBytesParams),
}

impl Kernel {
    /// Its name, as the entry point and reports have it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Barrier(_) => "barrier",
            Self::Gather(_) => "gather",
            Self::GatherBulk(_) => "gather_bulk",
            Self::FillRows(_) => "fill_rows",
            Self::FillPages(_) => "fill_pages",
            Self::FillIndexK(_) => "fill_index_k",
            Self::Zero(_) => "zero",
            Self::Probe(_) => "probe",
            Self::Poison(_) => "poison",
            Self::AddBytes(_) => "add_bytes",
        }
    }

    /// Runs the body on this processor.
    ///
    /// # Safety
    /// The addresses in the parameters are valid as their struct documents, and the accesses ordered against
    /// those of other ranks by the barrier.
    pub unsafe fn run(&self) {
        match self {
            // SAFETY: the caller's promise, for this kernel's parameters; so in every arm.
            Self::Barrier(params) => unsafe { barrier::barrier(params) },
            // SAFETY: as above.
            Self::Gather(params) | Self::GatherBulk(params) => unsafe { gather::gather(params) },
            // SAFETY: as above.
            Self::FillRows(params) => unsafe { fill_rows::fill_rows(params) },
            // SAFETY: as above.
            Self::FillPages(params) => unsafe { fill_pages::fill_pages(params) },
            // SAFETY: as above.
            Self::FillIndexK(params) => unsafe { fill_index_k::fill_index_k(params) },
            // SAFETY: as above.
            Self::Zero(params) => unsafe { zero::zero(params) },
            // SAFETY: as above.
            Self::Probe(params) => unsafe { probe::probe(params) },
            // SAFETY: as above.
            Self::Poison(params) => unsafe { poison::poison(params) },
            // SAFETY: as above.
            Self::AddBytes(params) => unsafe { add_bytes::add_bytes(params) },
        }
    }
}
