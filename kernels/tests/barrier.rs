//! The barrier's body on the CPU: ranks as threads, faults that are already there or come while it waits.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::thread;

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{BarrierParams, BarrierTiming, GroupState, PoisonParams};
use cpkv_kernels::signal::{
    CAUSE_BARRIER, CAUSE_HOST, CAUSE_UNRECORDED, FAULT_CLAIMED, FAULT_NONE, FAULT_RECORDED, FaultRecord,
    MAX_RANKS, SignalPad,
};

/// What ranks of one test share: pads, states, status records.
struct Group {
    pads: Vec<SignalPad>,
    table: Vec<u64>,
    states: Vec<GroupState>,
    statuses: Vec<FaultRecord>,
}

impl Group {
    fn new(num_ranks: usize) -> Self {
        let mut pads: Vec<_> = (0..num_ranks)
            .map(|_| SignalPad { words: [0; MAX_RANKS], fault: FaultRecord::default() })
            .collect();
        let table = pads.iter_mut().map(|pad| (&raw mut *pad).expose_provenance() as u64).collect();
        let states = (0..num_ranks).map(|_| GroupState::default()).collect();
        let statuses = (0..num_ranks).map(|_| FaultRecord::default()).collect();
        Self { pads, table, states, statuses }
    }

    fn barrier(&mut self, rank: usize, timeout_ns: u64) -> Kernel {
        Kernel::Barrier(BarrierParams {
            pads: self.table.as_ptr().expose_provenance() as u64,
            state: (&raw mut self.states[rank]).expose_provenance() as u64,
            status: (&raw mut self.statuses[rank]).expose_provenance() as u64,
            timing: 0,
            timeout_ns,
            rank: rank as u32,
            num_ranks: self.table.len() as u32,
            num_spins: 0,
            tag: 7,
        })
    }

    fn run(&mut self, ranks: &[usize], timeout_ns: u64) {
        let kernels: Vec<_> = ranks.iter().map(|&rank| self.barrier(rank, timeout_ns)).collect();
        thread::scope(|scope| {
            for kernel in kernels {
                // SAFETY: the addresses are this group's, which outlives the scope; one barrier a rank.
                scope.spawn(move || unsafe { kernel.run() });
            }
        });
    }
}

const LONG_NS: u64 = 20_000_000_000;
const SHORT_NS: u64 = 30_000_000;

#[test]
fn all_words_are_zero_and_all_epochs_one_further_when_everybody_has_left() {
    let mut group = Group::new(5);
    for epoch in 1..=50 {
        group.run(&[0, 1, 2, 3, 4], LONG_NS);
        assert!(group.states.iter().all(|state| state.epoch == epoch));
        assert!(group.pads.iter().all(|pad| pad.words.iter().all(|&word| word == 0)));
    }
    assert!(group.statuses.iter().all(|status| status.word == FAULT_NONE));
}

#[test]
fn a_timeout_poisons_every_pad_with_the_absent_ranks_and_no_others() {
    let mut group = Group::new(4);
    group.run(&[0, 2], SHORT_NS);
    for pad in &group.pads {
        let FaultRecord { word, missing, epoch, tag, cause, .. } = pad.fault;
        assert_eq!((word, missing, epoch, tag, cause), (FAULT_RECORDED, 0b1010, 0, 7, CAUSE_BARRIER));
    }
    for rank in [0, 2] {
        assert_eq!((group.statuses[rank].word, group.statuses[rank].missing), (FAULT_RECORDED, 0b1010));
        assert_eq!(group.states[rank].epoch, 0);
    }
    // Who comes late learns it at once, and enters nothing.
    let words: Vec<_> = group.pads.iter().map(|pad| pad.words).collect();
    group.run(&[1, 3], LONG_NS);
    assert_eq!(group.statuses[3].missing, 0b1010);
    assert!(group.pads.iter().zip(words).all(|(pad, before)| pad.words == before));
}

#[test]
fn a_record_that_its_writer_never_finished_is_reported_as_such() {
    let mut group = Group::new(2);
    group.pads[0].fault.word = FAULT_CLAIMED;
    group.run(&[0], LONG_NS);
    assert_eq!((group.statuses[0].word, group.statuses[0].cause), (FAULT_RECORDED, CAUSE_UNRECORDED));
    assert_eq!(group.states[0].epoch, 0);
}

#[test]
fn a_record_that_is_being_written_is_waited_for() {
    let mut group = Group::new(2);
    group.pads[0].fault.word = FAULT_CLAIMED;
    let barrier = group.barrier(0, LONG_NS);
    let record = group.table[0] + std::mem::offset_of!(SignalPad, fault) as u64;
    thread::scope(|scope| {
        // SAFETY: the addresses are this group's, which outlives the scope; one barrier a rank.
        scope.spawn(move || unsafe { barrier.run() });
        thread::sleep(std::time::Duration::from_millis(10));
        let fault = std::ptr::with_exposed_provenance_mut::<FaultRecord>(record as usize);
        // SAFETY: who claimed a record owns its fields: this test.
        unsafe { (*fault).epoch = 41 };
        // SAFETY: as above.
        unsafe { (*fault).cause = CAUSE_HOST };
        // SAFETY: a poison word.
        let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(fault.cast()) };
        word.store(FAULT_RECORDED, std::sync::atomic::Ordering::Release);
    });
    let status = &group.statuses[0];
    assert_eq!((status.word, status.epoch, status.cause), (FAULT_RECORDED, 41, CAUSE_HOST));
}

#[test]
fn a_passed_barrier_says_when_it_was_entered_and_left() {
    let mut group = Group::new(1);
    let mut timing = BarrierTiming::default();
    let Kernel::Barrier(params) = group.barrier(0, LONG_NS) else { panic!("a barrier") };
    let timing_addr = (&raw mut timing).expose_provenance() as u64;
    let before = cpkv_kernels::now_ns();
    // SAFETY: the addresses are this test's.
    unsafe { Kernel::Barrier(BarrierParams { timing: timing_addr, ..params }).run() };
    let entered_and_left = before..=cpkv_kernels::now_ns();
    assert!(entered_and_left.contains(&timing.entered_ns) && entered_and_left.contains(&timing.left_ns));
    assert!(timing.entered_ns <= timing.left_ns);
}

#[test]
fn the_poison_kernel_raises_a_complete_record_on_all_ranks_and_shows_it_to_the_host() {
    let mut group = Group::new(3);
    let empty = FaultRecord { by_rank: 1, epoch: 9, cause: CAUSE_HOST, ..FaultRecord::default() };
    let complete = FaultRecord { word: FAULT_RECORDED, ..empty };
    let mut kernel = PoisonParams {
        pads: group.table.as_ptr().expose_provenance() as u64,
        status: (&raw mut group.statuses[1]).expose_provenance() as u64,
        record: (&raw const empty).expose_provenance() as u64,
        rank: 1,
        num_ranks: 3,
    };
    // SAFETY: the addresses are this test's; so below.
    unsafe { Kernel::Poison(kernel).run() };
    assert!(group.pads.iter().all(|pad| pad.fault.word == FAULT_NONE), "nothing was recorded");
    assert_eq!(group.statuses[1].word, FAULT_NONE);
    kernel.record = (&raw const complete).expose_provenance() as u64;
    // SAFETY: as above.
    unsafe { Kernel::Poison(kernel).run() };
    assert!(group.pads.iter().all(|pad| (pad.fault.word, pad.fault.epoch) == (FAULT_RECORDED, 9)));
    assert_eq!((group.statuses[1].word, group.statuses[1].epoch), (FAULT_RECORDED, 9));
    // Only a look: another rank learns the same.
    (kernel.rank, kernel.record) = (0, 0);
    kernel.status = (&raw mut group.statuses[0]).expose_provenance() as u64;
    // SAFETY: as above.
    unsafe { Kernel::Poison(kernel).run() };
    assert_eq!((group.statuses[0].by_rank, group.statuses[0].epoch), (1, 9));
}

#[test]
fn poison_ends_a_wait_long_before_its_timeout() {
    let mut group = Group::new(2);
    let patient = group.barrier(0, LONG_NS);
    let poison = cpkv_kernels::signal::poison_addr(group.table[0]);
    let started = std::time::Instant::now();
    thread::scope(|scope| {
        // SAFETY: the addresses are this group's, which outlives the scope; one barrier a rank.
        scope.spawn(move || unsafe { patient.run() });
        thread::sleep(std::time::Duration::from_millis(30));
        let record = FaultRecord { by_rank: 1, epoch: 3, cause: CAUSE_HOST, ..FaultRecord::default() };
        // SAFETY: the record of rank 0's pad.
        unsafe { cpkv_kernels::signal::raise_fault(poison, record) };
    });
    assert!(started.elapsed() < std::time::Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!((group.statuses[0].word, group.statuses[0].by_rank), (FAULT_RECORDED, 1));
}
