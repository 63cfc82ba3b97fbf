//! Requests that are finished by polls: the same end as by a wait, and a caller that is never kept.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/one_request.rs"]
mod one_request;
#[path = "support/polled.rs"]
mod polled;
#[path = "support/transfer.rs"]
mod transfer;
#[path = "support/watched.rs"]
mod watched;

use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use cpkv::transfer::record::WORD_BYTES;
use cpkv::transfer::{
    AuxBlock, Cause, Load, ManagerOptions, Payload, Quiet, RequestId, Sent, TransferError, TransferManager,
};
use cpkv::units::PageId;
use one_request::{ID, one_request};
use polled::polled;
use transfer::{FOREVER, LONG, Making, SMALL, Shape, World, until};
use watched::{hand_in, kept, within};

const ONE: Shape = Shape { ranks: 1, workers: 1, ..SMALL };

/// A request whose forward has ended, with every layer but the last handed in.
fn computed(world: &World) -> (cpkv::transfer::Offer, Vec<PageId>) {
    let (offer, current) = one_request(world, 6);
    world.write_all(&current, 1);
    for rank in &world.ranks {
        for layer in 0..world.shape.layers - 1 {
            rank.manager.on_layer_end(layer).unwrap();
        }
        rank.manager.end_forward().unwrap();
    }
    (offer, current)
}

/// The answer to polls of the request.
fn answer(manager: &TransferManager) -> Result<Sent, TransferError> {
    polled(manager, ID)
}

#[test]
fn a_polled_request_ends_as_one_that_is_waited_for() {
    for num_threads in [0, 1, 2] {
        let options = ManagerOptions { num_threads, min_prompt_tokens: 0, ..ManagerOptions::default() };
        let world = World::with(SMALL, |_| Making { options: options.clone(), ..Making::default() });
        let (offer, current) = computed(&world);
        // Nothing of a forward that the stream has not come to is there.
        assert!(world.ranks.iter().all(|rank| rank.manager.poll_finish(ID, &[]).is_pending()));
        world.ranks.iter().for_each(|rank| rank.stream.fire_all());
        let mut num_pages = 0;
        for rank in &world.ranks {
            let sent = answer(&rank.manager).unwrap();
            assert_eq!(answer(&rank.manager), Ok(sent), "another answer the second time");
            assert_eq!(rank.manager.finish(ID, &[], Duration::ZERO), Ok(sent));
            num_pages += sent.num_pages;
            assert_eq!(rank.manager.drop_request(ID, LONG), Ok(Quiet::Confirmed));
        }
        assert_eq!(num_pages, world.num_pairs(&offer, 0, &current));
        world.expect(&offer, 0, &current, |_| 1);
        assert!(world.is_complete(&offer));
    }
}

#[test]
fn a_finish_carries_out_what_a_poll_began() {
    let world = World::new(ONE);
    let (offer, current) = computed(&world);
    let rank = &world.ranks[0];
    assert!(rank.manager.poll_finish(ID, &[]).is_pending());
    let error = rank.manager.finish(ID, &[], Duration::ZERO).unwrap_err();
    assert!(matches!(*error.cause, Cause::Deadline { .. }), "{error}");
    assert!(rank.manager.failure(ID).is_none(), "a wait that gave up failed what is polled");
    rank.stream.fire_all();
    let sent = rank.manager.finish(ID, &[], LONG).unwrap();
    assert_eq!(sent.num_pages, world.num_pairs(&offer, 0, &current));
    assert!(world.is_complete(&offer));
    assert_eq!(answer(&rank.manager), Ok(sent));
}

#[test]
fn a_poll_before_the_end_of_the_forward_is_refused_and_does_nothing() {
    let world = World::new(ONE);
    let (offer, current) = one_request(&world, 6);
    let manager = &world.ranks[0].manager;
    let Poll::Ready(Err(error)) = manager.poll_finish(ID, &[]) else { panic!("not refused") };
    assert!(matches!(*error.cause, Cause::ForwardOpen), "{error}");
    let Poll::Ready(Err(error)) = manager.poll_finish(RequestId(8), &[]) else { panic!("not refused") };
    assert!(matches!(*error.cause, Cause::NotRegistered), "{error}");
    world.write_all(&current, 1);
    manager.end_forward().unwrap();
    let aux = AuxBlock { worker: 1, block: cpkv::transfer::Block { src: 0, dst: 0, bytes: 8 } };
    let Poll::Ready(Err(error)) = manager.poll_finish(ID, &[aux]) else { panic!("not refused") };
    assert!(matches!(*error.cause, Cause::AuxWorker { worker: 1, num_workers: 1 }), "{error}");
    world.ranks[0].stream.fire_all();
    let sent = answer(manager).unwrap();
    world.expect(&offer, 0, &current, |_| 1);
    assert_eq!(
        manager.poll_finish(ID, &[aux]),
        Poll::Ready(Ok(sent)),
        "aux of a later call is not looked at"
    );
}

#[test]
fn a_polled_request_over_a_frozen_engine_fails_at_the_batchs_deadline() {
    let world = World::new(ONE);
    let rank = &world.ranks[0];
    rank.engine.freeze();
    let (offer, _) = computed(&world);
    rank.stream.fire_all();
    until("every layer is with the engine", || {
        assert!(rank.manager.poll_finish(ID, &[]).is_pending());
        rank.manager.progress(ID).unwrap().num_batches == 3
    });
    assert!(!rank.manager.progress(ID).unwrap().is_caught_up);
    let submits = rank.engine.submits();
    let blocks = submits.iter().flat_map(|submit| &submit.blocks);
    // Without the epoch word behind each batch.
    let bytes = blocks.map(|block| block.bytes).sum::<u64>() - 3 * WORD_BYTES;
    assert_eq!(rank.manager.load(), Load { num_requests: 1, num_queued: 0, num_batches: 3, bytes });
    world.clock.advance(Duration::from_secs(31));
    let error = answer(&rank.manager).unwrap_err();
    assert!(matches!(*error.cause, Cause::TransferTimeout { payload: Payload::Layer(_), .. }), "{error}");
    assert!(world.records(&offer).is_empty());
}

#[test]
fn a_request_is_caught_up_once_all_that_was_handed_in_is_complete() {
    let world = World::new(ONE);
    let rank = &world.ranks[0];
    let (_, current) = one_request(&world, 6);
    world.write_all(&current, 1);
    let is_caught_up = || rank.manager.progress(ID).unwrap().is_caught_up;
    assert!(is_caught_up(), "nothing was handed in");
    rank.manager.on_layer_end(0).unwrap();
    assert_eq!(rank.manager.load().num_queued, 1);
    assert!(!is_caught_up());
    rank.engine.hold();
    rank.stream.fire_all();
    until("a submit", || rank.manager.progress(ID).unwrap().num_batches == 1);
    assert!(!is_caught_up());
    rank.engine.release_all();
    until("it is complete", is_caught_up);
    assert_eq!(rank.manager.load(), Load { num_requests: 1, ..Load::default() });
}

/// Only the caller is left to look at deadlines, and he comes rarely.
#[test]
fn a_polled_request_fails_in_time_although_the_engine_keeps_every_worker() {
    let world = World::new(ONE);
    let (manager, leave) = kept(&world, within(Duration::from_millis(30)), 0..1);
    let begun = Instant::now();
    let error = loop {
        if let Poll::Ready(answer) = manager.poll_finish(RequestId(0), &[]) {
            break answer.unwrap_err();
        }
        assert!(begun.elapsed() < LONG, "never ready");
        thread::sleep(Duration::from_millis(25));
    };
    drop(leave);
    assert!(matches!(*error.cause, Cause::TransferTimeout { payload: Payload::Layer(0), .. }), "{error}");
}

/// Nobody asks for what was not sent yet either.
#[test]
fn requests_that_no_thread_comes_to_send_fail_in_time_however_rarely_they_are_polled() {
    let world = World::new(ONE);
    let event_timeout = Duration::from_millis(300);
    let options = ManagerOptions { event_timeout, ..within(Duration::from_millis(30)) };
    let (manager, leave) = kept(&world, options, 0..1);
    hand_in(&world, &manager, 1..2);
    manager.end_forward().unwrap();
    world.ranks[0].stream.fire_all();
    assert_eq!((manager.load().num_requests, manager.load().num_batches), (2, 1));
    let mut answers = [None, None];
    let begun = Instant::now();
    while answers.contains(&None) {
        assert!(begun.elapsed() < LONG / 2, "never ready: {answers:?}");
        for (id, answer) in (0..).map(RequestId).zip(&mut answers) {
            if let Poll::Ready(Err(error)) = manager.poll_finish(id, &[]) {
                *answer = Some(*error.cause);
            }
        }
        thread::sleep(Duration::from_millis(250));
    }
    drop(leave);
    let [Some(first), Some(second)] = answers else { panic!("{answers:?}") };
    assert!(matches!(first, Cause::TransferTimeout { payload: Payload::Layer(0), .. }), "{first}");
    assert!(matches!(second, Cause::NoThread { payload: Payload::Layer(0), .. }), "{second}");
}

#[test]
fn a_polled_request_that_is_dropped_says_so_and_leaves_its_number_to_the_next() {
    let world = World::new(ONE);
    let rank = &world.ranks[0];
    rank.engine.hold();
    computed(&world);
    assert!(rank.manager.poll_finish(ID, &[]).is_pending());
    rank.stream.fire_all();
    until("a submit", || !rank.engine.submits().is_empty());
    let quiet = rank.manager.drop_request(ID, Duration::ZERO).unwrap();
    assert!(matches!(quiet, Quiet::Quarantined { .. }), "{quiet:?}");
    let error = answer(&rank.manager).unwrap_err();
    assert!(matches!(*error.cause, Cause::Dropped), "{error}");
    rank.engine.inject(|faults| faults.hold = false);
    rank.engine.release_all();
    assert_eq!(rank.manager.drop_request(ID, LONG), Ok(Quiet::Confirmed));
    let (offer, current) = computed(&world);
    rank.stream.fire_all();
    assert_eq!(answer(&rank.manager).unwrap().num_pages, world.num_pairs(&offer, 0, &current));
}

#[test]
fn many_callers_that_poll_and_wait_get_one_answer() {
    for _ in 0..20 {
        let world = World::new(ONE);
        let (offer, _) = computed(&world);
        let rank = &world.ranks[0];
        let answers: Vec<_> = thread::scope(|scope| {
            let polling = [(); 2].map(|()| scope.spawn(|| answer(&rank.manager)));
            let waiting = scope.spawn(|| rank.manager.finish(ID, &[], FOREVER));
            rank.stream.fire_all();
            until("all that is queued fires", || {
                rank.stream.fire_all();
                waiting.is_finished()
            });
            polling.into_iter().chain([waiting]).map(|caller| caller.join().unwrap()).collect()
        });
        assert_eq!(answers[0].as_ref().unwrap().num_pages, 18);
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        assert!(world.is_complete(&offer));
        assert_eq!(rank.engine.submits().len(), 3 + 1, "three layers and a record");
    }
}
