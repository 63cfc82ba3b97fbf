//! The end of requests: several at a time, and what the engine is asked meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/transfer.rs"]
mod transfer;

use std::thread;
use std::time::{Duration, Instant};

use cpkv::transfer::{
    AuxBlock, BatchId, Cause, Destination, ManagerOptions, Offer, Payload, Quiet, RequestId, RequestRun,
};
use transfer::{LONG, Making, Shape, World, pages, until};

const ONE: Shape = Shape { ranks: 1, workers: 1, layers: 3, prefill_pages: 24, decode_pages: 48 };
const NO_PREFIX: RequestRun = RequestRun { first: 0, pages: Vec::new() };
const NO_AUX: &[AuxBlock] = &[];

/// Requests 0 to `num`, of two pages each, their offers changed by `change`, registered; their forward is queued.
fn queued_requests(world: &World, num: u32, change: impl Fn(&mut Offer)) -> Vec<Offer> {
    let mut offers: Vec<_> = (0..num).map(|at| world.offer(u64::from(at), 2, 2 * at, &[])).collect();
    offers.iter_mut().for_each(change);
    for (at, offer) in (0..).zip(&offers) {
        world.register(offer, &NO_PREFIX);
        let current = pages(2 * at, 2);
        world.open(offer.request.0, 0, &current);
        world.write_all(&current, 1);
    }
    offers
}

/// The same, and the forward is over, without a hook.
fn requests(world: &World, num: u32, change: impl Fn(&mut Offer)) -> Vec<Offer> {
    let offers = queued_requests(world, num, change);
    world.ranks[0].manager.end_forward().unwrap();
    world.ranks[0].stream.fire_all();
    offers
}

/// The same, with every hook.
fn hooked_requests(world: &World, num: u32, change: impl Fn(&mut Offer)) -> Vec<Offer> {
    let offers = queued_requests(world, num, change);
    (0..3).for_each(|layer| world.ranks[0].manager.on_layer_end(layer).unwrap());
    world.ranks[0].manager.end_forward().unwrap();
    world.ranks[0].stream.fire_all();
    offers
}

fn all_of(offers: &[Offer]) -> Vec<(RequestId, &[AuxBlock])> {
    offers.iter().map(|offer| (offer.request, NO_AUX)).collect()
}

#[test]
fn a_request_that_is_through_leaves_its_records_while_others_are_in_flight() {
    let world = World::new(Shape { workers: 3, ..ONE });
    let rank = &world.ranks[0];
    rank.engine.hold();
    // Each to a worker of its own.
    let offers = requests(&world, 3, |offer| {
        let worker = offer.request.0 as u32;
        let place = |page_idx| Some(Destination { worker, page_idx });
        offer.destinations = vec![place(0), place(1)];
    });
    let submits_to = |worker: &str| {
        let submits = rank.engine.submits().into_iter().filter(|submit| &*submit.peer == worker);
        submits.map(|submit| submit.outcome.unwrap()).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let finishing = scope.spawn(|| rank.manager.finish_all(&all_of(&offers), LONG));
        until("the layers", || rank.engine.submits().len() == 9);
        for batch in submits_to("worker 2") {
            assert!(rank.engine.release_batch(batch));
        }
        until("a record to each worker", || rank.engine.submits().len() == 12);
        for worker in ["worker 0", "worker 1", "worker 2"] {
            let record = *submits_to(worker).last().unwrap();
            assert!(rank.engine.release_batch(record));
        }
        until("they are there", || world.is_complete(&offers[2]));
        assert!(!world.is_complete(&offers[0]) && !world.is_complete(&offers[1]));
        rank.engine.inject(|faults| faults.hold = false);
        rank.engine.release_all();
        let answers = finishing.join().unwrap();
        assert!(answers.iter().all(|sent| sent.as_ref().unwrap().num_pages == 6));
    });
    assert!(offers.iter().all(|offer| world.is_complete(offer)));
}

#[test]
fn one_that_fails_keeps_no_other_from_its_end_and_answers_come_in_the_order_of_the_questions() {
    let world = World::new(ONE);
    let rank = &world.ranks[0];
    let offers = requests(&world, 3, |offer| {
        // Words of the second request would go where nothing is registered.
        if offer.request == RequestId(1) {
            offer.inboxes[0].addr += 1 << 40;
        }
    });
    let mut asked = all_of(&offers);
    asked.insert(0, (RequestId(99), NO_AUX));
    asked.push((RequestId(0), NO_AUX));
    let answers = rank.manager.finish_all(&asked, LONG);
    let cause = |at: usize| answers[at].as_ref().unwrap_err();
    assert!(matches!(*cause(0).cause, Cause::NotRegistered), "{}", cause(0));
    assert!(matches!(*cause(2).cause, Cause::Submit { payload: Payload::Layer(_), .. }), "{}", cause(2));
    assert_eq!(cause(2).request, offers[1].request);
    assert_eq!(answers[1].as_ref().unwrap().num_pages, 6);
    assert_eq!(answers[3].as_ref().unwrap().num_pages, 6);
    // Asked twice in one call, it answers the same.
    assert_eq!(answers[4], answers[1]);
    assert!(world.is_complete(&offers[0]) && world.is_complete(&offers[2]));
    assert_eq!(rank.manager.drop_request(RequestId(1), LONG), Ok(Quiet::Confirmed));
}

#[test]
fn a_layer_of_several_requests_goes_to_a_worker_as_one_batch_and_apart_where_one_is_refused() {
    let options = ManagerOptions { num_threads: 0, min_prompt_tokens: 0, ..ManagerOptions::default() };
    let with = |bad: Option<RequestId>| {
        let world = World::with(ONE, |_| Making { options: options.clone(), ..Making::default() });
        let rank = &world.ranks[0];
        let offers = hooked_requests(&world, 3, |offer| {
            if Some(offer.request) == bad {
                offer.inboxes[0].addr += 1 << 40;
            }
        });
        until("every layer was sent", || !rank.manager.drive());
        let submits = rank.engine.submits();
        let went: Vec<usize> = submits
            .iter()
            .filter(|submit| submit.outcome.is_ok())
            .map(|submit| submit.blocks.len())
            .collect();
        for offer in offers.iter().filter(|offer| Some(offer.request) != bad) {
            assert_eq!(rank.manager.finish(offer.request, NO_AUX, LONG).unwrap().num_pages, 6);
            assert!(world.is_complete(offer));
            let first = 2 * offer.request.0 as i32;
            world.expect(offer, 0, &pages(first, 2), |_| 1);
        }
        (submits.len(), went)
    };
    // Two blocks for layers with two buffers, and a word, of each request.
    assert_eq!(with(None), (3, vec![9, 6, 9]));
    // Once refused, the first layer goes apart; then the request that failed is not among them.
    assert_eq!(with(Some(RequestId(1))), (6, vec![3, 3, 4, 6]));
}

#[test]
fn all_that_are_not_through_at_the_deadline_fail_and_say_what_they_waited_for() {
    let world = World::new(ONE);
    let offers = requests(&world, 3, |_| {});
    let rank = &world.ranks[0];
    rank.engine.freeze();
    thread::scope(|scope| {
        let finishing = scope.spawn(|| rank.manager.finish_all(&all_of(&offers), Duration::from_secs(10)));
        let num_batches = |offer: &Offer| rank.manager.progress(offer.request).unwrap().num_batches;
        until("the layers of all", || offers.iter().all(|offer| num_batches(offer) == 3));
        world.clock.advance(Duration::from_secs(10));
        for error in finishing.join().unwrap().into_iter().map(Result::unwrap_err) {
            let is_expected = matches!(
                *error.cause,
                Cause::Deadline { payload: Payload::Layer(0), worker: Some(0), waited_ms: 10_000 }
            );
            assert!(is_expected, "{error}");
        }
    });
    rank.engine.thaw();
    for offer in &offers {
        assert_eq!(rank.manager.drop_request(offer.request, LONG), Ok(Quiet::Confirmed));
        assert!(world.records(offer).is_empty());
    }
}

#[test]
fn the_engine_is_asked_about_the_oldest_batch_to_a_worker_alone_until_a_request_is_dropped() {
    let options = ManagerOptions { num_threads: 0, min_prompt_tokens: 0, ..ManagerOptions::default() };
    let world = World::with(Shape { workers: 2, ..ONE }, |_| Making {
        options: options.clone(),
        ..Making::default()
    });
    let rank = &world.ranks[0];
    rank.engine.hold();
    let offer = world.offer(0, 2, 0, &[]);
    world.register(&offer, &NO_PREFIX);
    world.open(0, 0, &pages(0, 2));
    world.write_all(&pages(0, 2), 1);
    (0..3).for_each(|layer| rank.manager.on_layer_end(layer).unwrap());
    rank.stream.fire_all();
    until("every layer was sent", || !rank.manager.drive());
    assert_eq!(rank.engine.submits().len(), 6, "a batch to each worker, three layers");
    let polls_of = |act: &dyn Fn()| {
        let before = rank.engine.counters().num_polls;
        act();
        rank.engine.counters().num_polls - before
    };
    let look = || assert!(!rank.manager.drive());
    assert_eq!(polls_of(&look), 2);
    // The first layer to worker 0 is done: the next one is asked about in the same look.
    assert!(rank.engine.release_batch(BatchId(0)));
    until("it is delivered", || rank.engine.counters().num_delivered == 1);
    assert_eq!(polls_of(&look), 3);
    // Stopped, each batch that ends makes pages quiet.
    let quiet = rank.manager.drop_request(RequestId(0), Duration::ZERO).unwrap();
    assert!(matches!(quiet, Quiet::Quarantined { num_batches: 5, .. }), "{quiet:?}");
    thread::sleep(Duration::from_millis(60));
    assert_eq!(polls_of(&look), 5);
}

/// Whoever waits looks by himself every 20 ms; five waits a request would take two seconds and more. A busy machine may take
/// as long, but not always.
#[test]
fn callers_that_wait_are_woken_when_their_request_gets_on() {
    let world = World::new(ONE);
    let rank = &world.ranks[0];
    until("forty requests whose callers were woken", || {
        let begun = Instant::now();
        for _ in 0..40 {
            let offers = requests(&world, 1, |_| {});
            rank.manager.finish(RequestId(0), NO_AUX, LONG).unwrap();
            assert_eq!(rank.manager.drop_request(offers[0].request, LONG), Ok(Quiet::Confirmed));
        }
        begun.elapsed() < Duration::from_millis(800)
    });
}

#[test]
fn what_a_dropped_request_left_in_flight_is_asked_about_rarely_unless_somebody_waits() {
    let world = World::new(ONE);
    let rank = &world.ranks[0];
    rank.engine.hold();
    hooked_requests(&world, 1, |_| {});
    until("the layers", || rank.engine.submits().len() == 3);
    let quiet = rank.manager.drop_request(RequestId(0), Duration::ZERO).unwrap();
    assert!(matches!(quiet, Quiet::Quarantined { num_batches: 3, .. }), "{quiet:?}");
    let num_polls = || rank.engine.counters().num_polls;
    let (before, begun) = (num_polls(), Instant::now());
    thread::sleep(Duration::from_millis(250));
    until("a question about each", || num_polls() >= before + 3);
    let asked = num_polls() - before;
    // Three batches, every 50 ms; with a look every 2 ms they would be 25 times as many.
    let most = 3 * (begun.elapsed().as_millis() as u64 / 50 + 3);
    assert!(asked <= most, "{asked} in {:?}", begun.elapsed());
    thread::scope(|scope| {
        let dropping = scope.spawn(|| rank.manager.drop_request(RequestId(0), LONG));
        let before = num_polls();
        until("questions", || num_polls() > before + 30);
        rank.engine.release_all();
        assert_eq!(dropping.join().unwrap(), Ok(Quiet::Confirmed));
    });
}
