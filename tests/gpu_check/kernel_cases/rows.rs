//! Kernels that scatter rows: token-KV rows as they are, index-K keys quantised.

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{FillIndexKParams, FillRowsParams, ROW_SKIP, RowLayout};

use super::{Builder, MODES, Mode};
use crate::context::Context;
use crate::kernels::Case;
use crate::pattern::Pattern;

/// Keys of a row.
const DIM: usize = 128;

pub(super) fn add(cases: &mut Vec<Case>, context: &Context) {
    let shapes = [(1, 4), (20, 4), (36, 8), (132, 64), (656, 64), (1152, 64)];
    for &(row_bytes, page_size) in &shapes {
        for mode in MODES {
            for is_named in [false, true] {
                cases.push(fill_rows(row_bytes, page_size, context.pick(1000, 21), mode, is_named));
            }
        }
    }
    for page_size in [4, 64] {
        for mode in MODES {
            for num_rows in [1, context.pick(1003, 67)] {
                cases.push(fill_index_k(page_size, num_rows, mode));
            }
        }
    }
}

/// Every fifth row is skipped, the others go to places in another order.
fn places(pattern: &mut Pattern, num_rows: usize) -> Vec<i64> {
    let order = pattern.permutation(num_rows);
    order.iter().map(|&row| if row % 5 == 4 { ROW_SKIP } else { i64::from(row) }).collect()
}

/// Rows between other bytes of their pages; sources in order, or named.
fn fill_rows(row_bytes: usize, page_size: usize, num_rows: usize, mode: Mode, is_named: bool) -> Case {
    let mut pattern = Pattern::new(row_bytes as u64);
    let mut memory = Builder::default();
    let num_pages = num_rows.div_ceil(page_size);
    let src = memory.bytes(pattern.bytes(num_pages * page_size * row_bytes));
    let order: Vec<i64> = pattern.permutation(num_rows).into_iter().map(i64::from).collect();
    let src_rows = memory.i64s(&order);
    let dst_rows = memory.i64s(&places(&mut pattern, num_rows));
    let packed = RowLayout { page_bytes: (page_size * row_bytes) as u64, offset: 0 };
    // 16 bytes before the rows of a page, and some after them.
    let page_bytes = (page_size * row_bytes).next_multiple_of(16) + 48;
    let apart = RowLayout { page_bytes: page_bytes as u64, offset: 16 };
    let half_bytes = num_pages * page_bytes;
    let dst = memory.poison(mode.num_halves() * half_bytes);
    let (state, poison) = (memory.state(mode.epoch.unwrap_or(0)), memory.record(mode.is_poisoned));
    let named = if is_named { "named" } else { "in order" };
    memory.build(format!("rows of {row_bytes} bytes {named}, {}", mode.name()), move |addrs| {
        Kernel::FillRows(FillRowsParams {
            src: addrs[src],
            src_rows: if is_named { addrs[src_rows] } else { 0 },
            dst: addrs[dst],
            dst_rows: addrs[dst_rows],
            src_layout: packed,
            dst_layout: apart,
            dst_half: mode.half(addrs[state], half_bytes, 0),
            poison: addrs[poison],
            row_bytes: row_bytes as u64,
            num_rows: num_rows as u32,
            page_size: page_size as u32,
        })
    })
}

/// Keys of any bits, NaN, infinities and subnormals among them, one row of zeros, and one of the largest values.
fn fill_index_k(page_size: usize, num_rows: usize, mode: Mode) -> Case {
    let mut pattern = Pattern::new(page_size as u64);
    let mut memory = Builder::default();
    let mut keys = pattern.bytes(num_rows * DIM * 2);
    for (row, keys) in keys.chunks_exact_mut(DIM * 2).enumerate() {
        match row % 8 {
            1 => keys.fill(0),
            // The largest finite bf16, of either sign.
            2 => keys.chunks_exact_mut(2).for_each(|key| key.copy_from_slice(&[0x7f, key[1] & 0x80 | 0x7f])),
            // Subnormals.
            3 => keys.chunks_exact_mut(2).for_each(|key| key[1] &= 0x80),
            // Ordinary values.
            4.. => keys.chunks_exact_mut(2).for_each(|key| key[1] = key[1] & 0x87 | 0x38),
            _ => {}
        }
    }
    let keys = memory.bytes(keys);
    let dst_rows = memory.i64s(&places(&mut pattern, num_rows));
    let half_bytes = num_rows.div_ceil(page_size) * page_size * (DIM + 4);
    let dst = memory.poison(mode.num_halves() * half_bytes);
    let (state, poison) = (memory.state(mode.epoch.unwrap_or(0)), memory.record(mode.is_poisoned));
    memory.build(format!("{num_rows} rows, pages of {page_size}, {}", mode.name()), move |addrs| {
        Kernel::FillIndexK(FillIndexKParams {
            keys: addrs[keys],
            dst: addrs[dst],
            dst_rows: addrs[dst_rows],
            dst_half: mode.half(addrs[state], half_bytes, 0),
            poison: addrs[poison],
            num_rows: num_rows as u32,
            page_size: page_size as u32,
        })
    })
}
