//! The gather by the bulk copy engine.

use crate::detector::Detector::{Kernels, Sass};
use crate::fault::{Fault, fault};

const FILE: &str = "gather_bulk.rs";
const ENGINE: &str = "arch/nvptx/bulk.rs";

pub(super) const FAULTS: &[Fault] = &[
    fault(
        Kernels,
        "bulk: load not waited for",
        FILE,
        &[(
            "while !unsafe { arch::mbarrier_try_wait(stage.mbarrier, stage.parity) } {",
            "while since_ns == 1 {",
        )],
    )
    .quick(),
    fault(Kernels, "bulk: reads not waited for", FILE, &[("arch::bulk_wait_reads_but_one();", "")]).quick(),
    fault(
        Kernels,
        "bulk: reads waited for one too late",
        ENGINE,
        &[("cp.async.bulk.wait_group.read 1;", "cp.async.bulk.wait_group.read 2;")],
    ),
    fault(Kernels, "bulk: wrong parity", FILE, &[("parity: round % 2,", "parity: (round + 1) % 2,")]),
    fault(Kernels, "bulk: parity never changes", FILE, &[("parity: round % 2,", "parity: round & 0,")]),
    fault(Kernels, "bulk: last wait removed", FILE, &[("arch::bulk_wait_all();", "")]),
    fault(
        Kernels,
        "bulk: stores not committed",
        ENGINE,
        &[("            \"cp.async.bulk.commit_group;\",\n", "")],
    ),
    fault(
        Kernels,
        "bulk: bytes not announced",
        ENGINE,
        &[(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{mbarrier}], {bytes};",
            "mbarrier.arrive.shared::cta.b64 _, [{mbarrier}];",
        )],
    ),
    fault(
        Kernels,
        "bulk: chunks 16 bytes short",
        FILE,
        &[(
            "bytes: bytes as u32 };",
            "bytes: (bytes as u32 - 1) / 16 * 16 + if bytes == 16 { 16 } else { 0 } };",
        )],
    ),
    fault(
        Kernels,
        "bulk: last chunk left",
        FILE,
        &[(
            "while self.left == 0 {",
            "while self.left == 0 || self.left == 16 && self.params.page_bytes > 16 {",
        )],
    ),
    fault(Kernels, "bulk: one stage too few", FILE, &[("i % NUM_STAGES);", "i % (NUM_STAGES - 1));")]),
    fault(
        Kernels,
        "bulk: slots of zeros left",
        FILE,
        &[(
            "unsafe { arch::zero_by(ptr::with_exposed_provenance_mut(to as usize), bytes, lanes) };",
            "let _ = (to, bytes, lanes);",
        )],
    ),
    fault(
        Kernels,
        "bulk: pages the engine cannot copy left",
        FILE,
        &[(
            "SlotBytes::Page(src) if !is_for_engine(",
            "SlotBytes::Page(src) if lanes.num_lanes == 0 && !is_for_engine(",
        )],
    ),
    fault(
        Kernels,
        "bulk: one page short",
        FILE,
        &[("if self.slot >= self.params.num_slots {", "if self.slot + 1 >= self.params.num_slots {")],
    ),
    fault(
        Kernels,
        "bulk: poison not looked at",
        FILE,
        &[("signal::is_poisoned(params.poison)", "signal::is_poisoned(params.poison & 0)")],
    ),
    // The interpreter's mbarriers are seen by its copy engine at once; the machine code shows it.
    fault(Sass, "bulk: fence before the engine removed", FILE, &[("arch::fence_before_bulk();", "")]),
];
