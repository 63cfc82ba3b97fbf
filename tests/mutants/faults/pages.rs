//! Halves, slots and pages: the gather, the page scatter, zeroing.

use crate::detector::Detector::{Kernels, Strategies, Timeout};
use crate::fault::{Fault, fault};

const HALF: &str = "half.rs";
const GATHER: &str = "gather.rs";
const PAGES: &str = "fill_pages.rs";
const ZERO: &str = "zero.rs";
const EPOCHS_HALF: &str = "epoch.wrapping_sub(self.passed) % 2 * self.stride";
/// In every kernel that looks at the poison.
const LOOK: &str = "signal::is_poisoned(params.poison)";
const NO_LOOK: &str = "signal::is_poisoned(params.poison & 0)";

pub(super) const FAULTS: &[Fault] = &[
    // Kernels know no layer: a half that does not follow the epoch is what a half from the layer comes to.
    fault(Strategies, "half not from the epoch", HALF, &[(EPOCHS_HALF, "(epoch & 0) * self.stride")]).quick(),
    fault(Strategies, "half without what has passed", HALF, &[(EPOCHS_HALF, "epoch % 2 * self.stride")])
        .quick(),
    fault(
        Kernels,
        "half changes every second epoch",
        HALF,
        &[(EPOCHS_HALF, "(epoch.wrapping_sub(self.passed) >> 1) % 2 * self.stride")],
    ),
    fault(
        Kernels,
        "gather: one page short",
        GATHER,
        &[("while slot < params.num_slots {", "while slot + 1 < params.num_slots {")],
    )
    .quick(),
    fault(
        Strategies,
        "gather: sentinel of zeros ignored",
        GATHER,
        &[("BASE_ZERO => SlotBytes::Zero,", "BASE_ZERO => SlotBytes::Keep,")],
    )
    .quick(),
    fault(
        Kernels,
        "gather: slots that stay are zeroed",
        GATHER,
        &[("BASE_KEEP => SlotBytes::Keep,", "BASE_KEEP => SlotBytes::Zero,")],
    )
    .quick(),
    fault(
        Kernels,
        "gather: page of its neighbour",
        GATHER,
        &[("descriptor.page as u64 * params", "(descriptor.page as u64 ^ 1) * params")],
    ),
    fault(Kernels, "gather: layer left out", GATHER, &[("{ params.pool_offset }", "{ 0 }")]),
    fault(
        Kernels,
        "gather: one base too few is halved",
        GATHER,
        &[("if base < params.first_halved {", "if base <= params.first_halved {")],
    ),
    fault(
        Kernels,
        "gather: a block leaves out pages",
        GATHER,
        &[("slot += arch::num_blocks();", "slot += arch::num_blocks() + 1;")],
    ),
    fault(
        Kernels,
        "gather: destination's half ignored",
        GATHER,
        &[("params.dst + unsafe { params.dst_half.offset() }", "params.dst")],
    ),
    fault(Timeout, "gather: poison not looked at", GATHER, &[(LOOK, NO_LOOK)]).quick(),
    fault(
        Kernels,
        "page scatter: one page short",
        PAGES,
        &[("while i < params.num_pages {", "while i + 1 < params.num_pages {")],
    )
    .quick(),
    fault(
        Kernels,
        "page scatter: pages without a place written",
        PAGES,
        &[("if dst_page != PAGE_NONE {", "if dst_page != PAGE_NONE - 1 {")],
    ),
    fault(
        Kernels,
        "page scatter: inverse one too long",
        PAGES,
        &[("at < params.inverse_len", "at <= params.inverse_len")],
    ),
    fault(
        Kernels,
        "page scatter: inverse one too short",
        PAGES,
        &[("at < params.inverse_len", "at.saturating_add(1) < params.inverse_len")],
    ),
    fault(
        Kernels,
        "page scatter: page of its neighbour",
        PAGES,
        &[("src_page as u64 * params", "(src_page as u64 ^ 1) * params")],
    ),
    fault(
        Kernels,
        "page scatter: source's half ignored",
        PAGES,
        &[("params.src + unsafe { params.src_half.offset() }", "params.src")],
    ),
    fault(
        Kernels,
        "page scatter: destination's half ignored",
        PAGES,
        &[("params.dst + unsafe { params.dst_half.offset() }", "params.dst")],
    ),
    fault(Kernels, "page scatter: poison not looked at", PAGES, &[(LOOK, NO_LOOK)]),
    fault(
        Kernels,
        "zero: last range left",
        ZERO,
        &[("while i < params.num_ranges {", "while i + 1 < params.num_ranges {")],
    ),
    fault(
        Kernels,
        "zero: destination's half ignored",
        ZERO,
        &[("params.dst + unsafe { params.dst_half.offset() }", "params.dst")],
    ),
    fault(Kernels, "zero: poison not looked at", ZERO, &[(LOOK, NO_LOOK)]),
    fault(
        Kernels,
        "sum: carries into the next byte",
        "add_bytes.rs",
        &[("((a & !TOP) + (b & !TOP)) ^ ((a ^ b) & TOP)", "(a ^ (TOP & 0)).wrapping_add(b)")],
    ),
    fault(
        Kernels,
        "sum: last byte left",
        "add_bytes.rs",
        &[("while byte < params.bytes as usize {", "while byte + 1 < params.bytes as usize {")],
    ),
    fault(Kernels, "sum: poison not looked at", "add_bytes.rs", &[(LOOK, NO_LOOK)]),
];
