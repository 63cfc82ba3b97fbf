//! Faults planted into the kernels that ship, each by one change of their PTX: every one is seen. As in `kernels.rs`,
//! `CPKV_VGPU_PTX` names the PTX.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;

use cpkv_kernels::abi::{Descriptor, GatherParams, HalfSelect};
use cpkv_vgpu::exec::{ExecFault, Execution, FaultKind, Progress};
use cpkv_vgpu::machine::Sharing;
use cpkv_vgpu::ptx::Module;
use support::shipped::{Ranks, STRICT, shipped_text};
use support::{TestMemory, bytes_of, launch};

/// `text` with `from` replaced by `to`, wherever it stands.
fn changed(text: &str, from: &str, to: &str) -> Arc<Module> {
    assert!(text.contains(from), "the kernels have no `{from}`");
    Arc::new(Module::parse(&text.replace(from, to)).unwrap_or_else(|error| panic!("{error}")))
}

/// One barrier of two ranks, turn by turn.
fn barrier(module: &Arc<Module>) -> Result<(), ExecFault> {
    let ranks = Ranks::new(2);
    let mut running = [0, 1].map(|rank| Some(ranks.barrier(module, rank, 100_000_000)));
    while running.iter().any(Option::is_some) {
        for (rank, slot) in running.iter_mut().enumerate() {
            let Some(execution) = slot else { continue };
            if execution.run(&ranks.seen_by(rank), 40)? == Progress::Done {
                *slot = None;
            }
        }
    }
    Ok(())
}

#[test]
fn a_weaker_barrier_is_refused() {
    let text = shipped_text();
    barrier(&changed(&text, "red.release.sys", "red.release.sys")).unwrap();
    for (from, to) in [
        ("red.release.sys.global.add.s32", "red.relaxed.sys.global.add.s32"),
        ("red.release.sys.global.add.s32", "red.release.gpu.global.add.s32"),
        ("red.relaxed.sys.global.add.s32", "red.global.add.s32"),
        ("ld.acquire.sys.global.s32", "ld.acquire.gpu.global.s32"),
        ("ld.acquire.sys.global.s32", "ld.relaxed.sys.global.s32"),
        ("ld.acquire.sys.global.s32", "ld.volatile.global.s32"),
        ("ld.acquire.sys.global.s32", "ld.global.s32"),
        ("ld.acquire.sys.global.u32", "ld.acquire.cta.global.u32"),
    ] {
        match barrier(&changed(&text, from, to)) {
            Ok(()) => panic!("{from} -> {to} was not seen"),
            Err(fault) => assert_eq!(fault.kind(), FaultKind::Ordering, "{from} -> {to}: {fault}"),
        }
    }
}

/// A bulk gather of two slots of many pieces each; whether every byte arrived.
fn gather(module: &Arc<Module>) -> Result<bool, ExecFault> {
    const PAGE: usize = 300_000;
    let whole = HalfSelect { state: 0, stride: 0, passed: 0 };
    let source: Vec<u8> = (0..2 * PAGE).map(|at| (at / 5 * 13 + at / 4096) as u8).collect();
    let mut memory = TestMemory::default();
    let base = memory.holding(&source, Sharing::Peer);
    let dst = memory.allocate(2 * PAGE, Sharing::Private);
    let params = GatherParams {
        dst,
        descriptors: memory.table(&[Descriptor { base: 0, page: 1 }, Descriptor { base: 0, page: 0 }]),
        bases: memory.table(&[base]),
        pool_offset: 0,
        src_half: whole,
        dst_half: whole,
        page_bytes: PAGE as u64,
        poison: 0,
        num_slots: 2,
        first_halved: 1,
    };
    let mut launch = launch(1, 64, bytes_of(&[params]));
    launch.dynamic_shared_bytes = 128 * 1024;
    let mut execution = Execution::new(module.clone(), "cpkv_gather_bulk", launch, STRICT).unwrap();
    for _ in 0..1000 {
        if execution.run(&memory, 10_000)? == Progress::Done {
            return Ok(memory.read(dst, 2 * PAGE) == [&source[PAGE..], &source[..PAGE]].concat());
        }
    }
    Ok(false)
}

#[test]
fn a_bulk_gather_that_waits_less_is_seen() {
    let text = shipped_text();
    assert!(gather(&changed(&text, "wait_group", "wait_group")).unwrap());
    for (from, to) in [
        ("cp.async.bulk.wait_group 0;", ""),
        ("cp.async.bulk.commit_group;", ""),
        ("cp.async.bulk.wait_group.read 1;", ""),
        ("cp.async.bulk.wait_group.read 1;", "cp.async.bulk.wait_group.read 2;"),
        ("mbarrier.try_wait.parity.shared::cta.b64 %complete, [%r6], %r7;", "setp.eq.u32 %complete, 0, 0;"),
    ] {
        match gather(&changed(&text, from, to)) {
            Ok(complete) => panic!("{from} -> {to} was not seen, the bytes are right: {complete}"),
            Err(fault) => assert_eq!(fault.kind(), FaultKind::Ordering, "{from} -> {to}: {fault}"),
        }
    }
}
