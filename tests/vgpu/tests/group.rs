//! The barrier and the probe that ship, among ranks whose turns interleave.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use cpkv_kernels::abi::ProbeParams;
use cpkv_kernels::signal::{CAUSE_BARRIER, FAULT_RECORDED};
use cpkv_vgpu::exec::{Execution, Progress};
use cpkv_vgpu::machine::Sharing;
use support::shipped::{Ranks, STRICT, shipped};
use support::{TestMemory, bytes_of, finish, launch};

#[test]
fn no_rank_leaves_a_barrier_before_all_have_come_and_the_words_return_to_zero() {
    let module = shipped();
    const RANKS: usize = 4;
    let ranks = Ranks::new(RANKS);
    for epoch in 0..12u64 {
        let late = epoch as usize % RANKS;
        let mut running: Vec<_> =
            (0..RANKS).map(|rank| Some(ranks.barrier(&module, rank, 10_000_000_000))).collect();
        let mut turns = 0;
        while running.iter().any(Option::is_some) {
            for (rank, slot) in running.iter_mut().enumerate() {
                let Some(execution) = slot.as_mut().filter(|_| rank != late || turns >= 30) else { continue };
                let steps = 1 + (turns * 7 + rank as u64 * 13) % 90;
                if execution.run(&ranks.seen_by(rank), steps).unwrap() == Progress::Done {
                    assert!(turns >= 30, "rank {rank} left before rank {late} came");
                    assert_eq!(ranks.memory.read_u64(ranks.states[rank]), epoch + 1);
                    *slot = None;
                }
            }
            turns += 1;
            assert!(turns < 100_000, "the barrier does not end");
        }
        for &pad in &ranks.pads {
            assert_eq!(ranks.memory.read(pad, 256), vec![0; 256]);
        }
    }
}

#[test]
fn a_barrier_that_nobody_joins_poisons_the_group_and_says_who_is_missing() {
    let module = shipped();
    let ranks = Ranks::new(3);
    let mut execution = ranks.barrier(&module, 1, 2_000_000);
    let seen = ranks.seen_by(1);
    while execution.run(&seen, 10_000).unwrap() != Progress::Done {}
    assert_eq!(ranks.memory.read_u64(ranks.states[1]), 0);
    for record in ranks.pads.iter().map(|pad| pad + 256).chain([ranks.statuses[1]]) {
        assert_eq!(ranks.memory.read_u32(record), FAULT_RECORDED);
        assert_eq!(ranks.memory.read_u32(record + 4), 1);
        assert_eq!(ranks.memory.read_u64(record + 8), 0b101);
        assert_eq!(ranks.memory.read_u32(record + 36), CAUSE_BARRIER);
    }
    let mut late = ranks.barrier(&module, 2, 10_000_000_000);
    assert!((0..100).any(|_| late.run(&ranks.seen_by(2), 10_000).unwrap() == Progress::Done));
    assert_eq!(ranks.memory.read_u64(ranks.states[2]), 0);
}

/// Looks after every instruction: no reader can come between two stores and find a record that is not one yet.
#[test]
fn a_record_that_says_it_is_complete_is() {
    let module = shipped();
    let ranks = Ranks::new(3);
    let mut execution = ranks.barrier(&module, 1, 100_000);
    let seen = ranks.seen_by(1);
    let records: Vec<u64> = ranks.pads.iter().map(|pad| pad + 256).chain([ranks.statuses[1]]).collect();
    loop {
        let progress = execution.run(&seen, 1).unwrap();
        for &record in &records {
            if ranks.memory.read_u32(record) == FAULT_RECORDED {
                let (by, missing) = (ranks.memory.read_u32(record + 4), ranks.memory.read_u64(record + 8));
                let (elapsed_ns, tag) =
                    (ranks.memory.read_u64(record + 24), ranks.memory.read_u32(record + 32));
                let cause = ranks.memory.read_u32(record + 36);
                assert_eq!((by, missing, tag, cause), (1, 0b101, 7, CAUSE_BARRIER));
                assert!(elapsed_ns >= 100_000, "{elapsed_ns}");
            }
        }
        if progress == Progress::Done {
            break;
        }
    }
    assert!(records.iter().all(|&record| ranks.memory.read_u32(record) == FAULT_RECORDED));
}

#[test]
fn the_probe_adds_to_every_word() {
    let module = shipped();
    let mut memory = TestMemory::default();
    let words: Vec<u64> = (0..5).map(|_| memory.holding(&[0; 4], Sharing::Peer)).collect();
    let params = ProbeParams { words: memory.table(&words), num_ranks: 5, num_adds: 37 };
    let mut execution =
        Execution::new(module, "cpkv_probe", launch(1, 32, bytes_of(&[params])), STRICT).unwrap();
    finish(&mut execution, &memory).unwrap();
    for word in words {
        assert_eq!(memory.read_u32(word), 37);
    }
}
