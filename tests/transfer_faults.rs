//! Staged faults of the transfer: engines that freeze, peers that refuse, die or come back, requests that are dropped with
//! writes in flight. Never a false "done", never a page that is reused under a write, never a hang.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/transfer.rs"]
mod transfer;

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use cpkv::deadline::Deadline;
use cpkv::transfer::{
    Cause, Delivery, EndpointOptions, EngineProblem, ManagerOptions, Offer, Payload, Quiet, RequestId,
    RequestRun, RequestSpec, TransferError,
};
use cpkv::units::PageId;
use transfer::{FOREVER, LONG, Making, SMALL, Shape, Worker, World, pages, until};

const ID: RequestId = RequestId(7);
const NO_PREFIX: RequestRun = RequestRun { first: 0, pages: Vec::new() };
/// One rank and one worker: a batch a layer.
const PAIR: Shape = Shape { ranks: 1, workers: 1, layers: 4, ..SMALL };

/// A request of `num` pages, all computed; `hooks` layers are handed in and their events have fired.
fn computed(world: &World, request: u64, first_page: i32, num: i32, hooks: usize) -> (Offer, Vec<PageId>) {
    let current = pages(first_page, num);
    let offer = world.offer(request, num as u32, first_page as u32, &[]);
    world.register(&offer, &NO_PREFIX);
    world.open(request, 0, &current);
    world.write_all(&current, 1);
    for rank in &world.ranks {
        for layer in 0..hooks {
            rank.manager.on_layer_end(layer).unwrap();
        }
        rank.manager.end_forward().unwrap();
        rank.stream.fire_all();
    }
    (offer, current)
}

fn fails(world: &World, offer: &Offer) -> TransferError {
    let error = world.ranks[0].manager.finish(offer.request, &[], FOREVER).unwrap_err();
    assert!(world.records(offer).is_empty(), "a record of a transfer that failed");
    let again = world.ranks[0].manager.finish(offer.request, &[], FOREVER).unwrap_err();
    assert_eq!(again, error, "another answer the second time");
    error
}

/// Moves the clock on until `done`.
fn pass_time<T: Send>(world: &World, body: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let running = scope.spawn(body);
        let begun = Instant::now();
        while !running.is_finished() {
            world.clock.advance(Duration::from_millis(500));
            thread::sleep(Duration::from_micros(300));
            assert!(begun.elapsed() < LONG, "a hang");
        }
        running.join().unwrap()
    })
}

#[test]
fn a_frozen_worker_is_reported_at_our_deadline_and_its_pages_stay_quarantined_until_it_is_done() {
    let world = World::new(PAIR);
    world.workers[0].engine.freeze();
    let (offer, current) = computed(&world, ID.0, 3, 5, 4);
    until("its layers", || world.ranks[0].engine.submits().len() == 4);
    let manager = &world.ranks[0].manager;
    let error = pass_time(&world, || fails(&world, &offer));
    let cause = &*error.cause;
    assert!(matches!(cause, Cause::TransferTimeout { payload: Payload::Layer(_), worker: 0, .. }), "{error}");
    let quiet = pass_time(&world, || manager.drop_request(ID, Duration::from_secs(10)).unwrap());
    assert!(
        matches!(&quiet, Quiet::Quarantined { pages, num_batches: 1.. } if *pages == current),
        "{quiet:?}"
    );
    assert_eq!(manager.quarantined(), [(ID, quiet)]);
    // It writes yet: that is what the quarantine is for.
    world.workers[0].engine.thaw();
    assert_eq!(manager.drop_request(ID, LONG).unwrap(), Quiet::Confirmed);
    world.expect(&offer, 0, &current, |_| 1);
    assert!(manager.quarantined().is_empty() && !manager.has_request(ID));
    assert!(!world.is_complete(&offer));
}

#[test]
fn a_peer_that_refuses_fails_the_request_and_the_next_one_succeeds() {
    let world = World::new(PAIR);
    world.workers[0].engine.inject(|faults| faults.refuse = true);
    let (offer, _) = computed(&world, ID.0, 3, 5, 4);
    let error = fails(&world, &offer);
    assert!(matches!(&*error.cause, Cause::Submit { source, .. }
        if matches!(source.problem, EngineProblem::PeerLost { .. }) && source.peer.as_deref() == Some("worker 0")));
    assert_eq!(world.ranks[0].manager.drop_request(ID, LONG).unwrap(), Quiet::Confirmed, "nothing was sent");
    world.workers[0].engine.inject(|faults| faults.refuse = false);
    let (offer, current) = computed(&world, 8, 10, 5, 2);
    world.ranks[0].manager.finish(offer.request, &[], LONG).unwrap();
    world.expect(&offer, 0, &current, |_| 1);
    assert!(world.is_complete(&offer));
}

#[test]
fn a_peer_killed_before_the_first_write_fails_the_request_at_once() {
    let world = World::new(PAIR);
    let decode = world.decode(0);
    world.workers[0].engine.die();
    drop(decode);
    let begun = Instant::now();
    let (offer, _) = computed(&world, ID.0, 3, 5, 4);
    let error = fails(&world, &offer);
    assert!(matches!(&*error.cause, Cause::Submit { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(20), "no deadline was needed");
}

#[test]
fn a_peer_killed_in_the_middle_fails_the_request_and_restarted_takes_the_next() {
    let mut world = World::new(PAIR);
    let rank = &world.ranks[0];
    rank.engine.hold();
    let (offer, current) = computed(&world, ID.0, 3, 5, 4);
    until("four batches", || world.ranks[0].engine.submits().len() == 4);
    rank.engine.release(1);
    until("one is done", || world.ranks[0].manager.progress(ID).unwrap().sent > 0);
    world.workers[0].engine.die();
    rank.engine.release_all();
    let error = fails(&world, &offer);
    assert!(matches!(&*error.cause, Cause::Transfer { .. }), "{error}");
    let progress = rank.manager.progress(ID).unwrap();
    assert!(progress.sent >= 5 && progress.unknown > 0 && progress.in_flight == 0, "{progress:?}");
    // Lost is not quiet, however long one waits; the operator knows that the process has ended.
    let quiet = rank.manager.drop_request(ID, Duration::ZERO).unwrap();
    assert!(matches!(&quiet, Quiet::Quarantined { pages, .. } if *pages == current), "{quiet:?}");
    rank.manager.confirm_quiet(ID).unwrap();
    assert_eq!(rank.manager.drop_request(ID, Duration::ZERO).unwrap(), Quiet::Confirmed);
    world.workers[0] = Worker::start(&world.fabric, &world.shape, 0);
    world.reconnect(0);
    let (offer, current) = computed(&world, 8, 10, 5, 4);
    world.ranks[0].manager.finish(offer.request, &[], LONG).unwrap();
    world.expect(&offer, 0, &current, |_| 1);
    assert!(world.is_complete(&offer));
}

/// Case 24, this rank's side.
#[test]
fn pages_of_a_dropped_request_are_not_given_back_while_they_are_in_flight() {
    let world = World::new(Shape { prefill_pages: 80, decode_pages: 80, ..PAIR });
    let rank = &world.ranks[0];
    rank.engine.hold();
    let (offer, current) = computed(&world, ID.0, 14, 31, 2);
    until("two layers", || world.ranks[0].engine.submits().len() == 2);
    rank.engine.release_blocks(rank.engine.undelivered()[0], 1);
    rank.engine.freeze();
    let quiet = pass_time(&world, || rank.manager.drop_request(ID, Duration::from_secs(5)).unwrap());
    let Quiet::Quarantined { pages, .. } = quiet else { panic!("quiet with writes in flight") };
    assert_eq!(pages, current);
    // 32 pages at once, from what an allocator that honours the quarantine has.
    let held: BTreeSet<PageId> = pages.into_iter().collect();
    let allocated: Vec<PageId> = (0..80).map(PageId).filter(|page| !held.contains(page)).take(32).collect();
    assert_eq!(allocated.len(), 32);
    world.write_all(&allocated, 2);
    rank.engine.thaw();
    rank.engine.release_all();
    assert_eq!(rank.manager.drop_request(ID, LONG).unwrap(), Quiet::Confirmed);
    let num_submits = rank.engine.submits().len();
    assert_eq!(num_submits, 2, "nothing was sent after the drop");
    assert!(world.records(&offer).is_empty());
}

#[test]
fn dropping_waits_for_what_is_in_flight_and_stops_what_is_queued() {
    let world = World::new(PAIR);
    let rank = &world.ranks[0];
    rank.engine.hold();
    let current = pages(3, 5);
    let offer = world.offer(ID.0, 5, 3, &[]);
    world.register(&offer, &NO_PREFIX);
    world.open(ID.0, 0, &current);
    world.write_all(&current, 1);
    (0..4).for_each(|layer| rank.manager.on_layer_end(layer).unwrap());
    rank.stream.fire(0);
    until("a submit", || world.ranks[0].engine.submits().len() == 1);
    thread::scope(|scope| {
        let dropping = scope.spawn(|| world.ranks[0].manager.drop_request(ID, LONG).unwrap());
        until("dropped", || world.ranks[0].manager.failure(ID).is_some());
        rank.stream.fire_all();
        thread::sleep(Duration::from_millis(20));
        assert!(!dropping.is_finished(), "a write is in flight");
        rank.engine.release_all();
        assert_eq!(dropping.join().unwrap(), Quiet::Confirmed);
    });
    assert_eq!(rank.engine.submits().len(), 1);
    let error = rank.manager.finish(ID, &[], LONG).unwrap_err();
    assert!(matches!(&*error.cause, Cause::NotRegistered), "{error}");
}

#[test]
fn a_dropped_requests_finish_says_so() {
    let world = World::new(PAIR);
    let rank = &world.ranks[0];
    rank.engine.hold();
    let (offer, _) = computed(&world, ID.0, 3, 5, 1);
    until("a submit", || world.ranks[0].engine.submits().len() == 1);
    let quiet = rank.manager.drop_request(ID, Duration::ZERO).unwrap();
    assert!(matches!(quiet, Quiet::Quarantined { .. }));
    let error = rank.manager.finish(offer.request, &[], LONG).unwrap_err();
    assert!(matches!(&*error.cause, Cause::Dropped), "{error}");
    rank.engine.release_all();
    rank.engine.settle(Deadline::after(LONG)).unwrap();
    assert_eq!(rank.manager.drop_request(ID, LONG).unwrap(), Quiet::Confirmed);
}

#[test]
fn finish_gives_up_at_the_callers_deadline_with_the_counts() {
    let options =
        ManagerOptions { min_prompt_tokens: 0, event_timeout: FOREVER, ..ManagerOptions::default() };
    let world = World::with(PAIR, |_| Making { options: options.clone(), ..Making::default() });
    let rank = &world.ranks[0];
    let offer = world.offer(ID.0, 5, 3, &[]);
    world.register(&offer, &NO_PREFIX);
    world.open(ID.0, 0, &pages(3, 5));
    (0..4).for_each(|layer| rank.manager.on_layer_end(layer).unwrap());
    let error = rank.manager.finish(ID, &[], LONG).unwrap_err();
    assert!(matches!(*error.cause, Cause::ForwardOpen), "{error}");
    let error = rank.manager.open_chunk(ID, &RequestRun { first: 5, pages: Vec::new() }).unwrap_err();
    assert!(matches!(*error.cause, Cause::ForwardOpen), "{error}");
    rank.manager.end_forward().unwrap();
    let error = pass_time(&world, || rank.manager.finish(ID, &[], Duration::from_secs(3)).unwrap_err());
    assert!(
        matches!(&*error.cause, Cause::Deadline { payload: Payload::Layer(0), worker: None, waited_ms } if *waited_ms >= 3000)
    );
    let message = error.to_string();
    assert!(message.contains("processed 0 of 4 layers, 0 submits failed"), "{message}");
}

#[test]
fn room_for_requests_is_limited_and_comes_back() {
    let options = ManagerOptions { max_requests: 2, min_prompt_tokens: 0, ..ManagerOptions::default() };
    let making = |_| Making { options: options.clone(), ..Making::default() };
    let world = World::with(PAIR, making);
    let manager = &world.ranks[0].manager;
    let register = |request: u64| {
        let offer = world.offer(request, 1, request as u32, &[]);
        let decode = world.decode(0);
        manager.register(RequestSpec { offer, decode, prompt_tokens: 64, prefix: NO_PREFIX })
    };
    register(1).unwrap();
    assert!(matches!(*register(1).unwrap_err().cause, Cause::Registered));
    register(2).unwrap();
    assert!(matches!(*register(3).unwrap_err().cause, Cause::Full { max_requests: 2 }));
    assert!(manager.has_request(RequestId(2)) && !manager.has_request(RequestId(3)));
    assert_eq!(manager.drop_request(RequestId(1), LONG).unwrap(), Quiet::Confirmed);
    register(3).unwrap();
    let error = manager.drop_request(RequestId(1), LONG).unwrap_err();
    assert!(matches!(*error.cause, Cause::NotRegistered));
}

/// Else a record would say more than was written.
#[test]
fn a_chunk_after_a_forward_that_was_not_ended_does_not_go_behind_an_earlier_forwards_event() {
    let world = World::new(PAIR);
    let rank = &world.ranks[0];
    let offer = world.offer(ID.0, 6, 3, &[]);
    world.register(&offer, &NO_PREFIX);
    let chunks = [pages(3, 2), pages(8, 2)];
    world.open(ID.0, 0, &chunks[0]);
    world.write_all(&chunks[0], 1);
    rank.manager.end_forward().unwrap();
    rank.stream.fire_all();
    // No hook fires, and nobody says that the forward ended; the next chunk has no page.
    world.open(ID.0, 2, &chunks[1]);
    world.open(ID.0, 4, &[]);
    let num_events = rank.stream.num_events();
    thread::scope(|scope| {
        let finishing = scope.spawn(|| rank.manager.finish(ID, &[], LONG));
        until("it has recorded its event", || rank.stream.num_events() > num_events);
        thread::sleep(Duration::from_millis(20));
        assert!(!finishing.is_finished());
        world.write_all(&chunks[1], 1);
        rank.stream.fire_all();
        finishing.join().unwrap().unwrap();
    });
    world.expect(&offer, 0, &chunks[0], |_| 1);
    world.expect(&offer, 2, &chunks[1], |_| 1);
}

#[test]
fn the_end_of_a_request_is_not_queued_behind_the_next_forward() {
    let world = World::new(PAIR);
    let rank = &world.ranks[0];
    let (offer, current) = computed(&world, ID.0, 3, 5, 2);
    let next = world.offer(8, 5, 20, &[]);
    world.register(&next, &NO_PREFIX);
    world.open(8, 0, &pages(12, 5));
    // Layers whose events do not fire.
    (0..4).for_each(|layer| rank.manager.on_layer_end(layer).unwrap());
    thread::scope(|scope| {
        let finishing = scope.spawn(|| rank.manager.finish(ID, &[], LONG));
        until("the event behind it", || rank.stream.num_events() == 8);
        rank.stream.fire(7);
        finishing.join().unwrap().unwrap();
    });
    world.expect(&offer, 0, &current, |_| 1);
    assert!(world.is_complete(&offer) && !world.is_complete(&next));
}

#[test]
fn a_request_that_is_dropped_twice_at_once_gives_its_room_back_once() {
    let world = World::new(PAIR);
    let manager = &world.ranks[0].manager;
    for round in 0..40_u64 {
        computed(&world, round, 3, 2, 1);
        let both = thread::scope(|scope| {
            let drops = [(); 2].map(|()| scope.spawn(|| manager.drop_request(RequestId(round), LONG)));
            drops.map(|drop| drop.join().unwrap())
        });
        assert!(both.iter().all(|quiet| matches!(quiet, Ok(Quiet::Confirmed) | Err(_))), "{both:?}");
        assert!(both.iter().any(Result::is_ok));
    }
    // Two requests with one outbox would mix their epochs.
    let offers: Vec<_> =
        (100..104).map(|request| computed(&world, request, 3 + request as i32 % 4 * 3, 3, 4)).collect();
    for (offer, _) in &offers {
        manager.finish(offer.request, &[], LONG).unwrap();
        assert!(world.is_complete(offer));
    }
}

#[test]
fn what_was_dropped_over_an_engine_that_delivers_late_is_not_quiet() {
    let endpoint = EndpointOptions { delivery: Delivery::InOrder, ..EndpointOptions::default() };
    let world = World::with(PAIR, |_| Making { endpoint: endpoint.clone(), ..Making::default() });
    let rank = &world.ranks[0];
    rank.engine.hold();
    let (_, current) = computed(&world, ID.0, 3, 5, 2);
    until("two layers", || rank.manager.progress(ID).unwrap().sent == 10);
    let quiet = rank.manager.drop_request(ID, Duration::ZERO).unwrap();
    assert!(matches!(&quiet, Quiet::Quarantined { pages, num_batches: 2 } if *pages == current), "{quiet:?}");
    rank.engine.release_all();
    rank.engine.settle(Deadline::after(LONG)).unwrap();
    rank.manager.confirm_quiet(ID).unwrap();
    assert_eq!(rank.manager.drop_request(ID, LONG).unwrap(), Quiet::Confirmed);
}
