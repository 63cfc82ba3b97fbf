//! The rules that x86 hides, and the faults of addresses: each with the least PTX that breaks it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use cpkv_vgpu::exec::{FaultKind, Rules};
use cpkv_vgpu::machine::{SHADOW_INIT, SHADOW_SYNC, Sharing};
use support::{TestMemory, bytes_of, fault_of, kernel, launch, run, run_with};

const SHARED: [Sharing; 2] = [Sharing::Exported, Sharing::Peer];

fn with(sharing: Sharing) -> (TestMemory, u64) {
    let mut memory = TestMemory::default();
    let a = memory.holding(&[0; 64], sharing);
    (memory, a)
}

/// `body` faults so on memory that is shared so, at a word of `a`.
fn breaks(body: &str, sharing: Sharing, kind: FaultKind) -> String {
    let (memory, a) = with(sharing);
    let (found, text) = fault_of(body, &memory, a, 0);
    assert_eq!(found, kind, "{body} on {sharing:?} memory: {text}");
    text
}

fn passes(body: &str, sharing: Sharing) {
    let (memory, a) = with(sharing);
    run(&kernel(body), &memory, (1, 1), (a, 0))
        .unwrap_or_else(|fault| panic!("{body} on {sharing:?} memory: {fault}"));
}

#[test]
fn a_read_modify_write_of_narrow_scope_is_refused_on_memory_that_others_reach() {
    for body in [
        "red.release.gpu.global.add.s32 [%a], 1;",
        "red.global.add.u32 [%a], 1;",
        "atom.acq_rel.cta.exch.b32 %r1, [%a], 1;",
        "atom.cas.b64 %d1, [%a], %d1, %d2;",
    ] {
        for sharing in [Sharing::Exported, Sharing::Peer, Sharing::Host] {
            breaks(body, sharing, FaultKind::Ordering);
        }
        passes(body, Sharing::Private);
    }
    for sharing in [Sharing::Exported, Sharing::Peer, Sharing::Host] {
        passes("red.release.sys.global.add.s32 [%a], 1;", sharing);
        passes("atom.relaxed.sys.global.cas.b32 %r1, [%a], 0, 1;", sharing);
    }
}

#[test]
fn an_acquire_or_release_of_narrow_scope_is_refused_on_memory_that_others_reach() {
    for body in [
        "ld.acquire.gpu.b32 %r1, [%a];",
        "st.release.cta.global.b32 [%a], 1;",
        "ld.acquire.cluster.u64 %d1, [%a];",
    ] {
        for sharing in SHARED {
            breaks(body, sharing, FaultKind::Ordering);
        }
        passes(body, Sharing::Private);
    }
    for sharing in SHARED {
        passes("ld.acquire.sys.b32 %r1, [%a];\nst.release.sys.global.b32 [%a], 1;", sharing);
    }
}

#[test]
fn a_word_that_synchronises_is_not_touched_by_an_ordinary_access() {
    let synchronising = [
        "red.release.sys.global.add.s32 [%a+4], 1;",
        "atom.relaxed.sys.cas.b32 %r1, [%a+4], 0, 1;",
        "ld.acquire.sys.b32 %r1, [%a+4];",
        "st.release.sys.b32 [%a+4], 1;",
    ];
    let ordinary = [
        "ld.b32 %r2, [%a+4];",
        "ld.global.nc.b32 %r2, [%a+4];",
        "ld.volatile.b32 %r2, [%a+4];",
        "ld.relaxed.sys.global.b32 %r2, [%a+4];",
        "ld.b8 %r2, [%a+5];",
        "ld.v4.b32 {%r2, %r3, %r4, %r5}, [%a];",
        "ld.b64 %d2, [%a];",
        "st.b32 [%a+4], 2;",
        "st.relaxed.sys.b32 [%a+4], 2;",
        "st.v2.b64 [%a], {%d1, %d1};",
        "st.b16 [%a+6], %h1;",
    ];
    for first in synchronising {
        for second in ordinary {
            for sharing in SHARED {
                breaks(&format!("{first}\n{second}"), sharing, FaultKind::Ordering);
            }
            passes(&format!("{first}\n{second}"), Sharing::Private);
            passes(&format!("{second}\n{first}"), Sharing::Exported);
        }
        passes(&format!("{first}\nld.b32 %r2, [%a];\nst.b64 [%a+8], %d1;"), Sharing::Exported);
    }
}

#[test]
fn an_add_to_a_peers_word_needs_a_release_or_a_fence_since_the_last_store() {
    let add = "red.relaxed.sys.global.add.s32 [%a], 1;";
    for body in [
        add.to_owned(),
        format!("fence.acq_rel.sys;\nst.global.b32 [%a+8], 1;\n{add}"),
        format!("fence.acq_rel.sys;\nred.release.sys.global.add.s32 [%a+8], 1;\n{add}"),
        format!("fence.acq_rel.gpu;\n{add}"),
        "atom.acquire.sys.global.exch.b32 %r1, [%a], 1;".to_owned(),
    ] {
        breaks(&body, Sharing::Peer, FaultKind::Ordering);
        passes(&body, Sharing::Exported);
    }
    for fence in ["fence.acq_rel.sys;", "fence.sc.sys;", "membar.sys;"] {
        passes(&format!("st.global.b32 [%a+8], 1;\n{fence}\nld.b32 %r1, [%a+8];\n{add}"), Sharing::Peer);
    }
    passes("atom.acq_rel.sys.global.add.u64 %d1, [%a], 1;", Sharing::Peer);
}

#[test]
fn what_is_not_aligned_is_misaligned() {
    for body in [
        "ld.b32 %r1, [%a+2];",
        "st.b64 [%a+4], %d1;",
        "ld.v4.b32 {%r1, %r2, %r3, %r4}, [%a+8];",
        "st.v2.b32 [%a+4], {%r1, %r2};",
        "red.release.sys.global.add.u64 [%a+4], 1;",
        "ld.acquire.sys.b16 %h1, [%a+1];",
    ] {
        for sharing in [Sharing::Private, Sharing::Peer] {
            breaks(body, sharing, FaultKind::Misaligned);
        }
    }
}

#[test]
fn what_is_outside_or_dead_is_an_illegal_address() {
    for body in [
        "ld.b32 %r1, [%a+64];",
        "ld.b32 %r1, [%a+-4];",
        "st.v2.b64 [%a+64], {%d1, %d1};",
        "ld.v2.b64 {%d1, %d2}, [%a+64];",
        "ld.b8 %r1, [0];",
        "mov.b64 %d1, 0x7F1234567890;\nld.global.b64 %d1, [%d1];",
        "red.release.sys.global.add.s32 [%a+1048576], 1;",
    ] {
        let text = breaks(body, Sharing::Private, FaultKind::IllegalAddress);
        assert!(text.contains("address 0x"), "{text}");
    }
    // An access that begins inside and ends outside.
    let mut memory = TestMemory::default();
    let a = memory.holding(&[0; 12], Sharing::Private);
    assert_eq!(fault_of("ld.b64 %d1, [%a+8];", &memory, a, 0).0, FaultKind::IllegalAddress);
    assert_eq!(fault_of("st.v4.b32 [%a], {%r1, %r1, %r1, %r1};", &memory, a, 0).0, FaultKind::IllegalAddress);
}

#[test]
fn reads_of_what_nothing_wrote_are_faults_where_the_rules_say_so() {
    let strict = Rules { report_uninitialised: true };
    let check = |body: &str, sharing, rules| {
        let mut memory = TestMemory::default();
        let a = memory.allocate(64, sharing);
        run_with(&kernel(body), &memory, launch(1, 1, bytes_of(&[a, 0])), rules).map_err(|fault| fault.kind())
    };
    for body in [
        "ld.b32 %r1, [%a];",
        "st.b16 [%a], %h1;\nld.b32 %r1, [%a];",
        "st.b32 [%a], %r1;\nst.b32 [%a+8], %r1;\nst.b32 [%a+12], %r1;\nld.v4.b32 {%r1, %r2, %r3, %r4}, [%a];",
        "st.b8 [%a+3], %h1;\nld.b8 %r1, [%a+2];",
        "ld.acquire.sys.b32 %r1, [%a];",
        "red.release.sys.add.u32 [%a], 1;",
    ] {
        for sharing in [Sharing::Private, Sharing::Exported, Sharing::Peer] {
            assert_eq!(check(body, sharing, strict), Err(FaultKind::Uninitialised), "{body}");
            assert_eq!(check(body, sharing, Rules::default()), Ok(()), "{body}");
        }
        // The host writes its memory unseen.
        assert_eq!(check(body, Sharing::Host, strict), Ok(()), "{body}");
    }
    for body in [
        "st.b8 [%a+5], %h1;\nld.b8 %r1, [%a+5];",
        "st.v2.b64 [%a], {%d1, %d1};\nld.b16 %h1, [%a+14];\nld.b64 %d1, [%a+8];",
        "st.b16 [%a], %h1;\nst.b16 [%a+2], %h1;\nld.b32 %r1, [%a];",
        "st.release.sys.b32 [%a], 1;\nred.release.sys.add.u32 [%a], 1;",
    ] {
        assert_eq!(check(body, Sharing::Peer, strict), Ok(()), "{body}");
    }
}

#[test]
fn the_shadow_remembers_what_was_written_and_what_synchronised() {
    let (mut memory, exported) = with(Sharing::Exported);
    let fresh = memory.allocate(16, Sharing::Private);
    let body = "st.b8 [%b+1], %h1;\nst.b16 [%b+6], %h1;\nred.release.sys.add.u32 [%b+8], 1;\nld.acquire.sys.b32 %r1, [%a];";
    run(&kernel(body), &memory, (1, 1), (exported, fresh)).unwrap();
    assert_eq!([0, 4, 8, 12].map(|at| memory.shadow(fresh + at)), [0b0010, 0b1100, SHADOW_INIT, 0]);
    assert_eq!(memory.shadow(exported), SHADOW_INIT | SHADOW_SYNC);
    assert_eq!(memory.shadow(exported + 4), SHADOW_INIT);
}

#[test]
fn a_report_names_kernel_thread_line_and_text() {
    let module = kernel("mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 5;\n@%p1 trap; exit;");
    let fault = run(&module, &TestMemory::default(), (1, 8), (0, 0)).unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Trap);
    let text = fault.to_string();
    for part in ["kernel `k`", "thread (5, 0, 0)", "`@%p1 trap; exit;`", "trapped"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert!(text.contains(&format!("line {}", fault.line())));
    // 3 lines of header, 8 of signature, registers and parameters, then the third of the body.
    assert_eq!(fault.line(), 14);
}

#[test]
fn what_ptx_leaves_undefined_is_a_fault() {
    for body in [
        "div.u32 %r1, %r2, %r3;",
        "rem.s64 %d1, %d2, %d3;",
        "mov.b32 %r1, 3;\nt: .branchtargets l, m;\nbrx.idx %r1, t;\nl: m:",
    ] {
        breaks(body, Sharing::Private, FaultKind::Other);
    }
}
