//! Kernels over signal words: the barrier of one rank, the poison kernel, the adds of the probe.

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{BarrierParams, PoisonParams, ProbeParams};
use cpkv_kernels::signal::{CAUSE_HOST, FAULT_NONE, FAULT_RECORDED, MAX_RANKS, SignalPad};

use super::{Builder, RECORD_BYTES};
use crate::kernels::Case;

pub(super) fn add(cases: &mut Vec<Case>) {
    for (is_raised, is_poisoned) in [(false, false), (true, false), (false, true), (true, true)] {
        cases.push(poison(is_raised, is_poisoned));
    }
    for num_ranks in [1, 8, 64] {
        cases.push(probe(num_ranks));
    }
    for is_poisoned in [false, true] {
        cases.push(barrier_of_one(is_poisoned));
    }
}

/// A record with every field its own.
fn record(word: u32, by_rank: u32) -> Vec<u8> {
    let mut record = Vec::with_capacity(RECORD_BYTES);
    record.extend(word.to_le_bytes());
    record.extend(by_rank.to_le_bytes());
    for field in [0b101_u64, 77, 1_234_567_890] {
        record.extend(field.to_le_bytes());
    }
    record.extend(9_u32.to_le_bytes());
    record.extend(CAUSE_HOST.to_le_bytes());
    record.resize(RECORD_BYTES, 0);
    record
}

/// A pad at rest, or one with a record.
fn pad(is_poisoned: bool) -> Vec<u8> {
    let mut pad = vec![0; size_of::<SignalPad>()];
    if is_poisoned {
        let at = core::mem::offset_of!(SignalPad, fault);
        pad[at..at + RECORD_BYTES].copy_from_slice(&record(FAULT_RECORDED, 2));
    }
    pad
}

/// Three ranks, of which the second looks, or raises; its pad may hold a record already.
fn poison(is_raised: bool, is_poisoned: bool) -> Case {
    let mut memory = Builder::default();
    let pads = [false, is_poisoned, false].map(|is_poisoned| memory.bytes(pad(is_poisoned)));
    let table = memory.addresses(&pads.map(|pad| (pad, 0)));
    let status = memory.bytes(vec![0; RECORD_BYTES]);
    let record = memory.bytes(record(if is_raised { FAULT_RECORDED } else { FAULT_NONE }, 1));
    memory.build(format!("raised: {is_raised}, poisoned: {is_poisoned}"), move |addrs| {
        Kernel::Poison(PoisonParams {
            pads: addrs[table],
            status: addrs[status],
            record: addrs[record],
            rank: 1,
            num_ranks: 3,
        })
    })
}

fn probe(num_ranks: usize) -> Case {
    let mut memory = Builder::default();
    // Words apart from each other, as those of ranks are.
    let words = memory.i32s(&(0..32 * num_ranks as i32).collect::<Vec<_>>());
    let places: Vec<(usize, u64)> = (0..num_ranks as u64).map(|rank| (words, 128 * rank)).collect();
    let table = memory.addresses(&places);
    memory.build(format!("{num_ranks} ranks"), move |addrs| {
        Kernel::Probe(ProbeParams { words: addrs[table], num_ranks: num_ranks as u32, num_adds: 13 })
    })
}

/// One rank passes at once, or reports what poisons it; the words of other ranks stay as they are.
fn barrier_of_one(is_poisoned: bool) -> Case {
    let mut memory = Builder::default();
    let mut bytes = pad(is_poisoned);
    bytes[4..4 * MAX_RANKS].fill(0x11);
    let pad = memory.bytes(bytes);
    let table = memory.addresses(&[(pad, 0)]);
    let (state, status) = (memory.state(41), memory.bytes(vec![0; RECORD_BYTES]));
    memory.build(format!("one rank, poisoned: {is_poisoned}"), move |addrs| {
        Kernel::Barrier(BarrierParams {
            pads: addrs[table],
            state: addrs[state],
            status: addrs[status],
            timing: 0,
            timeout_ns: 1_000_000_000,
            rank: 0,
            num_ranks: 1,
            num_spins: 0,
            tag: 3,
        })
    })
}
