//! Kernels that move or change whole ranges: both gathers, the page scatter, zeroing, the byte-wise sum.

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{
    AddBytesParams, BASE_KEEP, BASE_ZERO, Descriptor, FillPagesParams, GatherParams, PAGE_NONE, ZeroParams,
};

use super::{Builder, MODES, Mode};
use crate::context::Context;
use crate::kernels::Case;
use crate::pattern::Pattern;

pub(super) fn add(cases: &mut Vec<Case>, context: &Context) {
    let all = [16, 48, 528, 4080, 4096, 4112, 8448, 16_400, 41_984, 73_728];
    let pages = if context.quick { &all[..7] } else { &all[..] };
    for &page_bytes in pages {
        // Some megabytes, and more slots than blocks where pages are small.
        let num_slots = (context.pick(4 << 20, 1 << 16) / page_bytes).clamp(9, context.pick(3000, 9));
        for mode in MODES {
            for is_bulk in [false, true] {
                cases.push(gather(page_bytes, num_slots, mode, is_bulk));
            }
            cases.push(fill_pages(page_bytes, mode));
        }
    }
    for mode in MODES {
        cases.push(zero(mode));
    }
    for bytes in [0, 1, 7, 8, 16, 17, 1000, 4099, context.pick(1_000_003, 20_011)] {
        for is_poisoned in [false, true] {
            cases.push(add_bytes(bytes, is_poisoned));
        }
    }
}

/// Slots from two pools and two stagings in two halves, zeros and what stays.
fn gather(page_bytes: usize, num_slots: usize, mode: Mode, is_bulk: bool) -> Case {
    const PAGES: u64 = 5;
    let mut pattern = Pattern::new(page_bytes as u64 + u64::from(is_bulk));
    let mut memory = Builder::default();
    let half_bytes = PAGES as usize * page_bytes;
    // Two layers a pool: the second is read. Stagings have as many halves as the mode.
    let sources: Vec<usize> = [2, 2, mode.num_halves(), mode.num_halves()]
        .map(|parts| memory.bytes(pattern.bytes(parts * half_bytes)))
        .to_vec();
    let slots: Vec<Descriptor> = (0..num_slots)
        .map(|slot| match (slot, pattern.below(6)) {
            (0, _) | (_, 4) => Descriptor { base: BASE_ZERO, page: 0 },
            (_, 5) => Descriptor { base: BASE_KEEP, page: 0 },
            (_, base) => Descriptor { base: base as i32, page: pattern.below(PAGES) as i32 },
        })
        .collect();
    let descriptors = memory.descriptors(&slots);
    let bases = memory.addresses(&sources.iter().map(|&source| (source, 0)).collect::<Vec<_>>());
    let dst_bytes = num_slots * page_bytes;
    let dst = memory.poison(mode.num_halves() * dst_bytes);
    let (state, poison) = (memory.state(mode.epoch.unwrap_or(0)), memory.record(mode.is_poisoned));
    let name = format!("pages of {page_bytes} bytes, {num_slots} slots, {}", mode.name());
    memory.build(name, move |addrs| {
        let params = GatherParams {
            dst: addrs[dst],
            descriptors: addrs[descriptors],
            bases: addrs[bases],
            pool_offset: half_bytes as u64,
            src_half: mode.half(addrs[state], half_bytes, 1),
            dst_half: mode.half(addrs[state], dst_bytes, 1),
            page_bytes: page_bytes as u64,
            poison: addrs[poison],
            num_slots: num_slots as u32,
            first_halved: 2,
        };
        if is_bulk { Kernel::GatherBulk(params) } else { Kernel::Gather(params) }
    })
}

/// Pages in and outside the inverse, and some without a place.
fn fill_pages(page_bytes: usize, mode: Mode) -> Case {
    const PAGES: usize = 7;
    let mut pattern = Pattern::new(page_bytes as u64);
    let mut memory = Builder::default();
    let bytes = PAGES * page_bytes;
    let src = memory.bytes(pattern.bytes(mode.num_halves() * bytes));
    let src_pages = memory.i32s(&pattern.permutation(PAGES));
    let pages = memory.i32s(&[12, 9, 10, 11, 3, 14, 13]);
    let inverse = memory.i32s(&[2, PAGE_NONE, 0, 4, 6]);
    let dst = memory.poison(mode.num_halves() * bytes);
    let (state, poison) = (memory.state(mode.epoch.unwrap_or(0)), memory.record(mode.is_poisoned));
    memory.build(format!("pages of {page_bytes} bytes, {}", mode.name()), move |addrs| {
        Kernel::FillPages(FillPagesParams {
            src: addrs[src],
            src_pages: addrs[src_pages],
            pages: addrs[pages],
            inverse: addrs[inverse],
            dst: addrs[dst],
            src_half: mode.half(addrs[state], bytes, 1),
            dst_half: mode.half(addrs[state], bytes, 0),
            page_bytes: page_bytes as u64,
            poison: addrs[poison],
            first_page: 10,
            inverse_len: 5,
            num_pages: PAGES as u32,
            reserved: 0,
        })
    })
}

/// Ranges of any alignment, apart from each other.
fn zero(mode: Mode) -> Case {
    const BYTES: usize = 6 * 8192;
    let ranges = [(0, 1), (17, 5), (48, 4096), (5001, 8200), (16_384, 8192), (24_583, 0), (24_592, 15_001)];
    let mut memory = Builder::default();
    let entries: Vec<i64> = ranges.iter().flat_map(|&(offset, bytes)| [offset, bytes]).collect();
    let ranges = memory.i64s(&entries);
    let dst = memory.poison(mode.num_halves() * BYTES);
    let (state, poison) = (memory.state(mode.epoch.unwrap_or(0)), memory.record(mode.is_poisoned));
    memory.build(mode.name(), move |addrs| {
        Kernel::Zero(ZeroParams {
            dst: addrs[dst],
            ranges: addrs[ranges],
            dst_half: mode.half(addrs[state], BYTES, 0),
            poison: addrs[poison],
            num_ranges: (entries.len() / 2) as u32,
            reserved: 0,
        })
    })
}

fn add_bytes(bytes: usize, is_poisoned: bool) -> Case {
    let mut pattern = Pattern::new(bytes as u64);
    let mut memory = Builder::default();
    let dst = memory.bytes(pattern.bytes(bytes));
    let src = memory.bytes(pattern.bytes(bytes));
    let poison = memory.record(is_poisoned);
    let poisoned = if is_poisoned { ", poisoned" } else { "" };
    memory.build(format!("{bytes} bytes{poisoned}"), move |addrs| {
        let (dst, src, poison) = (addrs[dst], addrs[src], addrs[poison]);
        Kernel::AddBytes(AddBytesParams { dst, src, bytes: bytes as u64, poison })
    })
}
