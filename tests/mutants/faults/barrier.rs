//! The barrier's steps, poison, and what raises it.

use crate::detector::Detector::{Barrier, Kernels, Sass, Timeout};
use crate::fault::{Fault, fault};

const FILE: &str = "barrier.rs";
const SIGNAL: &str = "signal.rs";

/// Step 3 of the barrier.
const WAIT: &str = "unsafe { wait(params, pad, entered_ns) }";

pub(super) const FAULTS: &[Fault] = &[
    fault(Barrier, "spin removed", FILE, &[(WAIT, "{ let _ = wait; true }")]).quick(),
    fault(Barrier, "spin removed, gives up at once", FILE, &[(WAIT, "{ let _ = wait; false }")]).quick(),
    fault(
        Barrier,
        "lanes that gave up are not heard of",
        FILE,
        &[("arch::team_any(!saw_all)", "!saw_all")],
    ),
    fault(
        Barrier,
        "peer decrement dropped",
        FILE,
        &[("unsafe { arch::add_release_sys(word(peer_pad, params.rank), -1) };", "let _ = peer_pad;")],
    )
    .quick(),
    fault(
        Barrier,
        "own increment dropped",
        FILE,
        &[("unsafe { arch::add_relaxed_sys(word(pad, peer), 1) };", "let _ = pad;")],
    )
    .quick(),
    fault(
        Barrier,
        "peer's word of another rank",
        FILE,
        &[("word(peer_pad, params.rank)", "word(peer_pad, peer)")],
    ),
    fault(Sass, "what lanes acquired not ordered before lane 0", FILE, &[("    arch::sync_lanes();\n", "")]),
    fault(
        Kernels,
        "waits for a word that is exactly 0",
        FILE,
        &[(
            "while unsafe { arch::load_acquire_sys(word(pad, peer)) } > 0 {",
            "while unsafe { arch::load_acquire_sys(word(pad, peer)) } != 0 {",
        )],
    ),
    fault(
        Kernels,
        "a wait without end",
        FILE,
        &[("arch::now_ns().saturating_sub(started_ns) >= params.timeout_ns", "arch::now_ns().saturating_sub(started_ns) == u64::MAX")],
    ),
    fault(
        Kernels,
        "poison not looked at on entering",
        FILE,
        &[("let saw_all = if unsafe { signal::is_poisoned(poison) } {", "let saw_all = if unsafe { signal::is_poisoned(0) } {")],
    )
    .quick(),
    fault(
        Timeout,
        "poison not looked at while waiting",
        FILE,
        &[(
            "if unsafe { signal::is_poisoned(signal::poison_addr(pad)) } {",
            "if unsafe { signal::is_poisoned(0) } {",
        )],
    ),
    fault(
        Kernels,
        "poison not looked at after the wait",
        FILE,
        &[(
            "    if unsafe { signal::is_poisoned(poison) } {\n        // SAFETY: `status`",
            "    if unsafe { signal::is_poisoned(0) } {\n        // SAFETY: `status`",
        )],
    ),
    fault(
        Kernels,
        "epoch advanced on a timeout",
        FILE,
        &[(
            "    let epoch = unsafe { (*state).epoch };",
            "    let epoch = unsafe { (*state).epoch };\n    unsafe { (*state).epoch += 1 };",
        )],
    )
    .quick(),
    fault(Timeout, "epoch not advanced on passing", FILE, &[("(*state).epoch += 1", "(*state).epoch += 0")]),
    fault(Kernels, "epoch advanced by 2", FILE, &[("(*state).epoch += 1", "(*state).epoch += 2")]),
    fault(Timeout, "timeout names nobody", FILE, &[("        missing,\n", "        missing: 0,\n")]),
    fault(
        Timeout,
        "timeout names everybody",
        FILE,
        &[("        missing,\n", "        missing: (1 << params.num_ranks) - 1,\n")],
    ),
    fault(Kernels, "timeout taken for a pass", FILE, &[("missing |= 1 << peer;", "missing |= 0 << peer;")]),
    fault(
        Kernels,
        "timeout raised on the own rank alone",
        SIGNAL,
        &[("for step in 0..num_ranks {", "for step in 0..num_ranks.min(1) {")],
    ),
    fault(
        Kernels,
        "timeout not shown to the host",
        FILE,
        &[(
            "first.\n    // SAFETY: `status` is valid as required.\n    unsafe { signal::report(poison, params.status) };",
            "first.",
        )],
    ),
    fault(
        Kernels,
        "poison not shown to the host",
        FILE,
        &[("return unsafe { signal::report(poison, params.status) };", "return;")],
    ),
    fault(
        Kernels,
        "a record overwritten by a later one",
        SIGNAL,
        &[(
            "if !unsafe { arch::claim_relaxed_sys_u32(word, FAULT_CLAIMED) } {",
            "if !unsafe { arch::claim_relaxed_sys_u32(word, FAULT_CLAIMED) } && word.is_null() {",
        )],
    ),
    fault(
        Kernels,
        "a record said to be complete before it is",
        SIGNAL,
        &[
            (
                "    let FaultRecord { word: _, by_rank,",
                "    unsafe { arch::store_release_sys_u32(word, FAULT_RECORDED) };\n    let FaultRecord { word: _, by_rank,",
            ),
            (
                "`is_poisoned`.\n    unsafe { arch::store_release_sys_u32(word, FAULT_RECORDED) };",
                "`is_poisoned`.",
            ),
        ],
    )
    .unseen("a reader would have to come between two stores; tests/vgpu/tests/group.rs looks there"),
    fault(
        Kernels,
        "a record without its cause",
        SIGNAL,
        &[("    unsafe { (*dst).cause = cause };", "    let _ = cause;")],
    ),
    fault(
        Kernels,
        "a verdict raised that is none",
        "poison.rs",
        &[("&& record.word == FAULT_RECORDED", "&& record.word <= FAULT_RECORDED")],
    ),
    fault(
        Kernels,
        "the poison kernel shows the host nothing",
        "poison.rs",
        &[("unsafe { signal::report(signal::poison_addr(pad), params.status) };", "let _ = pad;")],
    ),
    fault(
        Kernels,
        "the probe adds once too little",
        "probe.rs",
        &[("for _ in 0..params.num_adds {", "for _ in 1..params.num_adds {")],
    ),
];
