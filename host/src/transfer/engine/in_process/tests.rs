//! Endpoints that misbehave, as a test tells them to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::*;
use crate::deadline::Deadline;
use crate::device::{CpuDevice, Device};
use crate::transfer::{Delivery, ManualClock};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

/// Two endpoints, each with memory of 1 KiB; the first knows the second.
struct Pair {
    fabric: Fabric,
    a: InProcessEngine,
    b: InProcessEngine,
    src: DeviceBuffer,
    dst: DeviceBuffer,
    peer: PeerId,
}

fn pair_with(options: EndpointOptions) -> Pair {
    let fabric = Fabric::new();
    let (a, b) = (fabric.endpoint_with("a", options).unwrap(), fabric.endpoint("b").unwrap());
    let (src, dst) = (CpuDevice.alloc(1024).unwrap(), CpuDevice.alloc(1024).unwrap());
    CpuDevice.write(&[9; 1024], &src).unwrap();
    a.register(&src).unwrap();
    b.register(&dst).unwrap();
    let peer = a.add_peer(&b.metadata().unwrap()).unwrap();
    Pair { fabric, a, b, src, dst, peer }
}

fn pair() -> Pair {
    pair_with(EndpointOptions::default())
}

impl Pair {
    /// The `i`-th block of 8 bytes on both sides.
    fn block(&self, i: u64) -> Block {
        Block { src: self.src.addr() + 8 * i, dst: self.dst.addr() + 8 * i, bytes: 8 }
    }

    /// Submits one batch of the blocks in `range`.
    fn submit(&self, range: std::ops::Range<u64>) -> Result<BatchId, EngineError> {
        self.a.submit(self.peer, &range.map(|i| self.block(i)).collect::<Vec<_>>())
    }

    fn word(&self, i: u64) -> &AtomicU64 {
        let addr = std::ptr::with_exposed_provenance_mut(self.block(i).dst as usize);
        // SAFETY: 8 aligned bytes of `dst`, which lives as long as `self` and is written by whole words.
        unsafe { AtomicU64::from_ptr(addr) }
    }

    /// Which of the first 8 blocks have arrived.
    fn arrived(&self) -> Vec<u64> {
        // Acquire: pairs with the Release store of the delivery thread.
        (0..8).filter(|&i| self.word(i).load(Ordering::Acquire) == u64::from_ne_bytes([9; 8])).collect()
    }

    fn state(&self, batch: BatchId) -> BatchState {
        self.a.poll(batch).unwrap()
    }
}

#[test]
fn held_batches_arrive_as_they_are_released() {
    let pair = pair();
    pair.a.hold();
    let batches = [0..2, 2..4, 4..6].map(|range| pair.submit(range).unwrap());
    pair.a.settle(soon()).unwrap();
    assert_eq!((pair.arrived(), pair.a.undelivered()), (vec![], batches.to_vec()));
    pair.a.release(1);
    pair.a.wait(batches[0], soon()).unwrap();
    assert_eq!(pair.arrived(), [0, 1]);
    assert!(pair.a.release_batch(batches[2]));
    pair.a.wait(batches[2], soon()).unwrap();
    assert_eq!((pair.arrived(), pair.state(batches[1])), (vec![0, 1, 4, 5], BatchState::InFlight));
    pair.a.release_all();
    pair.a.wait(batches[1], soon()).unwrap();
    assert_eq!(pair.arrived(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_delayed_batch_arrives_when_the_clock_says_so() {
    let clock = Arc::new(ManualClock::default());
    let faults = Faults { delay: Duration::from_secs(60), ..Faults::default() };
    let pair = pair_with(EndpointOptions { clock: clock.clone(), faults, ..EndpointOptions::default() });
    let batch = pair.submit(0..3).unwrap();
    clock.advance(Duration::from_secs(59));
    pair.a.settle(soon()).unwrap();
    assert_eq!((pair.arrived(), pair.state(batch)), (vec![], BatchState::InFlight));
    clock.advance(Duration::from_secs(1));
    pair.a.wait(batch, soon()).unwrap();
    assert_eq!(pair.arrived(), [0, 1, 2]);
}

#[test]
fn an_endpoint_that_completes_early_says_so_and_its_blocks_come_later_and_in_order() {
    let faults = Faults { hold: true, reorder: Some(1), ..Faults::default() };
    let options = EndpointOptions { delivery: Delivery::InOrder, faults, ..EndpointOptions::default() };
    let pair = pair_with(options);
    assert_eq!(pair.a.info().delivery, Delivery::InOrder);
    let batch = pair.submit(0..8).unwrap();
    assert_eq!(pair.state(batch), BatchState::Done);
    for num_arrived in 0..8 {
        pair.a.settle(soon()).unwrap();
        assert_eq!(pair.arrived(), (0..num_arrived).collect::<Vec<_>>());
        assert!(pair.a.release_blocks(batch, 1) && !pair.a.abandon(batch));
    }
    pair.a.settle(soon()).unwrap();
    assert_eq!(pair.arrived().len(), 8);
}

#[test]
fn the_submit_that_was_told_to_fails_and_leaves_nothing_in_flight() {
    let pair = pair();
    pair.a.inject(|faults| faults.fail_submits = [1].into());
    let outcomes = [0..1, 1..2, 2..3].map(|range| pair.submit(range));
    let error = outcomes[1].clone().unwrap_err();
    assert!(matches!(error.problem, EngineProblem::Foreign { code: codes::IO, .. }), "{error}");
    assert_eq!(error.peer.as_deref(), Some("b"));
    pair.a.settle(soon()).unwrap();
    assert_eq!(pair.arrived(), [0, 2]);
    let counters = pair.a.counters();
    assert_eq!((counters.num_submits, counters.num_refused, counters.num_delivered), (3, 1, 2));
}

#[test]
fn the_batch_that_was_told_to_fails_after_its_blocks_and_the_next_goes_on() {
    let pair = pair();
    pair.a.inject(|faults| faults.fail_batches = [(0, 2)].into());
    let [failing, next] = [0..4, 4..6].map(|range| pair.submit(range).unwrap());
    pair.a.wait(next, soon()).unwrap();
    let error = pair.a.wait(failing, soon()).unwrap_err();
    assert!(matches!(error.problem, EngineProblem::Foreign { code: codes::IO, .. }), "{error}");
    assert_eq!(pair.arrived(), [0, 1, 4, 5]);
    assert_eq!(pair.a.poll(failing).unwrap_err().problem, EngineProblem::UnknownBatch);
    assert!(pair.a.abandon(failing));
}

#[test]
fn a_frozen_peer_is_reported_at_our_deadline_and_what_was_given_up_is_written_after_the_thaw() {
    let pair = pair();
    pair.b.freeze();
    let batch = pair.submit(0..2).unwrap();
    let error = pair.a.wait(batch, Deadline::after(Duration::from_millis(5))).unwrap_err();
    assert!(matches!(error.problem, EngineProblem::Deadline { .. }), "{error}");
    assert!(!pair.a.abandon(batch));
    assert_eq!((pair.arrived(), pair.a.undelivered()), (vec![], vec![batch]));
    pair.b.thaw();
    let deadline = soon();
    while pair.arrived().len() < 2 && !deadline.expired() {
        std::thread::yield_now();
    }
    assert_eq!(pair.arrived(), [0, 1]);
}

#[test]
fn a_frozen_endpoint_gives_up_nothing_for_sure_and_a_held_one_cancels() {
    let pair = pair();
    pair.a.freeze();
    let frozen = pair.submit(0..1).unwrap();
    assert!(!pair.a.abandon(frozen));
    pair.a.hold();
    pair.a.thaw();
    let held = pair.submit(1..2).unwrap();
    assert!(pair.a.abandon(held));
    pair.a.release_all();
    pair.a.settle(soon()).unwrap();
    assert_eq!(pair.arrived(), [0]);
}

#[test]
fn a_dead_peer_fails_what_is_in_flight_and_what_is_submitted() {
    let pair = pair();
    pair.a.hold();
    let batch = pair.submit(0..1).unwrap();
    pair.b.die();
    let lost = EngineProblem::PeerLost { code: codes::RESET };
    let error = pair.a.wait(batch, soon()).unwrap_err();
    assert_eq!((error.problem, error.peer.as_deref()), (lost.clone(), Some("b")));
    assert_eq!(pair.submit(1..2).unwrap_err().problem, lost);
    pair.a.release_all();
    pair.a.settle(soon()).unwrap();
    assert!(pair.arrived().is_empty());
}

#[test]
fn a_dead_endpoint_does_nothing_any_more() {
    let pair = pair();
    pair.a.hold();
    let batch = pair.submit(0..1).unwrap();
    pair.a.die();
    let calls = [
        pair.a.register(&pair.src).map(drop),
        pair.a.metadata().map(drop),
        pair.a.add_peer(&pair.b.metadata().unwrap()).map(drop),
        pair.a.remove_peer(pair.peer),
        pair.submit(0..1).map(drop),
        pair.a.poll(batch).map(drop),
    ];
    for call in calls {
        let error = call.unwrap_err();
        assert!(matches!(error.problem, EngineProblem::Unavailable { .. }), "{error}");
    }
    assert!(pair.a.abandon(batch) && pair.a.undelivered().is_empty());
}

#[test]
fn a_peer_that_refuses_is_lost_until_it_does_not() {
    let pair = pair();
    pair.b.inject(|faults| faults.refuse = true);
    let refused = EngineProblem::PeerLost { code: codes::REFUSED };
    assert_eq!(pair.submit(0..1).unwrap_err().problem, refused);
    pair.b.set_faults(Faults::default());
    pair.a.wait(pair.submit(0..1).unwrap(), soon()).unwrap();
}

#[test]
fn a_restarted_peer_is_another_and_old_ids_and_metadata_lead_nowhere() {
    let pair = pair();
    pair.a.hold();
    let (in_flight, old) = (pair.submit(0..1).unwrap(), pair.b.metadata().unwrap());
    let again = pair.fabric.endpoint("b").unwrap();
    again.register(&pair.dst).unwrap();
    let lost = EngineProblem::PeerLost { code: codes::RESET };
    assert_eq!(pair.a.wait(in_flight, soon()).unwrap_err().problem, lost);
    assert_eq!(pair.submit(0..1).unwrap_err().problem, lost);
    let peer = pair.a.add_peer(&again.metadata().unwrap()).unwrap();
    assert_eq!(pair.submit(0..1).unwrap_err().problem, EngineProblem::UnknownPeer);
    pair.a.release_all();
    pair.a.wait(pair.a.submit(peer, &[pair.block(3)]).unwrap(), soon()).unwrap();
    assert_eq!(pair.arrived(), [3]);
    let stale = pair.a.add_peer(&old).unwrap();
    assert_eq!(pair.a.submit(stale, &[pair.block(0)]).unwrap_err().problem, lost);
}

#[test]
fn metadata_of_another_fabric_or_damaged_ones_are_refused() {
    let pair = pair();
    let stranger = Fabric::new().endpoint("b").unwrap().metadata().unwrap();
    let mut damaged = pair.b.metadata().unwrap();
    damaged[12] ^= 4;
    for metadata in [stranger, damaged, Vec::new()] {
        let bytes = metadata.len();
        assert_eq!(pair.a.add_peer(&metadata).unwrap_err().problem, EngineProblem::BadMetadata { bytes });
    }
}

#[test]
fn memory_registered_after_the_metadata_were_taken_is_unknown_to_the_peer() {
    let pair = pair();
    let later = CpuDevice.alloc(64).unwrap();
    pair.b.register(&later).unwrap();
    let block = Block { dst: later.addr(), ..pair.block(0) };
    let refused = EngineProblem::Refused { addr: later.addr(), bytes: 8, code: codes::FAULT };
    assert_eq!(pair.a.submit(pair.peer, &[block]).unwrap_err().problem, refused);
    let peer = pair.a.add_peer(&pair.b.metadata().unwrap()).unwrap();
    pair.a.wait(pair.a.submit(peer, &[block]).unwrap(), soon()).unwrap();
}

#[test]
fn memory_that_the_host_does_not_reach_is_refused() {
    let options = EndpointOptions { memory: MemoryKind::Cuda, ..EndpointOptions::default() };
    let endpoint = Fabric::new().endpoint_with("gpu", options).unwrap();
    let error = endpoint.register(&CpuDevice.alloc(8).unwrap()).unwrap_err();
    assert_eq!(error.problem, EngineProblem::MemoryKind { kind: "cuda" });
}

#[test]
fn submits_are_logged_with_what_was_asked_when_and_what_became_of_it() {
    let pair = pair();
    let before = pair.fabric.tick();
    let batch = pair.submit(0..2).unwrap();
    let between = pair.fabric.tick();
    pair.a.submit(PeerId(9), &[]).unwrap_err();
    let log = pair.a.submits();
    assert_eq!(log.len(), 2);
    assert!(before < log[0].tick && log[0].tick < between && between < log[1].tick);
    assert_eq!((&*log[0].peer, &log[0].blocks), ("b", &vec![pair.block(0), pair.block(1)]));
    assert_eq!((&log[0].outcome, &log[1].outcome), (&Ok(batch), &Err(EngineProblem::UnknownPeer)));
}

#[test]
fn an_epoch_word_is_never_seen_before_the_bytes_that_stand_before_it() {
    const PAYLOAD_BYTES: u64 = 1016;
    let pair = pair();
    let blocks = [
        Block { bytes: PAYLOAD_BYTES - 3, ..pair.block(0) },
        Block { src: pair.src.addr(), dst: pair.dst.addr() + PAYLOAD_BYTES - 3, bytes: 3 },
        pair.block(PAYLOAD_BYTES / 8),
    ];
    let word = pair.word(PAYLOAD_BYTES / 8);
    for _ in 0..200 {
        CpuDevice.write(&[0; 1024], &pair.dst).unwrap();
        let batch = pair.a.submit(pair.peer, &blocks).unwrap();
        let deadline = soon();
        // Acquire: pairs with the Release store of the delivery thread.
        while word.load(Ordering::Acquire) == 0 && !deadline.expired() {
            std::hint::spin_loop();
        }
        let mut bytes = [0; 1024];
        CpuDevice.read(&pair.dst, &mut bytes).unwrap();
        assert_eq!(bytes, [9; 1024]);
        pair.a.wait(batch, soon()).unwrap();
    }
}

#[test]
fn dropping_an_endpoint_ends_its_thread_and_what_it_had_in_flight() {
    let Pair { a, b, src, dst, peer, .. } = pair();
    a.freeze();
    a.submit(peer, &[Block { src: src.addr(), dst: dst.addr(), bytes: 8 }]).unwrap();
    let (deadline, memory) = (Deadline::after(Duration::from_secs(10)), dst.keep());
    drop((a, dst));
    assert!(!deadline.expired());
    // The peer's registration, and `memory` itself: nothing of the dropped endpoint holds it.
    assert_eq!(Arc::strong_count(&memory), 2);
    drop(b);
    assert_eq!(Arc::strong_count(&memory), 1);
}

#[test]
fn a_batch_in_flight_keeps_memory_alive_that_was_unregistered_and_freed() {
    let pair = pair();
    pair.a.hold();
    let memory = CpuDevice.alloc(64).unwrap();
    CpuDevice.write(&[9; 64], &memory).unwrap();
    let registration = pair.a.register(&memory).unwrap();
    let block = Block { src: memory.addr(), ..pair.block(5) };
    let batch = pair.a.submit(pair.peer, &[block]).unwrap();
    pair.a.unregister(registration).unwrap();
    drop(memory);
    pair.a.release(1);
    pair.a.wait(batch, soon()).unwrap();
    assert_eq!(pair.arrived(), [5]);
}
