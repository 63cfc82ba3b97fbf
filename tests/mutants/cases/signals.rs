//! Kernels over signal words: the barrier of one rank against words as its peers leave them, poison, the probe's adds.

use std::mem::offset_of;

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{BarrierParams, PoisonParams, ProbeParams};
use cpkv_kernels::signal::{CAUSE_HOST, FAULT_CLAIMED, FAULT_NONE, FAULT_RECORDED, FaultRecord, SignalPad};

use super::{Case, Memory, TIMEOUT_NS};

const NUM_RANKS: u32 = 5;
const RANK: u32 = 1;

pub(super) fn add(cases: &mut Vec<Case>) {
    // What the peers have added before: they have come; one is a barrier ahead; two never come.
    cases.push(barrier("all have come", [-1, 0, -1, -1, -1], false));
    cases.push(barrier("one is ahead", [-1, 0, -2, -1, -1], false));
    cases.push(barrier("two are missing", [-1, 0, 0, -1, 0], false));
    cases.push(barrier("poisoned", [-1, 0, -1, -1, -1], true));
    cases.push(barrier("poisoned, two are missing", [-1, 0, 0, -1, 0], true));
    for word in [FAULT_NONE, FAULT_CLAIMED, FAULT_RECORDED] {
        cases.push(poison(word, false));
        cases.push(poison(word, true));
    }
    for num_ranks in [1, 8, 64] {
        cases.push(probe(num_ranks));
    }
}

/// A record whose fields all differ.
fn record(word: u32, by_rank: u32) -> Vec<u8> {
    let mut record = [word.to_le_bytes(), by_rank.to_le_bytes()].concat();
    for field in [0b1_0110_u64, 31, 2 * TIMEOUT_NS] {
        record.extend(field.to_le_bytes());
    }
    record.extend([12_u32, CAUSE_HOST].map(u32::to_le_bytes).concat());
    record.resize(size_of::<FaultRecord>(), 0);
    record
}

/// A pad with `words`, and a record where it is poisoned.
fn pad(words: [i32; NUM_RANKS as usize], is_poisoned: bool) -> Vec<u8> {
    let mut pad: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    pad.resize(size_of::<SignalPad>(), 0);
    if is_poisoned {
        let at = offset_of!(SignalPad, fault);
        pad[at..at + size_of::<FaultRecord>()].copy_from_slice(&record(FAULT_RECORDED, 3));
    }
    pad
}

/// Pads of all ranks, the own one with `words`; their table is behind them. Notes where records tell durations.
fn pads(memory: &mut Memory, words: [i32; NUM_RANKS as usize], is_poisoned: bool) -> usize {
    let mut places = Vec::new();
    for rank in 0..NUM_RANKS {
        let own = rank == RANK;
        let words = if own { words } else { [0; NUM_RANKS as usize] };
        let pad = memory.bytes(pad(words, own && is_poisoned));
        memory.durations.push((pad, offset_of!(SignalPad, fault) + offset_of!(FaultRecord, elapsed_ns)));
        places.push((pad, 0));
    }
    memory.addresses(&places)
}

fn status(memory: &mut Memory) -> usize {
    let status = memory.bytes(vec![0; size_of::<FaultRecord>()]);
    memory.durations.push((status, offset_of!(FaultRecord, elapsed_ns)));
    status
}

fn barrier(name: &str, words: [i32; NUM_RANKS as usize], is_poisoned: bool) -> Case {
    let mut memory = Memory::default();
    // Who waits though all have come waits until this is killed.
    let is_complete = (0..NUM_RANKS).all(|rank| rank == RANK || words[rank as usize] < 0);
    let table = pads(&mut memory, words, is_poisoned);
    let (state, status) = (memory.bytes(6_u64.to_le_bytes().to_vec()), status(&mut memory));
    memory.case(name.to_owned(), move |addrs| {
        Kernel::Barrier(BarrierParams {
            pads: addrs[table],
            state: addrs[state],
            status: addrs[status],
            timing: 0,
            timeout_ns: if is_complete { u64::MAX } else { TIMEOUT_NS },
            rank: RANK,
            num_ranks: NUM_RANKS,
            num_spins: 0,
            tag: 77,
        })
    })
}

fn poison(word: u32, is_poisoned: bool) -> Case {
    let mut memory = Memory::default();
    let table = pads(&mut memory, [0; NUM_RANKS as usize], is_poisoned);
    let status = status(&mut memory);
    let record = memory.bytes(record(word, 4));
    memory.case(format!("a record of word {word}, poisoned: {is_poisoned}"), move |addrs| {
        Kernel::Poison(PoisonParams {
            pads: addrs[table],
            status: addrs[status],
            record: addrs[record],
            rank: RANK,
            num_ranks: NUM_RANKS,
        })
    })
}

fn probe(num_ranks: usize) -> Case {
    let mut memory = Memory::default();
    let words = memory.i32s(&(0..16 * num_ranks as i32).collect::<Vec<_>>());
    let table = memory.addresses(&(0..num_ranks as u64).map(|rank| (words, 64 * rank)).collect::<Vec<_>>());
    memory.case(format!("{num_ranks} ranks"), move |addrs| {
        Kernel::Probe(ProbeParams { words: addrs[table], num_ranks: num_ranks as u32, num_adds: 7 })
    })
}
