//! The transfer's rules on small cases: what is sent when, how often, and what is said when it cannot be.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/one_request.rs"]
mod one_request;
#[path = "support/transfer.rs"]
mod transfer;

use std::thread;
use std::time::Duration;

use cpkv::transfer::{Cause, Delivery, EndpointOptions, ManagerOptions, Payload, RequestId};
use one_request::{ID, NO_PREFIX, finish, one_request};
use transfer::{FOREVER, LONG, Making, SMALL, Shape, World, until};

/// Case 18.
#[test]
fn the_engine_is_asked_after_the_write_event_fired_and_not_before() {
    let world = World::new(SMALL);
    let (offer, current) = one_request(&world, 8);
    for rank in &world.ranks {
        rank.manager.on_layer_end(1).unwrap();
    }
    // Workers had every chance.
    thread::sleep(Duration::from_millis(30));
    assert!(world.ranks.iter().all(|rank| rank.engine.submits().is_empty()));
    world.write(1, &current, 1);
    let fired_at = world.fabric.tick();
    for rank in &world.ranks {
        rank.stream.fire(0);
        until("a submit", || rank.engine.submits().len() == 2);
        assert!(rank.engine.submits().iter().all(|submit| submit.tick > fired_at));
    }
    world.write(0, &current, 1);
    world.write(2, &current, 1);
    finish(&world);
    world.expect(&offer, 0, &current, |_| 1);
    assert!(world.is_complete(&offer));
}

/// Case 19.
#[test]
fn payload_that_comes_after_the_completion_is_not_read_early() {
    let making = |_| Making {
        endpoint: EndpointOptions { delivery: Delivery::InOrder, ..EndpointOptions::default() },
        ..Making::default()
    };
    let world = World::with(SMALL, making);
    let (offer, current) = one_request(&world, 8);
    world.write_all(&current, 1);
    let late = &world.ranks[1].engine;
    late.hold();
    finish(&world);
    // The records overtake the payload; batches stay whole.
    let held = late.undelivered();
    let (payload, records) = held.split_at(held.len() - 2);
    for &batch in records {
        assert!(late.release_batch(batch));
    }
    until("all records", || world.records(&offer).len() == 6);
    assert!(!world.is_complete(&offer), "a record alone is not enough");
    for (num, &batch) in payload.iter().enumerate() {
        assert!(!world.is_complete(&offer), "{num} of {} batches are there", payload.len());
        assert!(late.release_batch(batch));
        until("the batch", || !late.undelivered().contains(&batch));
    }
    assert!(world.is_complete(&offer));
    world.expect(&offer, 0, &current, |_| 1);
}

/// Case 20.
#[test]
fn a_layers_destination_holds_that_layers_stamp() {
    let world = World::new(SMALL);
    let (offer, current) = one_request(&world, 12);
    for layer in 0..3 {
        world.write(layer, &current, 1);
        for rank in &world.ranks {
            rank.manager.on_layer_end(layer).unwrap();
            rank.stream.fire_all();
        }
    }
    finish(&world);
    world.expect(&offer, 0, &current, |_| 1);
    for record in world.records(&offer).values() {
        assert_eq!((record.num_layers, record.group_size, record.request), (3, 3, ID.0));
    }
    let num_recorded: u64 = world.records(&offer).values().map(|record| record.num_pages).sum();
    assert_eq!(num_recorded, world.num_pairs(&offer, 0, &current));
}

/// Case 21.
#[test]
fn every_layer_goes_once_and_a_draft_layer_in_its_last_state_however_often_its_hook_fires() {
    for num_target in [47, 43, 61, 78] {
        for num_draft_hooks in [0, 1, 3] {
            let layers = num_target + 1;
            let mut multi_fire = vec![false; layers];
            multi_fire[num_target] = true;
            let options = ManagerOptions { min_prompt_tokens: 0, multi_fire, ..ManagerOptions::default() };
            let shape = Shape { layers, ..SMALL };
            let making = |_| Making { options: options.clone(), ..Making::default() };
            let world = World::with(shape, making);
            let (offer, current) = one_request(&world, 4);
            for layer in 0..num_target {
                world.write(layer, &current, 1);
                for rank in &world.ranks {
                    rank.manager.on_layer_end(layer).unwrap();
                    rank.stream.fire_all();
                }
            }
            for step in 0..num_draft_hooks {
                world.write(num_target, &current, 2 + step);
                for rank in &world.ranks {
                    rank.manager.on_layer_end(num_target).unwrap();
                    rank.stream.fire_all();
                }
            }
            world.write(num_target, &current, 9);
            finish(&world);
            world.expect(&offer, 0, &current, |layer| if layer == num_target { 9 } else { 1 });
            let num_pages: u64 = world.records(&offer).values().map(|record| record.num_pages).sum();
            assert_eq!(num_pages, world.num_pairs(&offer, 0, &current));
        }
    }
}

/// Case 22.
#[test]
fn a_batch_that_fails_on_its_way_is_never_reported_as_done() {
    // One rank and worker: a batch a layer, eight layers.
    let shape = Shape { ranks: 1, workers: 1, layers: 8, ..SMALL };
    for failing in [0, 4, 7] {
        // One thread, so that batches go in the order of their layers.
        let options = ManagerOptions { num_threads: 1, min_prompt_tokens: 0, ..ManagerOptions::default() };
        let world = World::with(shape.clone(), |_| Making { options: options.clone(), ..Making::default() });
        let (offer, current) = one_request(&world, 4);
        world.write_all(&current, 1);
        let rank = &world.ranks[0];
        rank.engine.inject(|faults| faults.fail_batches.extend([(failing, 1)]));
        for layer in 0..8 {
            rank.manager.on_layer_end(layer).unwrap();
        }
        rank.stream.fire_all();
        rank.manager.end_forward().unwrap();
        rank.stream.fire_all();
        let error = rank.manager.finish(ID, &[], LONG).unwrap_err();
        let Cause::Transfer { payload: Payload::Layer(layer), source } = &*error.cause else {
            panic!("{error}")
        };
        assert_eq!(*layer as u64, failing, "{error}");
        let progress = rank.manager.progress(ID).unwrap();
        assert!(progress.unknown == 4 && !progress.is_quiet, "{progress:?}");
        assert!(source.peer.as_deref() == Some("worker 0"), "{error}");
        assert!(error.to_string().contains(&format!("layer {layer}")), "{error}");
        assert!(world.records(&offer).is_empty());
        assert_eq!(rank.manager.finish(ID, &[], LONG).unwrap_err(), error, "the same answer");
    }
}

/// A submit that fails at the first, a middle, the last layer: fail closed.
#[test]
fn after_a_refused_submit_nothing_more_is_sent() {
    let shape = Shape { ranks: 1, workers: 1, layers: 8, ..SMALL };
    // Without threads `finish` does it all, in order.
    let options = ManagerOptions { num_threads: 0, min_prompt_tokens: 0, ..ManagerOptions::default() };
    for failing in [0, 4, 7] {
        let world = World::with(shape.clone(), |_| Making { options: options.clone(), ..Making::default() });
        let (offer, current) = one_request(&world, 4);
        world.write_all(&current, 1);
        let rank = &world.ranks[0];
        rank.engine.inject(|faults| faults.fail_submits.extend([failing]));
        for layer in 0..8 {
            rank.manager.on_layer_end(layer).unwrap();
        }
        rank.manager.end_forward().unwrap();
        rank.stream.fire_all();
        let error = rank.manager.finish(ID, &[], LONG).unwrap_err();
        let expected = Payload::Layer(failing as usize);
        assert!(matches!(&*error.cause, Cause::Submit { payload, .. } if *payload == expected), "{error}");
        assert_eq!((error.counts.enqueued, u64::from(error.counts.processed)), (8, failing + 1));
        assert_eq!(error.counts.submit_failures, 1);
        assert_eq!(rank.engine.submits().len() as u64, failing + 1);
        assert!(world.records(&offer).is_empty());
        // What was refused whole is not in flight, and the rest is soon done.
        until("quiet", || {
            rank.manager.drive();
            rank.manager.progress(ID).unwrap().is_quiet
        });
    }
}

/// Case 23.
#[test]
fn a_layer_whose_hook_fires_twice_and_one_without_pages_go_once() {
    let world = World::new(Shape { layers: 7, ..SMALL });
    let (offer, current) = one_request(&world, 6);
    // A request whose pages are all rank 0's: the others have nothing to send, and say so.
    let own: Vec<_> = [0, 12, 15].map(cpkv::units::PageId).to_vec();
    let other = world.offer(8, 3, 20, &[]);
    world.register(&other, &NO_PREFIX);
    world.open(8, 0, &own);
    for layer in [0, 1, 2, 3, 4, 5, 5, 6] {
        world.write(layer, &current, 1);
        world.write(layer, &own, 1);
        for rank in &world.ranks {
            rank.manager.on_layer_end(layer).unwrap();
            rank.stream.fire_all();
        }
    }
    finish(&world);
    for rank in &world.ranks {
        rank.manager.finish(RequestId(8), &[], LONG).unwrap();
    }
    world.expect(&offer, 0, &current, |_| 1);
    world.expect(&other, 0, &own, |_| 1);
    assert!(world.is_complete(&offer) && world.is_complete(&other));
    let records = world.records(&other);
    assert!(records.iter().all(|((_, rank), record)| (record.num_pages > 0) == (*rank == 0)), "{records:?}");
    // Batches: every layer to two workers, of both requests together, and two records of each.
    assert_eq!(world.ranks[0].engine.submits().len(), 7 * 2 + 2 + 2);
    assert_eq!(world.ranks[1].engine.submits().len(), (7 * 2 + 2) + 2);
    assert_eq!(world.ranks[2].engine.submits().len(), (7 * 2 + 2) + 2);
}

/// Case 25.
#[test]
fn in_an_idle_system_a_deadline_still_passes() {
    let world = World::new(SMALL);
    let (offer, current) = one_request(&world, 6);
    world.write_all(&current, 1);
    let rank = &world.ranks[0];
    rank.engine.freeze();
    rank.manager.on_layer_end(2).unwrap();
    rank.stream.fire_all();
    until("a submit", || !rank.engine.submits().is_empty());
    assert!(rank.manager.failure(ID).is_none());
    world.clock.advance(Duration::from_secs(31));
    until("the deadline", || rank.manager.failure(ID).is_some());
    let error = rank.manager.failure(ID).unwrap();
    let layer_2 = matches!(&*error.cause, Cause::TransferTimeout { payload: Payload::Layer(2), waited_ms, .. }
        if *waited_ms >= 30_000);
    assert!(layer_2, "{error}");
    assert_eq!(rank.manager.finish(ID, &[], LONG).unwrap_err().cause, error.cause);
    assert!(world.records(&offer).keys().all(|(_, rank)| *rank != 0));
}

#[test]
fn an_event_that_never_fires_is_reported_at_the_deadline() {
    let world = World::new(SMALL);
    let (offer, _) = one_request(&world, 6);
    let rank = &world.ranks[1];
    rank.manager.on_layer_end(0).unwrap();
    rank.manager.end_forward().unwrap();
    let finishing = thread::scope(|scope| {
        let finishing = scope.spawn(|| rank.manager.finish(ID, &[], FOREVER));
        // Not before its time: a worker may pick the layer up only now.
        while !finishing.is_finished() {
            world.clock.advance(Duration::from_secs(1));
            thread::sleep(Duration::from_micros(300));
        }
        finishing.join().unwrap()
    });
    let error = finishing.unwrap_err();
    let Cause::EventTimeout { payload: Payload::Layer(_), waited_ms } = *error.cause else {
        panic!("{error}")
    };
    assert!(waited_ms >= 30_000);
    assert_eq!(rank.engine.submits().len(), 0);
    assert!(world.records(&offer).is_empty());
}

/// Case 26.
#[test]
fn without_any_hook_finish_sends_what_a_monolithic_send_sends() {
    let monolithic = ManagerOptions { min_prompt_tokens: u32::MAX, ..ManagerOptions::default() };
    let per_layer = ManagerOptions { min_prompt_tokens: 0, ..ManagerOptions::default() };
    for options in [monolithic, per_layer] {
        let is_monolithic = options.min_prompt_tokens == u32::MAX;
        let world = World::with(SMALL, |_| Making { options: options.clone(), ..Making::default() });
        let (offer, current) = one_request(&world, 9);
        world.write_all(&current, 1);
        if is_monolithic {
            // Hooks that fire are not for it.
            for rank in &world.ranks {
                rank.manager.on_layer_end(0).unwrap();
                rank.stream.fire_all();
            }
            thread::sleep(Duration::from_millis(10));
            assert!(world.ranks.iter().all(|rank| rank.engine.submits().is_empty()));
        }
        finish(&world);
        world.expect(&offer, 0, &current, |_| 1);
        assert!(world.is_complete(&offer));
    }
}
