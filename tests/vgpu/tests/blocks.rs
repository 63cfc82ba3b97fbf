//! What the threads of a grid do together: places, barriers, warps, clocks.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use std::time::{Duration, Instant};

use cpkv_vgpu::exec::{Execution, FaultKind, Progress, Rules};
use cpkv_vgpu::machine::Sharing;
use support::{TestMemory, bytes_of, finish, kernel, launch, run};

/// `%r1` is the thread's index in the grid, and `%b` its own word.
const OWN_WORD: &str = "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\nmad.lo.u32 %r1, %r1, %r2, %r3;\n\
                        mad.wide.u32 %b, %r1, 4, %b;\n";

/// The word of every thread after `body`.
fn words(body: &str, (blocks, threads): (u32, u32)) -> Vec<u32> {
    let mut memory = TestMemory::default();
    let a = memory.holding(&[0; 4096], Sharing::Private);
    let b = memory.holding(&vec![0; 4 * (blocks * threads) as usize], Sharing::Private);
    run(&kernel(&format!("{OWN_WORD}{body}")), &memory, (blocks, threads), (a, b))
        .unwrap_or_else(|fault| panic!("{fault}"));
    (0..blocks * threads).map(|at| memory.read_u32(b + 4 * u64::from(at))).collect()
}

fn fault(body: &str, shape: (u32, u32)) -> (FaultKind, String) {
    let fault = run(&kernel(body), &TestMemory::default(), shape, (0, 0)).unwrap_err();
    (fault.kind(), fault.to_string())
}

#[test]
fn every_thread_knows_its_place() {
    let module = kernel(
        "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %tid.y;\nmov.u32 %r3, %tid.z;\nmov.u32 %r4, %ctaid.x;\nmov.u32 %r5, %ctaid.y;\n\
         mov.u32 %r6, %ntid.x;\nmov.u32 %r7, %nctaid.y;\nmov.u32 %r8, %laneid;\nmov.u32 %r9, %warpid;\nmov.u32 %r10, %nctaid.x;\n\
         mad.lo.u32 %r11, %r5, %r10, %r4;\nmov.u32 %r12, %ntid.y;\nmov.u32 %r13, %ntid.z;\nmul.lo.u32 %r14, %r6, %r12;\nmul.lo.u32 %r15, %r14, %r13;\n\
         mad.lo.u32 %r16, %r3, %r14, %r1;\nmad.lo.u32 %r16, %r2, %r6, %r16;\nmad.lo.u32 %r11, %r11, %r15, %r16;\n\
         mad.wide.u32 %b, %r11, 8, %b;\nmad.lo.u32 %r9, %r9, 32, %r8;\nmov.u32 %r17, %lanemask_lt;\npopc.b32 %r17, %r17;\nsub.u32 %r17, %r17, %r8;\nadd.u32 %r9, %r9, %r17;\nst.v2.b32 [%b], {%r9, %r7};",
    );
    let mut memory = TestMemory::default();
    let b = memory.holding(&vec![0; 8 * 6 * 60], Sharing::Private);
    let mut shaped = launch(1, 1, bytes_of(&[0, b]));
    (shaped.grid, shaped.block) = ([3, 2, 1], [5, 4, 3]);
    finish(&mut Execution::new(module, "k", shaped, Rules::default()).unwrap(), &memory).unwrap();
    for at in 0..360 {
        assert_eq!(memory.read_u32(b + 8 * at), at as u32 % 60);
        assert_eq!(memory.read_u32(b + 8 * at + 4), 2);
    }
}

#[test]
fn a_barrier_orders_shared_memory_among_all_threads_of_a_block() {
    // Each thread adds up what its left neighbours wrote; round by round.
    let body = ".shared .b32 s[96];\nmov.u32 %r4, s;\nmad.lo.u32 %r4, %r3, 4, %r4;\nst.shared.b32 [%r4], 1;\nmov.b32 %r5, 1;\n\
                L: bar.sync 0;\nsetp.lt.u32 %p1, %r3, %r5;\nmov.b32 %r7, 0;\n@%p1 bra S;\nmul.lo.u32 %r6, %r5, 4;\nsub.u32 %r6, %r4, %r6;\nld.shared.b32 %r7, [%r6];\n\
                S: barrier.cta.sync.aligned.all 0;\nld.shared.b32 %r8, [%r4];\nadd.u32 %r8, %r8, %r7;\nst.shared.b32 [%r4], %r8;\n\
                shl.b32 %r5, %r5, 1;\nsetp.lt.u32 %p2, %r5, 96;\n@%p2 bra L;\nst.b32 [%b], %r8;";
    let found = words(body, (3, 96));
    let expected: Vec<u32> = (0..3).flat_map(|_| 1..=96).collect();
    assert_eq!(found, expected);
}

#[test]
fn exited_threads_are_not_waited_for() {
    let body = "setp.lt.u32 %p1, %r3, 10;\n@%p1 exit;\nbar.sync 0;\nst.b32 [%b], 1;";
    let found = words(body, (2, 33));
    assert!(found.iter().enumerate().all(|(at, &word)| word == u32::from(at % 33 >= 10)));
    // Those that exit after the others arrived release them too.
    let late = "setp.ge.u32 %p1, %r3, 10;\n@%p1 bra W;\nmov.b32 %r5, 5000;\nL: add.s32 %r5, %r5, -1;\nsetp.ne.s32 %p2, %r5, 0;\n@%p2 bra L;\nexit;\n\
                W: bar.sync 0;\nst.b32 [%b], 1;";
    assert_eq!(words(late, (1, 64)).iter().sum::<u32>(), 54);
}

#[test]
fn named_barriers_count_the_threads_they_are_told_to() {
    // The first warp produces and only arrives; the second waits for both.
    let body = ".shared .b32 s[32];\nmov.u32 %r4, %laneid;\nmov.u32 %r5, s;\nmad.lo.u32 %r5, %r4, 4, %r5;\nsetp.ge.u32 %p1, %r3, 32;\n@%p1 bra C;\n\
                st.shared.b32 [%r5], %r4;\nbar.arrive 3, 64;\nret;\nC: bar.sync 3, 64;\nld.shared.b32 %r6, [%r5];\nadd.u32 %r6, %r6, 100;\nst.b32 [%b], %r6;";
    assert_eq!(words(body, (1, 64))[32..], (100..132).collect::<Vec<_>>());
}

#[test]
fn a_barrier_that_cannot_complete_is_a_deadlock_at_once() {
    let start = Instant::now();
    let (kind, text) = fault(
        "mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 3;\n@%p1 bra B;\nbar.sync 0;\nret;\nB: bar.sync 1;",
        (1, 8),
    );
    assert_eq!(kind, FaultKind::Deadlock, "{text}");
    assert!(text.contains("bar.sync"), "{text}");
    assert_eq!(fault("bar.sync 2, 64;", (4, 32)).0, FaultKind::Deadlock);
    assert_eq!(fault("mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 3;\n@%p1 bra B;\nbar.sync 0;\nB: shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;\nbar.sync 0;\nbar.sync 0;", (1, 8)).0, FaultKind::Deadlock);
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn barriers_used_wrongly_are_faults() {
    assert_eq!(fault("bar.sync 16;", (1, 32)).0, FaultKind::Other);
    assert_eq!(fault("bar.sync 1, 33;", (1, 64)).0, FaultKind::Other);
}

#[test]
fn lanes_exchange_values() {
    let exchange = |operation: &str| {
        words(&format!("mul.lo.u32 %r4, %r3, 10;\n{operation}\nst.b32 [%b], %r5;"), (1, 64))
    };
    let expected = |source: fn(u32) -> u32| {
        (0..64).map(|at| 10 * (at / 32 * 32 + source(at % 32))).collect::<Vec<u32>>()
    };
    assert_eq!(exchange("shfl.sync.bfly.b32 %r5, %r4, 5, 31, 0xffffffff;"), expected(|lane| lane ^ 5));
    assert_eq!(exchange("shfl.sync.idx.b32 %r5, %r4, 7, 31, -1;"), expected(|_| 7));
    assert_eq!(
        exchange("shfl.sync.up.b32 %r5, %r4, 3, 0, -1;"),
        expected(|lane| if lane < 3 { lane } else { lane - 3 })
    );
    assert_eq!(
        exchange("shfl.sync.down.b32 %r5, %r4, 3, 31, -1;"),
        expected(|lane| if lane > 28 { lane } else { lane + 3 })
    );
    // In segments of 8 lanes.
    assert_eq!(exchange("shfl.sync.idx.b32 %r5, %r4, 2, 0x181f, -1;"), expected(|lane| lane / 8 * 8 + 2));
    assert_eq!(
        exchange("shfl.sync.down.b32 %r5, %r4, 1, 0x181f, -1;"),
        expected(|lane| if lane % 8 == 7 { lane } else { lane + 1 })
    );
    // The predicate says whether the lane was in range.
    let in_range = words(
        "shfl.sync.up.b32 %r4|%p1, %r3, 4, 0, -1;\nselp.u32 %r5, 1, 0, %p1;\nst.b32 [%b], %r5;",
        (1, 32),
    );
    assert!(in_range.iter().enumerate().all(|(lane, &p)| p == u32::from(lane >= 4)));
}

#[test]
fn a_maximum_over_a_warp_by_butterflies_is_everybodys() {
    let body = "{\n.reg .b32 %o;\nxor.b32 %r4, %r3, 21;\nmul.lo.u32 %r4, %r4, 0x9E3779B1;\nshr.u32 %r4, %r4, 16;\nmov.b32 %r6, %r4;\n\
                shfl.sync.bfly.b32 %o, %r6, 16, 31, 0xffffffff;\nmax.u32 %r6, %r6, %o;\nshfl.sync.bfly.b32 %o, %r6, 8, 31, 0xffffffff;\nmax.u32 %r6, %r6, %o;\n\
                shfl.sync.bfly.b32 %o, %r6, 4, 31, 0xffffffff;\nmax.u32 %r6, %r6, %o;\nshfl.sync.bfly.b32 %o, %r6, 2, 31, 0xffffffff;\nmax.u32 %r6, %r6, %o;\n\
                shfl.sync.bfly.b32 %o, %r6, 1, 31, 0xffffffff;\nmax.u32 %r6, %r6, %o;\n}\nst.b32 [%b], %r6;";
    let value = |lane: u32| (lane ^ 21).wrapping_mul(0x9E37_79B1) >> 16;
    assert_eq!(words(body, (1, 32)), vec![(0..32).map(value).max().unwrap(); 32]);
}

#[test]
fn groups_of_lanes_meet_apart_and_exited_lanes_are_excused() {
    // Odd and even lanes shuffle under masks of their own, in different places of the program.
    let apart = "and.b32 %r4, %r3, 1;\nsetp.eq.u32 %p1, %r4, 1;\n@%p1 bra O;\nshfl.sync.idx.b32 %r5, %r3, 2, 31, 0x55555555;\nbra D;\n\
                 O: shfl.sync.idx.b32 %r5, %r3, 5, 31, 0xAAAAAAAA;\nD: bar.warp.sync 0xffffffff;\nst.b32 [%b], %r5;";
    assert!(words(apart, (1, 32)).iter().enumerate().all(|(lane, &word)| word == [2, 5][lane % 2]));
    let excused =
        "setp.lt.u32 %p1, %r3, 4;\n@%p1 exit;\nshfl.sync.idx.b32 %r5, %r3, 9, 31, -1;\nst.b32 [%b], %r5;";
    assert_eq!(words(excused, (1, 32))[4..], [9; 28]);
    assert_eq!(fault("mov.u32 %r3, %tid.x;\nsetp.lt.u32 %p1, %r3, 4;\n@%p1 exit;\nshfl.sync.idx.b32 %r5, %r3, 1, 31, -1;", (1, 32)).0, FaultKind::Other);
    assert_eq!(fault("shfl.sync.idx.b32 %r5, %r3, 1, 31, 0xFFFFFFFE;", (1, 32)).0, FaultKind::Other);
    // A warp that is not full: the lanes that do not exist are excused as well.
    assert_eq!(
        words("shfl.sync.bfly.b32 %r5, %r3, 1, 31, -1;\nst.b32 [%b], %r5;", (1, 6)),
        [1, 0, 3, 2, 5, 4]
    );
}

#[test]
fn lanes_vote() {
    let vote = |operation: &str| {
        words(&format!("setp.lt.u32 %p1, %r3, 5;\n{operation}\nst.b32 [%b], %r5;"), (1, 64))
    };
    let by_warp = |first: u32, second: u32| [[first; 32], [second; 32]].concat();
    assert_eq!(vote("vote.sync.ballot.b32 %r5, %p1, -1;"), by_warp(0b11111, 0));
    assert_eq!(vote("vote.sync.ballot.b32 %r5, !%p1, -1;"), by_warp(!0b11111, !0));
    assert_eq!(vote("vote.sync.any.pred %p2, %p1, -1;\nselp.u32 %r5, 1, 0, %p2;"), by_warp(1, 0));
    assert_eq!(vote("vote.sync.all.pred %p2, !%p1, -1;\nselp.u32 %r5, 1, 0, %p2;"), by_warp(0, 1));
    assert_eq!(vote("vote.sync.uni.pred %p2, %p1, -1;\nselp.u32 %r5, 1, 0, %p2;"), by_warp(0, 1));
    assert_eq!(vote("activemask.b32 %r5;"), by_warp(!0, !0));
}

#[test]
fn a_block_that_spins_does_not_keep_the_block_it_waits_for_from_running() {
    // Block 0 spins on a word that the last block sets.
    let body = "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra O;\nL: ld.acquire.gpu.b32 %r4, [%a];\nsetp.ne.b32 %p2, %r4, 7;\n@%p2 bra L;\nst.b32 [%b], 1;\nret;\n\
                O: setp.ne.u32 %p3, %r1, 7;\n@%p3 exit;\nst.release.gpu.b32 [%a], 7;";
    assert_eq!(words(body, (8, 1))[0], 1);
}

#[test]
fn who_sleeps_or_polls_in_vain_leaves_the_processor_to_others() {
    let mut memory = TestMemory::default();
    let a = memory.holding(&[0; 8], Sharing::Private);
    let sleeper = kernel(
        "mov.u64 %d1, %globaltimer;\nnanosleep.u32 2000000000;\nmov.u64 %d2, %globaltimer;\nsub.u64 %d1, %d2, %d1;\nst.b64 [%a], %d1;",
    );
    let params = launch(1, 1, bytes_of(&[a, 0]));
    let mut execution = Execution::new(sleeper, "k", params.clone(), Rules::default()).unwrap();
    assert_eq!(execution.run(&memory, 1_000_000).unwrap(), Progress::Waiting);
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!(execution.run(&memory, 1_000_000).unwrap(), Progress::Done);
    assert!((2_000_000_000..60_000_000_000).contains(&memory.read_u64(a)));

    memory.write(a, &[0; 8]);
    let poller = kernel("L: ld.acquire.sys.b32 %r1, [%a];\nsetp.eq.b32 %p1, %r1, 0;\n@%p1 bra L;");
    let mut execution = Execution::new(poller, "k", params.clone(), Rules::default()).unwrap();
    assert_eq!(execution.run(&memory, 1_000_000).unwrap(), Progress::Waiting);
    assert!(execution.num_instructions() < 1000);
    memory.write(a, &[1; 4]);
    assert_eq!(execution.run(&memory, 1_000_000).unwrap(), Progress::Done);

    let worker = kernel("L: add.u32 %r1, %r1, 1;\nbra L;");
    let mut execution = Execution::new(worker, "k", params, Rules::default()).unwrap();
    assert_eq!(execution.run(&memory, 10_000).unwrap(), Progress::Running);
    assert_eq!(execution.num_instructions(), 10_000);
}
