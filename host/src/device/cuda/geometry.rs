//! How a kernel is launched: entry point, blocks, threads, shared memory. Pure.

use std::ffi::c_void;
use std::ptr;

use cpkv_kernels::{GATHER_BULK_LANES, GATHER_BULK_SHARED_BYTES, Kernel};

/// What the entry point of a kernel is called before its name.
const PREFIX: &str = "cpkv_";

/// The entry points of the PTX.
pub(super) const ENTRY_POINTS: [&str; 10] = [
    "cpkv_barrier",
    "cpkv_gather",
    "cpkv_gather_bulk",
    "cpkv_fill_rows",
    "cpkv_fill_pages",
    "cpkv_fill_index_k",
    "cpkv_zero",
    "cpkv_probe",
    "cpkv_poison",
    "cpkv_add_bytes",
];

/// Threads of a block that copies.
const COPY_THREADS: u32 = 256;
/// Threads of a warp: a team of the row fills.
const WARP_THREADS: u32 = 32;
/// Blocks that copy, a multiprocessor: what fits on it with these threads.
const COPY_BLOCKS: u32 = 8;

/// How gathers run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum GatherVariant {
    /// By the threads, 16 bytes each at a time.
    #[default]
    Vector = 0,
    /// By the bulk copy engine, through shared memory.
    Bulk = 1,
}

impl GatherVariant {
    pub(super) const fn from_u8(value: u8) -> Self {
        if value == Self::Bulk as u8 { Self::Bulk } else { Self::Vector }
    }
}

/// A launch, but for its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    /// Position in [`ENTRY_POINTS`].
    pub(super) entry: usize,
    pub(super) num_blocks: u32,
    pub(super) num_threads: u32,
    /// Dynamic shared memory in bytes.
    pub(super) shared_bytes: u32,
    /// Where the parameter struct is: in the kernel it was made from.
    pub(super) params: *mut c_void,
}

impl Launch {
    /// The launch of `kernel` on a GPU of `num_multiprocessors`. `kernel` outlives it.
    pub(super) fn of(kernel: &Kernel, num_multiprocessors: u32, variant: GatherVariant) -> Self {
        let most = num_multiprocessors * COPY_BLOCKS;
        // A grid that stays: blocks take the next page when they are done with one.
        let copies = |num_items: u32| (num_items.clamp(1, most), COPY_THREADS, 0);
        let rows = |num_rows: u32| copies(num_rows.div_ceil(COPY_THREADS / WARP_THREADS));
        let bulk = |num_slots: u32| {
            (num_slots.clamp(1, 2 * num_multiprocessors), GATHER_BULK_LANES, GATHER_BULK_SHARED_BYTES)
        };
        // One warp, whose lanes share the ranks: they vote together.
        let one_warp = (1, WARP_THREADS, 0);
        let mut name = kernel.name();
        let ((num_blocks, num_threads, shared_bytes), params) = match kernel {
            Kernel::Barrier(params) => (one_warp, address(params)),
            Kernel::Gather(params) if variant == GatherVariant::Vector => {
                (copies(params.num_slots), address(params))
            }
            Kernel::Gather(params) | Kernel::GatherBulk(params) => {
                name = "gather_bulk";
                (bulk(params.num_slots), address(params))
            }
            Kernel::FillRows(params) => (rows(params.num_rows), address(params)),
            Kernel::FillPages(params) => (copies(params.num_pages), address(params)),
            Kernel::FillIndexK(params) => (rows(params.num_rows), address(params)),
            Kernel::Zero(params) => (copies(params.num_ranges), address(params)),
            Kernel::Probe(params) => (one_warp, address(params)),
            Kernel::Poison(params) => (one_warp, address(params)),
            Kernel::AddBytes(params) => {
                let blocks_full = params.bytes / u64::from(8 * COPY_THREADS);
                (copies(u32::try_from(blocks_full).unwrap_or(u32::MAX)), address(params))
            }
        };
        // Every kernel has its entry point: `tests/sass.rs` holds that.
        let entry =
            ENTRY_POINTS.iter().position(|entry| entry.strip_prefix(PREFIX) == Some(name)).unwrap_or(0);
        Self { entry, num_blocks, num_threads, shared_bytes, params }
    }
}

fn address<T>(params: &T) -> *mut c_void {
    ptr::from_ref(params).cast_mut().cast()
}

#[cfg(test)]
mod tests {
    use cpkv_kernels::abi::{BarrierParams, GatherParams, HalfSelect, ZeroParams};

    use super::*;

    fn barrier(num_ranks: u32) -> Kernel {
        Kernel::Barrier(BarrierParams {
            pads: 0,
            state: 0,
            status: 0,
            timing: 0,
            timeout_ns: 0,
            rank: 0,
            num_ranks,
            num_spins: 0,
            tag: 0,
        })
    }

    fn gather(num_slots: u32) -> GatherParams {
        GatherParams {
            dst: 0,
            descriptors: 0,
            bases: 0,
            pool_offset: 0,
            src_half: HalfSelect::default(),
            dst_half: HalfSelect::default(),
            page_bytes: 0,
            poison: 0,
            num_slots,
            first_halved: 0,
        }
    }

    #[test]
    fn a_barrier_is_one_warp_however_many_ranks_there_are() {
        for num_ranks in [1, 8, 33, 64] {
            let launch = Launch::of(&barrier(num_ranks), 132, GatherVariant::Vector);
            assert_eq!((launch.num_blocks, launch.num_threads), (1, WARP_THREADS));
        }
    }

    #[test]
    fn grids_are_never_empty_and_never_larger_than_the_gpu() {
        for num_slots in [0, 1, 500, 1_000_000] {
            for variant in [GatherVariant::Vector, GatherVariant::Bulk] {
                let launch = Launch::of(&Kernel::Gather(gather(num_slots)), 132, variant);
                assert!((1..=132 * COPY_BLOCKS).contains(&launch.num_blocks));
                assert!(launch.num_blocks <= num_slots.max(1));
            }
        }
    }

    #[test]
    fn every_kernel_has_the_entry_point_of_its_name() {
        let zero = ZeroParams {
            dst: 0,
            ranges: 0,
            dst_half: HalfSelect::default(),
            poison: 0,
            num_ranges: 0,
            reserved: 0,
        };
        let kernels =
            [barrier(1), Kernel::Gather(gather(1)), Kernel::GatherBulk(gather(1)), Kernel::Zero(zero)];
        for kernel in kernels {
            let launch = Launch::of(&kernel, 1, GatherVariant::Vector);
            assert_eq!(ENTRY_POINTS[launch.entry], format!("cpkv_{}", kernel.name()));
        }
    }
}
