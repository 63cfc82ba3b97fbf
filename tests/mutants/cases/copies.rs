//! Kernels that move or change ranges: both gathers, the page scatter, zeroing, the byte-wise sum.

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{
    AddBytesParams, BASE_KEEP, BASE_ZERO, FillPagesParams, GatherParams, PAGE_NONE, ZeroParams,
};

use super::{Case, MODES, Memory, Mode, Numbers};

/// Six chunks of the bulk gather, the last of them 16 bytes.
const MANY_CHUNKS: usize = 5 * 32 * 1024 + 16;

pub(super) fn add(cases: &mut Vec<Case>) {
    for is_bulk in [false, true] {
        // Whole rounds of a block and a rest; pages that are no multiple of 16.
        for (page_bytes, num_slots) in [(16, 70), (20_496, 9), (36, 9), (33, 9)] {
            for mode in MODES {
                cases.push(gather(page_bytes, num_slots, mode, is_bulk));
            }
        }
        cases.push(gather(MANY_CHUNKS, 3, MODES[2], is_bulk));
    }
    for mode in MODES {
        cases.push(fill_pages(1056, 70, mode));
        cases.push(fill_pages(20_496, 9, mode));
        cases.push(zero(mode));
    }
    for bytes in [1, 8, 4096, 5003] {
        for is_poisoned in [false, true] {
            cases.push(add_bytes(bytes, is_poisoned));
        }
    }
}

/// Slots from two pools, of which the second layer is read, from two stagings, of zeros, and some that stay.
fn gather(page_bytes: usize, num_slots: usize, mode: Mode, is_bulk: bool) -> Case {
    const NUM_PAGES: u64 = 4;
    let mut numbers = Numbers(page_bytes as u64);
    let mut memory = Memory::default();
    let part = NUM_PAGES as usize * page_bytes;
    let mut sources = Vec::new();
    for parts in [2, 2, mode.num_halves(), mode.num_halves()] {
        sources.push((memory.bytes(numbers.bytes(parts * part)), 0));
    }
    let mut slots = Vec::new();
    for slot in 0..num_slots {
        // The first slots are one of each kind, and the last one is a page.
        let kind = if slot < 6 { slot as u64 } else { numbers.next() % 6 };
        let kind = if slot + 1 == num_slots { 0 } else { kind };
        let page = (numbers.next() % NUM_PAGES) as i32;
        slots.extend(match kind {
            4 => [BASE_ZERO, 0],
            5 => [BASE_KEEP, 0],
            base => [base as i32, page],
        });
    }
    let (descriptors, bases) = (memory.i32s(&slots), memory.addresses(&sources));
    let dst_bytes = num_slots * page_bytes;
    let dst = memory.dirty(mode.num_halves() * dst_bytes);
    let (state, poison) = (memory.state(mode), memory.poison(mode.is_poisoned));
    memory.case(format!("{num_slots} slots of {page_bytes} bytes, {mode:?}"), move |addrs| {
        let params = GatherParams {
            dst: addrs[dst],
            descriptors: addrs[descriptors],
            bases: addrs[bases],
            pool_offset: part as u64,
            src_half: mode.half(addrs[state], part, 1),
            dst_half: mode.half(addrs[state], dst_bytes, 1),
            page_bytes: page_bytes as u64,
            poison: addrs[poison],
            num_slots: num_slots as u32,
            first_halved: 2,
        };
        if is_bulk { Kernel::GatherBulk(params) } else { Kernel::Gather(params) }
    })
}

/// Logical pages before, at the ends of, inside and behind the inverse, some without a place.
fn fill_pages(page_bytes: usize, num_pages: usize, mode: Mode) -> Case {
    const FIRST: i32 = 100;
    let mut numbers = Numbers(page_bytes as u64);
    let mut memory = Memory::default();
    let bytes = num_pages * page_bytes;
    let src = memory.bytes(numbers.bytes(mode.num_halves() * bytes));
    let order = |numbers: &mut Numbers| numbers.order(num_pages).into_iter().map(|page| page as i32);
    let src_pages: Vec<i32> = order(&mut numbers).collect();
    // Two pages lie outside the inverse, on either side of it.
    let inverse_len = num_pages - 2;
    let pages: Vec<i32> = order(&mut numbers).map(|page| FIRST - 1 + page).collect();
    // Every seventh has no place; the first and the last entry have one.
    let places: Vec<i32> = order(&mut numbers).collect();
    let inverse = places[..inverse_len].iter().enumerate();
    let inverse: Vec<i32> = inverse.map(|(at, &to)| if at % 7 == 3 { PAGE_NONE } else { to }).collect();
    let [src_pages, pages, inverse] = [src_pages, pages, inverse].map(|entries| memory.i32s(&entries));
    let dst = memory.dirty(mode.num_halves() * bytes);
    let (state, poison) = (memory.state(mode), memory.poison(mode.is_poisoned));
    memory.case(format!("{num_pages} pages of {page_bytes} bytes, {mode:?}"), move |addrs| {
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
            first_page: FIRST,
            inverse_len: inverse_len as u32,
            num_pages: num_pages as u32,
            reserved: 0,
        })
    })
}

/// Ranges of every alignment, apart from each other.
fn zero(mode: Mode) -> Case {
    const BYTES: usize = 40_000;
    let ranges = [0, 1, 21, 4, 64, 160, 1000, 4100, 6001, 8201, 16_384, 8192, 24_583, 0, 24_592, 12_004];
    let mut memory = Memory::default();
    let table = memory.i64s(&ranges);
    let dst = memory.dirty(mode.num_halves() * BYTES);
    let (state, poison) = (memory.state(mode), memory.poison(mode.is_poisoned));
    memory.case(format!("{mode:?}"), move |addrs| {
        Kernel::Zero(ZeroParams {
            dst: addrs[dst],
            ranges: addrs[table],
            dst_half: mode.half(addrs[state], BYTES, 0),
            poison: addrs[poison],
            num_ranges: (ranges.len() / 2) as u32,
            reserved: 0,
        })
    })
}

fn add_bytes(bytes: usize, is_poisoned: bool) -> Case {
    let mut numbers = Numbers(bytes as u64);
    let mut memory = Memory::default();
    let (dst, src) = (memory.bytes(numbers.bytes(bytes)), memory.bytes(numbers.bytes(bytes)));
    let poison = memory.poison(is_poisoned);
    memory.case(format!("{bytes} bytes, poisoned: {is_poisoned}"), move |addrs| {
        let (dst, src, poison) = (addrs[dst], addrs[src], addrs[poison]);
        Kernel::AddBytes(AddBytesParams { dst, src, bytes: bytes as u64, poison })
    })
}
