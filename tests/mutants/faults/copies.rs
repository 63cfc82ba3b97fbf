//! Wide and narrow copies, and zeroing.

use crate::detector::Detector::{Kernels, Sass, Strategies};
use crate::fault::{Fault, fault};

const FILE: &str = "arch/nvptx/copy.rs";

pub(super) const FAULTS: &[Fault] = &[
    fault(
        Strategies,
        "copy: stores 8 bytes of 16",
        FILE,
        &[(
            "\"st.global.v4.u32 [{addr}], {{{a}, {b}, {c}, {d}}};\"",
            "\"st.global.v2.u32 [{addr}], {{{a}, {b}}}; // {c} {d}\"",
        )],
    )
    .quick(),
    fault(
        Kernels,
        "copy: loads 8 bytes of 16",
        FILE,
        &[(
            "\"ld.global.L1::no_allocate.v4.u32 {{{a}, {b}, {c}, {d}}}, [{addr}];\"",
            "\"ld.global.L1::no_allocate.v2.u32 {{{a}, {b}}}, [{addr}];\", \"mov.u32 {c}, {a};\", \"mov.u32 {d}, {b};\"",
        )],
    ),
    fault(
        Kernels,
        "copy: what is left after whole rounds",
        FILE,
        &[(
            "    let mut quads = [[0; 4]; UNROLL - 1];\n",
            "    let mut quads = [[0; 4]; UNROLL - 1];\n    at += num_quads;\n",
        )],
    ),
    fault(
        Kernels,
        "copy: a round past the end",
        FILE,
        &[("while at + (UNROLL - 1) * stride < num_quads {", "while at < num_quads {")],
    ),
    fault(
        Kernels,
        "copy: last narrow unit left",
        FILE,
        &[(
            "while at < num_units {\n        // SAFETY: unit `at` lies inside the range.\n        let from",
            "while at + 1 < num_units {\n        // SAFETY: unit `at` lies inside the range.\n        let from",
        )],
    ),
    fault(
        Kernels,
        "copy: unaligned rows taken for aligned",
        FILE,
        &[(
            "let unit = dst as usize | src as usize | bytes;",
            "let unit = dst as usize | bytes & 0 | src as usize & 0;",
        )],
    ),
    fault(
        Kernels,
        "zero: last 16 bytes left",
        FILE,
        &[("while at < bytes / size_of::<Quad>() {", "while at + 1 < bytes / size_of::<Quad>() {")],
    ),
    fault(
        Kernels,
        "zero: last narrow unit left",
        FILE,
        &[(
            "while at < num_units {\n        // SAFETY: unit `at` lies inside the range.\n        let to",
            "while at + 1 < num_units {\n        // SAFETY: unit `at` lies inside the range.\n        let to",
        )],
    ),
    fault(
        Kernels,
        "zero: stores what is not zero",
        FILE,
        &[("store_quad(dst, at, [0; 4])", "store_quad(dst, at, [0, 0, 0, 1])")],
    ),
    // Right bytes, at a quarter of the speed.
    fault(
        Sass,
        "copy: one load in flight",
        FILE,
        &[("const UNROLL: usize = 4;", "const UNROLL: usize = 1;")],
    ),
];
