//! The reference engine and an engine of the caller's do what every engine must.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "engine_reference/memcpy.rs"]
mod memcpy;
#[path = "engine_reference/suite.rs"]
mod suite;

use std::thread;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::transfer::{BatchId, Block, EndpointOptions, Fabric, Faults, TransferEngine};
use proptest::collection::vec;
use proptest::prelude::*;

use suite::{contents, filled, pattern};

#[test]
fn the_in_process_engine_does_what_every_engine_must() {
    let fabric = Fabric::new();
    suite::check(&fabric.endpoint("a").unwrap(), &fabric.endpoint("b").unwrap());
}

#[test]
fn an_in_process_engine_that_reorders_does_too() {
    let fabric = Fabric::new();
    let faults = Faults { reorder: Some(5), ..Faults::default() };
    let endpoint = |name| {
        let options = EndpointOptions { faults: faults.clone(), ..EndpointOptions::default() };
        fabric.endpoint_with(name, options).unwrap()
    };
    suite::check(&endpoint("a"), &endpoint("b"));
}

#[test]
fn an_engine_of_the_callers_does_what_every_engine_must() {
    let [a, b] = memcpy::engines(["host-a:1", "host-b:1"]);
    suite::check(&a, &b);
}

const SRC_BYTES: u64 = 4096;
const POISON: u8 = 0xEE;

/// By thread, by batch, by block: where its bytes come from, how many they are, and the gap behind its destination.
type Work = Vec<Vec<Vec<(u64, u64, u64)>>>;

fn work() -> impl Strategy<Value = Work> {
    let bytes = prop_oneof![Just(8_u64), Just(64), 0_u64..300];
    let block = (0..SRC_BYTES - 300, bytes, 0_u64..20);
    vec(vec(vec(block, 0..6), 0..6), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn batches_of_several_threads_in_any_order_give_the_bytes_of_serial_copies(work in work(), seed: u64) {
        let faults = Faults { reorder: Some(seed), hold: true, ..Faults::default() };
        let options = EndpointOptions { faults, ..EndpointOptions::default() };
        let fabric = Fabric::new();
        let (a, b) = (fabric.endpoint_with("a", options).unwrap(), fabric.endpoint("b").unwrap());
        let bytes_of = |&(_, bytes, gap): &(u64, u64, u64)| bytes + gap;
        let dst_bytes: u64 = work.iter().flatten().flatten().map(bytes_of).sum();
        let pattern = pattern(SRC_BYTES, seed);
        let (src, dst) = (filled(&pattern), filled(&vec![POISON; dst_bytes as usize]));
        a.register(&src).unwrap();
        b.register(&dst).unwrap();
        let peer = a.add_peer(&b.metadata().unwrap()).unwrap();

        // Destinations lie one after another; the expectation is made of plain copies.
        let mut expected = Vec::new();
        let mut lay = |&(from, bytes, gap): &(u64, u64, u64)| {
            let block = Block { src: src.addr() + from, dst: dst.addr() + expected.len() as u64, bytes };
            expected.extend(&pattern[from as usize..(from + bytes) as usize]);
            expected.extend(vec![POISON; gap as usize]);
            block
        };
        let mut threads: Vec<Vec<Vec<Block>>> = Vec::new();
        for batches in &work {
            threads.push(batches.iter().map(|batch| batch.iter().map(&mut lay).collect()).collect());
        }

        let submit = |batches: Vec<Vec<Block>>| -> Vec<BatchId> {
            batches.iter().map(|blocks| a.submit(peer, blocks).unwrap()).collect()
        };
        let batches: Vec<BatchId> = thread::scope(|scope| {
            let start = |batches| scope.spawn(|| submit(batches));
            let running: Vec<_> = threads.into_iter().map(start).collect();
            running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        prop_assert!(contents(&dst).iter().all(|&byte| byte == POISON));
        a.release_all();
        for batch in batches {
            a.wait(batch, Deadline::after(Duration::from_secs(60))).unwrap();
        }
        prop_assert_eq!(contents(&dst), expected);
    }
}
