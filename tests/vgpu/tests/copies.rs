//! `mbarrier` and `cp.async.bulk`: right use gives the bytes, every missing wait or fence is seen.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use cpkv_vgpu::exec::{ExecFault, FaultKind, Rules};
use cpkv_vgpu::machine::Sharing;
use support::{TestMemory, bytes_of, kernel, launch, run_with};

const SOURCE: u8 = 0x5A;

/// One thread runs `body` with a buffer `s` and an mbarrier `m` in shared memory, `a` at 64 bytes, `b` at 64 others.
fn outcome(body: &str) -> Result<Vec<u8>, ExecFault> {
    outcome_on(body, Sharing::Private, Sharing::Private)
}

fn outcome_on(body: &str, a: Sharing, b: Sharing) -> Result<Vec<u8>, ExecFault> {
    let mut memory = TestMemory::default();
    let (a, b) = (memory.holding(&[SOURCE; 64], a), memory.holding(&[0; 64], b));
    let body =
        format!(".shared .align 16 .b8 s[128];\n.shared .b64 m;\nmov.u32 %r20, s;\nmov.u32 %r21, m;\n{body}");
    run_with(&kernel(&body), &memory, launch(1, 1, bytes_of(&[a, b])), Rules { report_uninitialised: true })?;
    Ok(memory.read(b, 64))
}

fn broken(body: &str) -> FaultKind {
    match outcome(body) {
        Ok(_) => panic!("no fault:\n{body}"),
        Err(fault) => fault.kind(),
    }
}

const INIT: &str = "mbarrier.init.shared::cta.b64 [%r21], 1;\nfence.proxy.async;\n";
const EXPECT: &str = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 64;\n";
const LOAD: &str =
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%a], 64, [%r21];\n";
const WAIT: &str = "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r21], 0;\n@!%p1 bra W;\n";
const STORE: &str = "cp.async.bulk.global.shared::cta.bulk_group [%b], [%r20], 64;\n";
const COMMIT: &str = "cp.async.bulk.commit_group;\n";
const READ: &str = "cp.async.bulk.wait_group.read 0;\n";
const DONE: &str = "cp.async.bulk.wait_group 0;\n";

#[test]
fn a_copy_through_shared_memory_gives_the_bytes() {
    for end in [DONE, READ] {
        let found = outcome(&[INIT, EXPECT, LOAD, WAIT, STORE, COMMIT, end].concat()).unwrap();
        assert_eq!(found, [SOURCE; 64]);
    }
    // The copy may come before the bytes are expected.
    assert_eq!(outcome(&[INIT, LOAD, EXPECT, WAIT, STORE, COMMIT, DONE].concat()).unwrap(), [SOURCE; 64]);
}

#[test]
fn a_missing_wait_for_the_barrier_is_seen() {
    let read = "ld.shared.b32 %r1, [%r20];\nst.b32 [%b], %r1;\n";
    assert_eq!(outcome(&[INIT, EXPECT, LOAD, WAIT, read].concat()).unwrap()[0], SOURCE);
    assert_eq!(broken(&[INIT, EXPECT, LOAD, read, WAIT].concat()), FaultKind::Ordering);
    assert_eq!(
        broken(&[INIT, EXPECT, LOAD, "st.shared.b8 [%r20+63], 0;\n", WAIT].concat()),
        FaultKind::Ordering
    );
    assert_eq!(broken(&[INIT, EXPECT, LOAD, STORE, WAIT, COMMIT, DONE].concat()), FaultKind::Ordering);
    assert_eq!(broken(&[INIT, EXPECT, LOAD, LOAD, WAIT].concat()), FaultKind::Ordering);
    assert_eq!(broken(&[INIT, EXPECT, LOAD].concat()), FaultKind::Ordering);
    // A single question is no wait.
    let once = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r21], 0;\n";
    assert_eq!(broken(&[INIT, EXPECT, LOAD, once].concat()), FaultKind::Ordering);
}

#[test]
fn a_missing_wait_for_a_store_is_seen() {
    let loaded = [INIT, EXPECT, LOAD, WAIT].concat();
    assert_eq!(broken(&[&loaded, STORE, COMMIT].concat()), FaultKind::Ordering);
    assert_eq!(broken(&[&loaded, STORE, READ].concat()), FaultKind::Ordering, "no group was committed");
    // The buffer is overwritten before it was read.
    let overwrite = "st.shared.b32 [%r20], 0;\nfence.proxy.async;\n";
    assert_eq!(broken(&[&loaded, STORE, COMMIT, overwrite, DONE].concat()), FaultKind::Ordering);
    assert_eq!(broken(&[&loaded, STORE, overwrite, COMMIT, DONE].concat()), FaultKind::Ordering);
    let reload = [EXPECT, LOAD].concat();
    assert_eq!(broken(&[&loaded, STORE, COMMIT, &reload, DONE].concat()), FaultKind::Ordering);
    assert_eq!(outcome(&[&loaded, STORE, COMMIT, READ, overwrite, DONE].concat()).unwrap()[0], SOURCE);
    // The destination is read before it was written: `.read` waits for the source only.
    let copy = "ld.global.b32 %r1, [%b];\nst.global.b32 [%b+32], %r1;\n";
    let store = "cp.async.bulk.global.shared::cta.bulk_group [%b], [%r20], 32;\n";
    assert_eq!(outcome(&[&loaded, store, COMMIT, READ, copy, DONE].concat()).unwrap()[32], 0);
    assert_eq!(outcome(&[&loaded, store, COMMIT, DONE, copy].concat()).unwrap()[32], SOURCE);
}

#[test]
fn groups_complete_in_order_and_a_wait_leaves_the_newest_pending() {
    let loaded = [INIT, EXPECT, LOAD, WAIT].concat();
    let store =
        |at: u32| format!("cp.async.bulk.global.shared::cta.bulk_group [%b+{at}], [%r20], 16;\n{COMMIT}");
    let body = format!(
        "{loaded}{}{}cp.async.bulk.wait_group 1;\nld.b8 %r1, [%b];\nld.b8 %r2, [%b+16];\nst.b8 [%b+32], %r1;\nst.b8 [%b+33], %r2;\n{DONE}",
        store(0),
        store(16)
    );
    let found = outcome(&body).unwrap();
    assert_eq!(found[32..34], [SOURCE, 0]);
    assert_eq!(found[..32], [SOURCE; 32]);
}

#[test]
fn shared_memory_that_was_stored_to_is_fenced_before_the_copy_engine_reads_it() {
    let write = "st.shared.v4.b32 [%r20+16], {7, 7, 7, 7};\n";
    let send = [STORE, COMMIT, DONE].concat();
    assert_eq!(broken(&[write, &send].concat()), FaultKind::Ordering);
    assert_eq!(broken(&["fence.proxy.async;\n", write, &send].concat()), FaultKind::Ordering);
    assert_eq!(outcome(&[write, "fence.proxy.async;\n", &send].concat()).unwrap()[16], 7);
    // A store elsewhere needs none.
    let elsewhere = "st.shared.b32 [%r20+64], 7;\n";
    assert!(outcome(&[elsewhere, &send].concat()).is_ok());
}

#[test]
fn sizes_and_addresses_of_bulk_copies_are_multiples_of_16_and_inside() {
    for (load, kind) in [
        (LOAD.replace("64,", "40,"), FaultKind::Misaligned),
        (LOAD.replace("64,", "0,"), FaultKind::Misaligned),
        (LOAD.replace("[%r20]", "[%r20+8]"), FaultKind::Misaligned),
        (LOAD.replace("[%a], 64", "[%a+8], 32"), FaultKind::Misaligned),
        (LOAD.replace("64,", "80,"), FaultKind::IllegalAddress),
        (LOAD.replace("[%r20]", "[%r20+256]"), FaultKind::IllegalAddress),
        (LOAD.replace("[%a]", "[%d9]"), FaultKind::IllegalAddress),
        (LOAD.replace("[%r21]", "[%r20+64]"), FaultKind::Other),
        (STORE.replace("[%b], [%r20], 64", "[%b+8], [%r20], 32"), FaultKind::Misaligned),
        (STORE.replace("64;", "80;"), FaultKind::IllegalAddress),
    ] {
        assert_eq!(broken(&[INIT, EXPECT, &load, WAIT].concat()), kind, "{load}");
    }
}

#[test]
fn bulk_copies_keep_the_rules_of_words_that_synchronise() {
    let body = [INIT, EXPECT, LOAD, WAIT, STORE, COMMIT, DONE].concat();
    let kind =
        |prefix: &str, a, b| outcome_on(&format!("{prefix}{body}"), a, b).map_err(|fault| fault.kind());
    let read = "ld.acquire.sys.b32 %r1, [%a+8];\n";
    let add = "red.release.sys.add.u32 [%b+60], 1;\n";
    assert_eq!(kind(read, Sharing::Peer, Sharing::Private), Err(FaultKind::Ordering));
    assert_eq!(kind(add, Sharing::Private, Sharing::Exported), Err(FaultKind::Ordering));
    assert!(kind(add, Sharing::Peer, Sharing::Private).is_ok());
    let mut memory = TestMemory::default();
    let a = memory.allocate(64, Sharing::Private);
    let b = memory.holding(&[0; 64], Sharing::Private);
    let text =
        format!(".shared .align 16 .b8 s[128];\n.shared .b64 m;\nmov.u32 %r20, s;\nmov.u32 %r21, m;\n{body}");
    let params = launch(1, 1, bytes_of(&[a, b]));
    let fault = run_with(&kernel(&text), &memory, params, Rules { report_uninitialised: true }).unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Uninitialised);
    // The fault names the copy, not the wait that made it.
    assert!(fault.to_string().contains("cp.async.bulk.shared::cluster"), "{fault}");
}

#[test]
fn a_barrier_counts_arrivals_bytes_and_phases() {
    // Two arrivals a phase; the parity of the phase before the first is complete from the start.
    let body = "mbarrier.init.shared.b64 [%r21], 2;\nmbarrier.try_wait.parity.shared.b64 %p1, [%r21], 1;\nmbarrier.arrive.shared.b64 %d1, [%r21];\n\
                mbarrier.test_wait.parity.shared.b64 %p2, [%r21], 0;\nmbarrier.arrive.release.cta.shared::cta.b64 _, [%r21], 1;\n\
                mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p3, [%r21], 0, 1000;\nmbarrier.try_wait.parity.shared.b64 %p4, [%r21], 1;\n\
                mbarrier.arrive.shared.b64 _, [%r21], 2;\nmbarrier.try_wait.parity.shared.b64 %p5, [%r21], 1;\nmbarrier.inval.shared.b64 [%r21];\n\
                st.shared.b64 [%r21], 0;\nselp.u32 %r1, 1, 0, %p1;\nselp.u32 %r2, 1, 0, %p2;\nselp.u32 %r3, 1, 0, %p3;\nselp.u32 %r4, 1, 0, %p4;\nselp.u32 %r5, 1, 0, %p5;\n\
                st.v4.b32 [%b], {%r1, %r2, %r3, %r4};\nst.b32 [%b+16], %r5;";
    let found = outcome(body).unwrap();
    assert_eq!([found[0], found[4], found[8], found[12], found[16]], [1, 0, 1, 0, 1]);
    // Bytes alone do not complete a phase, nor do arrivals while bytes are missing.
    let expects = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r21], 64;\nmbarrier.arrive.shared::cta.b64 _, [%r21];\n\
                   mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r21], 0;\nselp.u32 %r1, 1, 0, %p1;\nst.b32 [%b], %r1;\n";
    let found = outcome(&[INIT, expects, LOAD, WAIT].concat()).unwrap();
    assert_eq!(found[0], 0);
}

#[test]
fn barriers_that_are_misused_are_faults() {
    for body in [
        "mbarrier.arrive.shared.b64 _, [%r21];",
        "mbarrier.init.shared.b64 [%r21], 0;",
        "mbarrier.init.shared.b64 [%r21], 1;\nmbarrier.init.shared.b64 [%r21], 1;",
        "mbarrier.init.shared.b64 [%r21], 1;\nst.shared.b32 [%r21+4], 0;",
        "mbarrier.init.shared.b64 [%r21], 1;\nld.shared.b64 %d1, [%r21];",
        "mbarrier.init.shared.b64 [%r21], 1;\nmbarrier.arrive.shared.b64 _, [%r21], 2;",
        "mbarrier.init.shared.b64 [%r21], 1;\nmbarrier.arrive.expect_tx.shared.b64 _, [%r21], 1048576;",
        "mbarrier.init.shared.b64 [%r21], 1;\nmbarrier.inval.shared.b64 [%r21];\nmbarrier.try_wait.parity.shared.b64 %p1, [%r21], 0;",
    ] {
        assert_eq!(broken(body), FaultKind::Other, "{body}");
    }
    assert_eq!(broken("mbarrier.init.shared.b64 [%r20+4], 1;"), FaultKind::Misaligned);
    assert_eq!(broken("mbarrier.init.b64 [%a], 1;"), FaultKind::IllegalAddress);
}
