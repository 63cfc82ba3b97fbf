//! Rows: the row scatter and the quantising fill.

use crate::detector::Detector::{Kernels, Strategies, Timeout};
use crate::fault::{Fault, fault};

const ROWS: &str = "fill_rows.rs";
const INDEX_K: &str = "fill_index_k.rs";
const FP8: &str = "fp8.rs";
const MORE: (&str, &str) = ("while i < params.num_rows {", "while i + 1 < params.num_rows {");
const SKIP: (&str, &str) = ("if dst_row != ROW_SKIP {", "if dst_row != ROW_SKIP - 1 {");
const LOOK: (&str, &str) = ("signal::is_poisoned(params.poison)", "signal::is_poisoned(params.poison & 0)");
const HALF: (&str, &str) = ("params.dst + unsafe { params.dst_half.offset() }", "params.dst");

pub(super) const FAULTS: &[Fault] = &[
    fault(Strategies, "rows: last row left", ROWS, &[MORE]).quick(),
    fault(Kernels, "rows: sentinel of skipped rows ignored", ROWS, &[SKIP]).quick(),
    fault(
        Kernels,
        "rows: names of sources ignored",
        ROWS,
        &[("table => unsafe { row_at(table, i) },", "_ => i64::from(i),")],
    ),
    fault(Kernels, "rows: place in the page left out", ROWS, &[("+ layout.offset +", "+")]),
    fault(Kernels, "rows: destination's half ignored", ROWS, &[HALF]),
    fault(Timeout, "rows: poison not looked at", ROWS, &[LOOK]),
    fault(Kernels, "index-K: last row left", INDEX_K, &[MORE]),
    fault(Kernels, "index-K: sentinel of skipped rows ignored", INDEX_K, &[SKIP]),
    fault(Kernels, "index-K: destination's half ignored", INDEX_K, &[HALF]),
    fault(Kernels, "index-K: poison not looked at", INDEX_K, &[LOOK]),
    fault(Strategies, "index-K: scale from one lane", INDEX_K, &[("arch::team_max(largest)", "largest")])
        .quick(),
    fault(
        Kernels,
        "index-K: half of the lanes left out of the scale",
        "arch/nvptx.rs",
        &[("{largest}, 16, 31, 0xffffffff;", "{largest}, 8, 31, 0xffffffff;")],
    ),
    fault(
        Kernels,
        "index-K: scale at its neighbour's place",
        INDEX_K,
        &[("+ row * size_of::<f32>() as u64", "+ (row ^ 1) * size_of::<f32>() as u64")],
    ),
    fault(
        Kernels,
        "index-K: scale among the keys",
        INDEX_K,
        &[("page + page_size * DIM as u64 + row", "page + row")],
    ),
    fault(
        Kernels,
        "index-K: scale not written",
        INDEX_K,
        &[("if lane == 0 {", "if lane == arch::TEAM_LANES {")],
    ),
    fault(
        Kernels,
        "index-K: ties rounded up",
        FP8,
        &[("magnitude + 0x7_ffff + (magnitude >> 20 & 1)", "magnitude + 0x8_0000")],
    )
    .quick(),
    fault(
        Kernels,
        "index-K: rounded towards zero",
        FP8,
        &[("magnitude + 0x7_ffff + (magnitude >> 20 & 1)", "magnitude")],
    ),
    fault(Kernels, "index-K: subnormals flushed", FP8, &[("{ subnormal } else", "{ 0 & subnormal } else")]),
    fault(
        Kernels,
        "index-K: infinities count for the scale",
        FP8,
        &[("if magnitude < 0x7f80 { magnitude } else { 0 }", "magnitude")],
    ),
    fault(
        Kernels,
        "index-K: divides by a scale of 0",
        FP8,
        &[("if scale == 0.0 { 1.0 } else { scale }", "scale")],
    ),
    fault(Kernels, "index-K: sign lost", FP8, &[("/ divisor) | (key >> 8 & 0x80) as u8", "/ divisor)")]),
    fault(
        Kernels,
        "index-K: codes stored as 16 bits",
        "arch/nvptx/copy.rs",
        &[(
            "unsafe { slot.write(u32::from_le_bytes(word)) };",
            "unsafe { slot.cast::<u16>().write(u32::from_le_bytes(word) as u16) };",
        )],
    ),
];
