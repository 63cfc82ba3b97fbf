//! Deadlines, and the end of a manager, over engines that keep the threads that call them, or panic.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/transfer.rs"]
mod transfer;
#[path = "support/watched.rs"]
mod watched;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cpkv::deadline::Deadline;
use cpkv::device::CpuDevice;
use cpkv::transfer::{Cause, ManagerOptions, Payload, Quiet, RequestId};
use transfer::{LONG, Shape, World, pages, until};
use watched::{Call, Watched, blocked, hand_in, kept, manager, manager_on, within};

const ONE: Shape = Shape { ranks: 1, workers: 1, layers: 3, prefill_pages: 24, decode_pages: 48 };

#[test]
fn a_batch_is_late_at_its_own_deadline_although_the_engine_keeps_every_worker() {
    let world = World::new(ONE);
    let (manager, leave) = kept(&world, within(Duration::from_millis(30)), 0..1);
    let error = manager.finish(RequestId(0), &[], LONG).unwrap_err();
    assert!(
        matches!(*error.cause, Cause::TransferTimeout { payload: Payload::Layer(0), worker: 0, .. }),
        "{error}"
    );
    let quiet = manager.drop_request(RequestId(0), Duration::ZERO).unwrap();
    assert!(matches!(quiet, Quiet::Quarantined { num_batches: 1, .. }), "{quiet:?}");
    leave.send(()).unwrap();
    assert_eq!(manager.drop_request(RequestId(0), LONG).unwrap(), Quiet::Confirmed);
}

/// An engine keeps the only thread in a submit of another request while everything of this one arrives in time.
#[test]
fn what_was_done_in_time_is_not_late_because_nobody_could_ask() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let world = World::new(ONE);
    let rank = &world.ranks[0];
    let num_submits = AtomicU64::new(0);
    let (inner, clock) = (Arc::clone(&rank.engine), Arc::clone(&world.clock));
    let before = move |call: Call<'_>| {
        if matches!(call, Call::Submit(_)) && num_submits.fetch_add(1, Ordering::Relaxed) == 1 {
            until("the first batch is delivered", || inner.counters().num_delivered == 1);
            clock.advance(3 * TIMEOUT);
        }
        Ok(())
    };
    rank.engine.hold();
    let engine = Arc::new(Watched { inner: Arc::clone(&rank.engine), before });
    let options = ManagerOptions { clock: Arc::clone(&world.clock) as _, ..within(TIMEOUT) };
    let manager = manager_on(&world, engine, Arc::new(CpuDevice), options);
    let offers = hand_in(&world, &manager, 0..1);
    until("its layer", || rank.engine.submits().len() == 1);
    manager.end_forward().unwrap();
    rank.stream.fire_all();
    hand_in(&world, &manager, 1..2);
    rank.engine.inject(|faults| faults.hold = false);
    rank.engine.release_all();
    rank.engine.settle(Deadline::after(LONG)).unwrap();
    // A caller that waits takes a worker that is late itself for one that the engine keeps.
    until("its layer is known to be sent", || {
        manager.progress(offers[0].request).is_none_or(|progress| progress.in_flight == 0)
    });
    let sent = manager.finish(offers[0].request, &[], LONG).unwrap();
    assert_eq!(sent.num_pages, 6);
    world.expect(&offers[0], 0, &pages(0, 2), |_| 1);
}

#[test]
fn a_batch_is_late_although_other_callers_ask_for_something_all_the_time() {
    let world = World::new(ONE);
    let (manager, leave) = kept(&world, within(Duration::from_millis(30)), 0..2);
    let stop = AtomicBool::new(false);
    let error = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = manager.drop_request(RequestId(1), Duration::ZERO);
                    let _ = manager.finish(RequestId(1), &[], Duration::ZERO);
                }
            });
        }
        let error = manager.finish(RequestId(0), &[], Duration::from_secs(30)).unwrap_err();
        stop.store(true, Ordering::Relaxed);
        error
    });
    drop(leave);
    assert!(matches!(*error.cause, Cause::TransferTimeout { worker: 0, .. }), "{error}");
}

#[test]
fn an_engine_that_panics_fails_the_request_and_the_next_one_goes() {
    for in_poll in [false, true] {
        let world = World::new(ONE);
        let rank = &world.ranks[0];
        let has_panicked = AtomicBool::new(false);
        let before = move |call: Call<'_>| {
            let is_it = matches!(call, Call::Poll) == in_poll;
            assert!(!is_it || has_panicked.swap(true, Ordering::Relaxed), "no luck");
            Ok(())
        };
        let manager = manager(&world, Arc::new(Watched { inner: Arc::clone(&rank.engine), before }));
        hand_in(&world, &manager, 0..1);
        manager.end_forward().unwrap();
        let error = manager.finish(RequestId(0), &[], LONG).unwrap_err();
        assert!(error.to_string().contains("the engine panicked: no luck"), "{error}");
        // Nobody knows what became of the batch.
        let quiet = manager.drop_request(RequestId(0), LONG).unwrap();
        assert_eq!(quiet, Quiet::Quarantined { pages: pages(0, 2), num_batches: 1 });
        manager.confirm_quiet(RequestId(0)).unwrap();
        assert_eq!(manager.drop_request(RequestId(0), LONG), Ok(Quiet::Confirmed));
        let next = hand_in(&world, &manager, 1..2);
        manager.end_forward().unwrap();
        rank.stream.fire_all();
        thread::scope(|scope| {
            let finishing = scope.spawn(|| manager.finish(RequestId(1), &[], LONG));
            until("it ends", || {
                rank.stream.fire_all();
                finishing.is_finished()
            });
            assert_eq!(finishing.join().unwrap().unwrap().num_pages, 6);
        });
        world.expect(&next[0], 0, &pages(2, 2), |_| 1);
    }
}

#[test]
fn a_manager_is_closed_within_its_time_although_the_engine_keeps_the_worker() {
    let world = World::new(ONE);
    let (engine, has_entered, leave) =
        blocked(&world.ranks[0].engine, |call| matches!(call, Call::Submit(_)));
    let manager = manager(&world, engine);
    hand_in(&world, &manager, 0..1);
    has_entered.recv_timeout(LONG).unwrap();
    let begun = Instant::now();
    let left = manager.close(Duration::from_millis(100));
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    assert!(
        matches!(&left[..], [(RequestId(0), Quiet::Quarantined { pages, .. })] if pages.len() == 2),
        "{left:?}"
    );
    drop(leave);
}

/// An engine that another manager's thread is stuck in may answer nobody.
#[test]
fn a_manager_is_closed_within_its_time_although_the_engine_does_not_forget_its_memory() {
    let world = World::new(ONE);
    let (engine, has_entered, leave) =
        blocked(&world.ranks[0].engine, |call| matches!(call, Call::Unregister));
    let manager = manager(&world, engine);
    let begun = Instant::now();
    assert_eq!(manager.close(Duration::from_millis(100)), []);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    has_entered.recv_timeout(LONG).unwrap();
    drop(leave);
}

#[test]
fn a_manager_that_ends_while_a_worker_asks_the_engine_does_not_leave_the_worker_behind() {
    let world = World::new(ONE);
    world.ranks[0].engine.hold();
    let (engine, has_entered, leave) = blocked(&world.ranks[0].engine, |call| matches!(call, Call::Poll));
    let kept = Arc::downgrade(&engine);
    let manager = manager(&world, engine);
    hand_in(&world, &manager, 0..1);
    has_entered.recv_timeout(LONG).unwrap();
    // The worker comes back to a manager without requests.
    assert!(matches!(manager.drop_request(RequestId(0), Duration::ZERO), Ok(Quiet::Quarantined { .. })));
    manager.confirm_quiet(RequestId(0)).unwrap();
    assert_eq!(manager.drop_request(RequestId(0), LONG), Ok(Quiet::Confirmed));
    let ending = thread::spawn(|| drop(manager));
    // It has told the workers, and waits for them.
    thread::sleep(Duration::from_millis(50));
    drop(leave);
    ending.join().unwrap();
    assert_eq!(kept.strong_count(), 0, "a worker that does not end keeps the engine");
}
