//! What belongs to a request beside the layers of one forward: cached pages, chunks, small extra buffers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/one_request.rs"]
mod one_request;
#[path = "support/transfer.rs"]
mod transfer;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cpkv::device::CpuDevice;
use cpkv::group::PoisonGate;
use cpkv::transfer::{
    AuxBlock, Block, Cause, ManagerOptions, ManagerParts, Payload, RequestRun, TransferManager,
};
use one_request::{ID, finish, one_request};
use transfer::{LONG, SMALL, Shape, World, pages, until};

/// A page of the pool serves as a small extra buffer, another page's place as where it goes.
fn extra(world: &World) -> Block {
    let (src, dst) = (world.ranks[0].source.pool.layers[0][0], world.workers[0].pool.layers[0][0]);
    Block { src: src.addr, dst: dst.addr, bytes: 96 }
}

#[test]
fn cached_pages_and_chunks_go_as_they_are_complete_and_unequal_caches_are_paired_by_position() {
    let world = World::new(Shape { prefill_pages: 40, ..SMALL });
    // The prefill side holds five pages; the decode side holds three, one of which this forward computes.
    let (prefix, chunks) = (pages(30, 5), [pages(10, 4), pages(20, 3)]);
    let offer = world.offer(ID.0, 12, 0, &[0, 1, 6]);
    world.write_all(&prefix, 3);
    world.register(&offer, &RequestRun { first: 0, pages: prefix.clone() });
    thread::sleep(Duration::from_millis(20));
    assert!(world.ranks.iter().all(|rank| rank.engine.submits().is_empty()), "loads may be queued yet");
    world.ranks.iter().for_each(|rank| rank.stream.fire_all());
    let prefix_pairs = world.num_pairs(&offer, 0, &prefix);
    until("the prefix", || {
        world.ranks.iter().map(|rank| rank.manager.progress(ID).unwrap().sent).sum::<u64>() == prefix_pairs
    });
    for (first, chunk) in [(5, &chunks[0]), (9, &chunks[1])] {
        world.open(ID.0, first, chunk);
        for layer in 0..3 {
            world.write(layer, chunk, 4);
            for rank in &world.ranks {
                // One layer of one chunk is left to finish.
                if (first, layer) != (5, 1) {
                    rank.manager.on_layer_end(layer).unwrap();
                }
                rank.stream.fire_all();
            }
        }
        world.ranks.iter().for_each(|rank| rank.manager.end_forward().unwrap());
        // Between forwards of the request, hooks are not for it.
        world.ranks.iter().for_each(|rank| rank.manager.on_layer_end(1).unwrap());
    }
    finish(&world);
    world.expect(&offer, 0, &prefix, |_| 3);
    world.expect(&offer, 5, &chunks[0], |_| 4);
    world.expect(&offer, 9, &chunks[1], |_| 4);
    assert!(world.is_complete(&offer));
}

#[test]
fn aux_blocks_go_after_the_layers_and_before_the_record() {
    let world = World::new(Shape { ranks: 1, workers: 1, ..SMALL });
    let (offer, current) = one_request(&world, 2);
    world.write_all(&current, 1);
    let rank = &world.ranks[0];
    rank.stream.fire_all();
    let block = extra(&world);
    rank.manager.end_forward().unwrap();
    rank.stream.fire_all();
    thread::scope(|scope| {
        let finishing = scope.spawn(|| rank.manager.finish(ID, &[AuxBlock { worker: 0, block }], LONG));
        // They wait for what is queued when finish is called.
        until("the layers", || rank.engine.submits().len() == 3);
        thread::sleep(Duration::from_millis(10));
        assert_eq!(rank.engine.submits().len(), 3);
        rank.stream.fire_all();
        finishing.join().unwrap().unwrap();
    });
    let submits = rank.engine.submits();
    let position = submits.iter().position(|submit| submit.blocks.contains(&block)).unwrap();
    assert_eq!((position, submits.len()), (3, 5), "three layers, aux, record");
    assert!(world.is_complete(&offer));
    assert_eq!(world.records(&offer)[&(0, 0)].num_words, 4);
}

#[test]
fn aux_blocks_that_fail_leave_no_record() {
    let world = World::new(Shape { ranks: 1, workers: 1, ..SMALL });
    let (offer, current) = one_request(&world, 2);
    world.write_all(&current, 1);
    let rank = &world.ranks[0];
    rank.manager.end_forward().unwrap();
    rank.stream.fire_all();
    rank.engine.inject(|faults| faults.fail_batches.extend([(3, 0)]));
    let block = extra(&world);
    let error = thread::scope(|scope| {
        let finishing = scope.spawn(|| rank.manager.finish(ID, &[AuxBlock { worker: 0, block }], LONG));
        until("the layers", || rank.engine.submits().len() == 3);
        rank.stream.fire_all();
        finishing.join().unwrap().unwrap_err()
    });
    assert!(matches!(&*error.cause, Cause::Transfer { payload: Payload::Aux, .. }), "{error}");
    assert!(world.records(&offer).is_empty());
}

#[test]
fn a_page_that_is_part_of_the_request_already_is_refused_on_every_rank() {
    let world = World::new(SMALL);
    one_request(&world, 6);
    for rank in &world.ranks {
        for first in [0, 5] {
            let again = RequestRun { first, pages: pages(20, 1) };
            let error = rank.manager.open_chunk(ID, &again).unwrap_err().to_string();
            assert!(error.contains(&format!("page {first}")), "{error}");
        }
    }
}

#[test]
fn an_aux_block_for_a_worker_that_is_not_there_is_refused_and_nothing_is_lost() {
    let world = World::new(Shape { ranks: 1, workers: 1, ..SMALL });
    let (offer, current) = one_request(&world, 2);
    world.write_all(&current, 1);
    let rank = &world.ranks[0];
    rank.manager.end_forward().unwrap();
    rank.stream.fire_all();
    let block = Block { src: 0, dst: 0, bytes: 8 };
    let error = rank.manager.finish(ID, &[AuxBlock { worker: 1, block }], LONG).unwrap_err();
    assert!(matches!(*error.cause, Cause::AuxWorker { worker: 1, num_workers: 1 }), "{error}");
    finish(&world);
    assert!(world.is_complete(&offer));
}

#[test]
fn options_that_are_none_are_refused_with_what_they_may_be() {
    let refused = |options: ManagerOptions| {
        let world = World::new(Shape { ranks: 1, workers: 1, ..SMALL });
        let rank = &world.ranks[0];
        let parts = ManagerParts {
            engine: Arc::clone(&rank.engine) as _,
            device: Arc::new(CpuDevice),
            stream: Arc::clone(&rank.stream) as _,
            gate: PoisonGate::default(),
            source: rank.source.clone(),
        };
        TransferManager::start(parts, options).err().unwrap().to_string()
    };
    let options = ManagerOptions::default;
    assert!(refused(ManagerOptions { max_requests: 0, ..options() }).contains("max_requests is 0"));
    assert!(refused(ManagerOptions { max_workers: 0, ..options() }).contains("max_workers is 0"));
    assert!(refused(ManagerOptions { num_threads: 257, ..options() }).contains("257, not 0 to 256"));
    assert!(refused(ManagerOptions { niceness: 20, ..options() }).contains("niceness is 20"));
}
