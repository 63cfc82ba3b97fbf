//! Kernels that scatter rows: as they are, and quantised.

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{FillIndexKParams, FillRowsParams, ROW_SKIP, RowLayout};

use super::{Case, MODES, Memory, Mode, Numbers};

/// Keys of a row.
const DIM: usize = 128;

pub(super) fn add(cases: &mut Vec<Case>) {
    for mode in MODES {
        for (row_bytes, page_size) in [(16, 4), (20, 8), (33, 4), (1152, 4), (4112, 4)] {
            for is_named in [false, true] {
                cases.push(fill_rows(row_bytes, page_size, 43, mode, is_named));
            }
        }
        cases.push(fill_index_k(4, 83, mode));
    }
}

/// Places in another order; every fifth row but the last has none.
fn places(numbers: &mut Numbers, num_rows: usize) -> Vec<i64> {
    let order = numbers.order(num_rows).into_iter().enumerate();
    order.map(|(at, row)| if at % 5 == 2 && at + 1 < num_rows { ROW_SKIP } else { row }).collect()
}

/// Rows between other bytes of their pages; sources in order, or named.
fn fill_rows(row_bytes: usize, page_size: usize, num_rows: usize, mode: Mode, is_named: bool) -> Case {
    let mut numbers = Numbers(row_bytes as u64);
    let mut memory = Memory::default();
    let num_pages = num_rows.div_ceil(page_size);
    let src = memory.bytes(numbers.bytes(num_pages * page_size * row_bytes));
    let src_rows = memory.i64s(&numbers.order(num_rows));
    let dst_rows = memory.i64s(&places(&mut numbers, num_rows));
    let page_bytes = (page_size * row_bytes).next_multiple_of(16) + 48;
    let half_bytes = num_pages * page_bytes;
    let dst = memory.dirty(mode.num_halves() * half_bytes);
    let (state, poison) = (memory.state(mode), memory.poison(mode.is_poisoned));
    memory.case(format!("rows of {row_bytes} bytes, named: {is_named}, {mode:?}"), move |addrs| {
        Kernel::FillRows(FillRowsParams {
            src: addrs[src],
            src_rows: if is_named { addrs[src_rows] } else { 0 },
            dst: addrs[dst],
            dst_rows: addrs[dst_rows],
            src_layout: RowLayout { page_bytes: (page_size * row_bytes) as u64, offset: 0 },
            dst_layout: RowLayout { page_bytes: page_bytes as u64, offset: 32 },
            dst_half: mode.half(addrs[state], half_bytes, 0),
            poison: addrs[poison],
            row_bytes: row_bytes as u64,
            num_rows: num_rows as u32,
            page_size: page_size as u32,
        })
    })
}

/// Keys of a row by its number: any bits; zeros; halves between two codes; one far larger than the rest; ones far
/// smaller; infinities and NaN among zeros.
fn keys(numbers: &mut Numbers, row: usize) -> Vec<u8> {
    // 448 is the largest code: the scale is a power of two, and every odd eighth bit is a tie.
    const LARGEST: u16 = 0x43E0;
    let largest_at = numbers.next() as usize % DIM;
    let key = |(at, bits): (usize, u16)| match row % 6 {
        0 => bits,
        1 => 0,
        2 if at == largest_at => LARGEST,
        2 => bits & 0x80FF | 0x3F00,
        3 if at == largest_at => LARGEST,
        3 => bits & 0x807F | 0x3A80,
        4 => bits & 0x807F,
        _ => {
            if bits & 3 == 0 {
                bits | 0x7F80
            } else {
                bits & 0x8000
            }
        }
    };
    let bits: Vec<u16> = (0..DIM).map(|_| numbers.next() as u16).collect();
    bits.into_iter().enumerate().flat_map(|key_bits| key(key_bits).to_le_bytes()).collect()
}

fn fill_index_k(page_size: usize, num_rows: usize, mode: Mode) -> Case {
    let mut numbers = Numbers(num_rows as u64);
    let mut memory = Memory::default();
    let rows: Vec<u8> = (0..num_rows).flat_map(|row| keys(&mut numbers, row)).collect();
    let src = memory.bytes(rows);
    let dst_rows = memory.i64s(&places(&mut numbers, num_rows));
    let half_bytes = num_rows.div_ceil(page_size) * page_size * (DIM + 4);
    let dst = memory.dirty(mode.num_halves() * half_bytes);
    let (state, poison) = (memory.state(mode), memory.poison(mode.is_poisoned));
    memory.case(format!("{num_rows} rows, {mode:?}"), move |addrs| {
        Kernel::FillIndexK(FillIndexKParams {
            keys: addrs[src],
            dst: addrs[dst],
            dst_rows: addrs[dst_rows],
            dst_half: mode.half(addrs[state], half_bytes, 0),
            poison: addrs[poison],
            num_rows: num_rows as u32,
            page_size: page_size as u32,
        })
    })
}
