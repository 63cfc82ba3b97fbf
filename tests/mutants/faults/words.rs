//! Scope and order of what synchronises.

use crate::detector::Detector::{Processes, Sass, Timeout};
use crate::fault::{Fault, fault};

const FILE: &str = "arch/nvptx/words.rs";
const PEER_ADD: &str = "red.release.sys.global.add.s32";
const OWN_ADD: &str = "red.relaxed.sys.global.add.s32";
const LOAD: &str = "ld.acquire.sys.global.s32";
const POISON_LOAD: &str = "ld.acquire.sys.global.u32";
const POISON_STORE: &str = "st.release.sys.global.u32";
const POISON_CLAIM: &str = "atom.relaxed.sys.global.cas.b32";

pub(super) const FAULTS: &[Fault] = &[
    fault(Processes, "peer add: scope dropped", FILE, &[(PEER_ADD, "red.release.gpu.global.add.s32")])
        .quick(),
    fault(Processes, "peer add: no release", FILE, &[(PEER_ADD, "red.relaxed.sys.global.add.s32")]).quick(),
    fault(
        Processes,
        "peer add: fence of the device's scope",
        FILE,
        &[(
            "\"red.release.sys.global.add.s32 [{word}], {value};\"",
            "\"fence.acq_rel.gpu;\", \"red.relaxed.sys.global.add.s32 [{word}], {value};\"",
        )],
    ),
    fault(
        Processes,
        "peer add: no release, in the barrier alone",
        "barrier.rs",
        &[("arch::add_release_sys(word(peer_pad", "arch::add_relaxed_sys(word(peer_pad")],
    ),
    fault(Processes, "peer add: no scope, no order", FILE, &[(PEER_ADD, "red.global.add.s32")]),
    fault(Processes, "own add: scope dropped", FILE, &[(OWN_ADD, "red.relaxed.gpu.global.add.s32")]),
    fault(Processes, "own add: no scope, no order", FILE, &[(OWN_ADD, "red.global.add.s32")]),
    // Right, and a fence more than needed.
    fault(Sass, "own add: releases as well", FILE, &[(OWN_ADD, "red.release.sys.global.add.s32")]),
    fault(Processes, "word's load: scope dropped", FILE, &[(LOAD, "ld.acquire.gpu.global.s32")]),
    fault(Processes, "word's load: no acquire", FILE, &[(LOAD, "ld.relaxed.sys.global.s32")]).quick(),
    fault(Processes, "word's load: weak", FILE, &[(LOAD, "ld.global.s32")]),
    fault(Processes, "word's load: volatile", FILE, &[(LOAD, "ld.volatile.global.s32")]),
    fault(Processes, "poison's load: scope dropped", FILE, &[(POISON_LOAD, "ld.acquire.gpu.global.u32")]),
    fault(Processes, "poison's load: no acquire", FILE, &[(POISON_LOAD, "ld.relaxed.sys.global.u32")]),
    fault(Processes, "poison's load: weak", FILE, &[(POISON_LOAD, "ld.global.u32")]),
    fault(Timeout, "poison's store: scope dropped", FILE, &[(POISON_STORE, "st.release.gpu.global.u32")]),
    fault(Processes, "poison's store: no release", FILE, &[(POISON_STORE, "st.relaxed.sys.global.u32")]),
    fault(Processes, "poison's store: weak", FILE, &[(POISON_STORE, "st.global.u32")]),
    fault(
        Timeout,
        "poison's claim: scope dropped",
        FILE,
        &[(POISON_CLAIM, "atom.relaxed.gpu.global.cas.b32")],
    ),
    fault(Timeout, "poison's claim: no scope", FILE, &[(POISON_CLAIM, "atom.global.cas.b32")]),
];
