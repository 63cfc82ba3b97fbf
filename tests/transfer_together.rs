//! Requests that share batches, and engines that take their time in a submit.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/transfer.rs"]
mod transfer;
#[path = "support/watched.rs"]
mod watched;

use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use cpkv::device::{CpuDevice, Device, DeviceBuffer, DeviceError, MemoryKind, Stream};
use cpkv::transfer::record::RECORD_BYTES;
use cpkv::transfer::{
    Block, Cause, Delivery, EndpointOptions, EngineError, EngineProblem, ManagerOptions, Payload, Quiet,
    RequestId, RequestRun, TransferManager,
};
use transfer::{LONG, Making, Shape, World, pages, until};
use watched::{Call, Watched, blocked, hand_in, manager, manager_on, within};

const ONE: Shape = Shape { ranks: 1, workers: 1, layers: 3, prefill_pages: 24, decode_pages: 48 };

/// The CPU, whose writes of a record wait until the test lets them go.
struct SlowDevice {
    entered: mpsc::Sender<()>,
    may_leave: Mutex<mpsc::Receiver<()>>,
}

impl Device for SlowDevice {
    fn name(&self) -> String {
        CpuDevice.name()
    }

    fn memory(&self) -> MemoryKind {
        CpuDevice.memory()
    }

    fn alloc(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
        CpuDevice.alloc(bytes)
    }

    fn alloc_host(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
        CpuDevice.alloc_host(bytes)
    }

    fn write(&self, bytes: &[u8], dst: &DeviceBuffer) -> Result<(), DeviceError> {
        if bytes.len() as u64 == RECORD_BYTES {
            let _ = self.entered.send(());
            let _ = self.may_leave.lock().unwrap().recv();
        }
        CpuDevice.write(bytes, dst)
    }

    fn read(&self, src: &DeviceBuffer, dst: &mut [u8]) -> Result<(), DeviceError> {
        CpuDevice.read(src, dst)
    }

    fn stream(&self) -> Result<Arc<dyn Stream>, DeviceError> {
        CpuDevice.stream()
    }
}

#[test]
fn a_request_dropped_while_its_first_batch_is_taken_is_not_quiet_where_bytes_come_late() {
    let endpoint = EndpointOptions { delivery: Delivery::InOrder, ..EndpointOptions::default() };
    let world = World::with(ONE, |_| Making { endpoint: endpoint.clone(), ..Making::default() });
    let (engine, has_entered, leave) =
        blocked(&world.ranks[0].engine, |call| matches!(call, Call::Submit(_)));
    let manager = manager(&world, engine);
    hand_in(&world, &manager, 0..1);
    has_entered.recv_timeout(LONG).unwrap();
    let quiet = manager.drop_request(RequestId(0), Duration::ZERO).unwrap();
    assert!(matches!(quiet, Quiet::Quarantined { num_batches: 1, .. }), "{quiet:?}");
    leave.send(()).unwrap();
    until("the engine has it, and says that it is done", || {
        manager.progress(RequestId(0)).unwrap().in_flight == 0
    });
    let quiet = manager.drop_request(RequestId(0), LONG).unwrap();
    assert!(matches!(&quiet, Quiet::Quarantined { pages, num_batches: 1 } if pages.len() == 2), "{quiet:?}");
    manager.confirm_quiet(RequestId(0)).unwrap();
    assert_eq!(manager.drop_request(RequestId(0), LONG), Ok(Quiet::Confirmed));
}

#[test]
fn what_is_dropped_while_a_refused_batch_is_sent_apart_is_not_sent() {
    let world = World::new(ONE);
    let buffer = world.workers[0].pool.layers[0][0];
    let goes_to = move |request: u64, block: &Block| {
        let start = buffer.addr + 2 * request * buffer.page_bytes;
        (start..start + 2 * buffer.page_bytes).contains(&block.dst)
    };
    let late: Arc<OnceLock<TransferManager>> = Arc::default();
    let dropped: Arc<OnceLock<u64>> = Arc::default();
    let (to_drop, victim) = (Arc::clone(&late), Arc::clone(&dropped));
    let before = move |call: Call<'_>| {
        let Call::Submit(blocks) = call else { return Ok(()) };
        if blocks.len() > 3 {
            let problem = EngineProblem::Refused { addr: 0, bytes: 0, code: 7 };
            return Err(EngineError::new("watched", "submit", problem));
        }
        // The first that goes alone: another one, which waits for its turn, is dropped.
        until("the manager is there", || to_drop.get().is_some());
        victim.get_or_init(|| {
            let other = u64::from(blocks.iter().any(|block| goes_to(0, block)));
            let _ = to_drop.get().unwrap().drop_request(RequestId(other), Duration::ZERO);
            other
        });
        Ok(())
    };
    let engine = Arc::new(Watched { inner: Arc::clone(&world.ranks[0].engine), before });
    let manager = late.get_or_init(|| manager(&world, engine));
    let offers = hand_in(&world, manager, 0..3);
    until("one is dropped", || dropped.get().is_some());
    let victim = *dropped.get().unwrap();
    let others = offers.iter().filter(|offer| offer.request.0 != victim);
    for offer in others {
        until("the others are sent", || manager.progress(offer.request).unwrap().sent == 2);
    }
    let submits = world.ranks[0].engine.submits();
    assert_eq!(submits.len(), 2);
    assert!(submits.iter().flat_map(|submit| &submit.blocks).all(|block| !goes_to(victim, block)));
    world.expect_untouched(&offers[victim as usize], 0);
}

#[test]
fn a_batch_that_fails_on_its_way_fails_its_requests_and_each_keeps_its_own_pages() {
    let world = World::new(ONE);
    let rank = &world.ranks[0];
    rank.engine.inject(|faults| faults.fail_batches.extend([(0, 1)]));
    let offers = {
        let manager = manager(&world, Arc::clone(&rank.engine) as _);
        let offers = hand_in(&world, &manager, 0..2);
        until("both failed", || offers.iter().all(|offer| manager.failure(offer.request).is_some()));
        for (at, offer) in (0..).zip(&offers) {
            let quiet = manager.drop_request(offer.request, LONG).unwrap();
            assert_eq!(quiet, Quiet::Quarantined { pages: pages(2 * at, 2), num_batches: 1 });
        }
        // What one of them confirms is not confirmed for the other.
        manager.confirm_quiet(offers[0].request).unwrap();
        assert_eq!(manager.drop_request(offers[0].request, LONG), Ok(Quiet::Confirmed));
        assert_eq!(manager.quarantined().len(), 1);
        offers
    };
    assert!(offers.iter().all(|offer| world.records(offer).is_empty()));
}

#[test]
fn a_request_dropped_while_its_record_is_written_keeps_its_outbox_until_that_is_posted() {
    let world = World::new(ONE);
    let (entered, has_entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel();
    let device = Arc::new(SlowDevice { entered, may_leave: Mutex::new(may_leave) });
    let manager = manager_on(&world, Arc::clone(&world.ranks[0].engine) as _, device, within(LONG));
    hand_in(&world, &manager, 0..1);
    manager.end_forward().unwrap();
    world.ranks[0].stream.fire_all();
    thread::scope(|scope| {
        let finishing = scope.spawn(|| manager.finish(RequestId(0), &[], LONG));
        has_entered.recv_timeout(LONG).unwrap();
        let quiet = manager.drop_request(RequestId(0), Duration::ZERO).unwrap();
        assert!(matches!(quiet, Quiet::Quarantined { num_batches: 1, .. }), "{quiet:?}");
        assert!(manager.confirm_quiet(RequestId(0)).is_err());
        let error = finishing.join().unwrap().unwrap_err();
        assert!(matches!(*error.cause, Cause::Dropped), "{error}");
        leave.send(()).unwrap();
    });
    assert_eq!(manager.drop_request(RequestId(0), LONG), Ok(Quiet::Confirmed));
}

#[test]
fn a_part_whose_request_failed_with_another_part_is_not_submitted() {
    let options = ManagerOptions { num_threads: 0, min_prompt_tokens: u32::MAX, ..ManagerOptions::default() };
    let world = World::with(ONE, |_| Making { options: options.clone(), ..Making::default() });
    let rank = &world.ranks[0];
    let offer = world.offer(0, 4, 0, &[]);
    world.register(&offer, &RequestRun { first: 0, pages: pages(0, 2) });
    world.open(0, 2, &pages(2, 2));
    world.write_all(&pages(0, 4), 1);
    rank.manager.end_forward().unwrap();
    rank.stream.fire_all();
    // The batch of both parts, then the first part alone.
    rank.engine.inject(|faults| faults.fail_submits.extend([0, 1]));
    let error = rank.manager.finish(offer.request, &[], LONG).unwrap_err();
    assert!(matches!(*error.cause, Cause::Submit { payload: Payload::Layer(0), .. }), "{error}");
    assert_eq!(rank.engine.submits().len(), 2);
}
