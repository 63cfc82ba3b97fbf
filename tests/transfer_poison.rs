//! A group that is poisoned in the middle of a forward: nothing is sent behind the fault, and `finish` fails on every rank
//! with the same cause. The streams are the device's; the pages lie in host memory, which the reference engine reaches.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/fixture.rs"]
mod fixture;
#[path = "support/transfer.rs"]
mod transfer;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cpkv::group::{Fault, Group, GroupOptions};
use cpkv::transfer::{Cause, RequestId, RequestRun};
use cpkv::units::{Rank, RankSet};
use fixture::on_threads;
use transfer::{LONG, Making, SMALL, Shape, World, pages};

const ID: RequestId = RequestId(7);
/// The rank that stops, and the first layer whose barrier it does not enter.
const LATE: u32 = 2;
const STOPS_AT: usize = 2;

#[test]
fn nothing_is_sent_behind_a_poisoned_barrier_and_every_rank_says_who_was_missing() {
    let options = GroupOptions { barrier_timeout: Duration::from_secs(4), ..GroupOptions::default() };
    let groups = on_threads(3, |setup| {
        let (bootstrap, device) = (Arc::clone(&setup.bootstrap), Arc::clone(&setup.device));
        Mutex::new(Group::register(bootstrap, device, Arc::clone(&setup.backend), options).unwrap())
    });
    let making = |rank: u32| {
        let group = groups[rank as usize].lock().unwrap();
        Making { gate: group.gate(), stream: Some(group.stream_handle()), ..Making::default() }
    };
    let world = World::with(Shape { layers: 5, ..SMALL }, making);
    let current = pages(3, 9);
    let offer = world.offer(ID.0, 9, 3, &[]);
    world.write_all(&current, 1);
    world.register(&offer, &RequestRun::default());
    world.open(ID.0, 0, &current);
    for layer in 0..5 {
        for (rank, group) in groups.iter().enumerate() {
            let stopped = rank == LATE as usize && layer >= STOPS_AT;
            if !stopped {
                group.lock().unwrap().barrier(layer as u32).unwrap();
                world.ranks[rank].manager.on_layer_end(layer).unwrap();
            }
        }
    }
    // The late rank wakes up when the others have given up.
    for group in groups.iter().take(LATE as usize) {
        group.lock().unwrap().synchronize().unwrap_err();
    }
    let late = &mut *groups[LATE as usize].lock().unwrap();
    late.barrier(STOPS_AT as u32).and_then(|()| late.synchronize()).unwrap_err();
    for layer in STOPS_AT..5 {
        world.ranks[LATE as usize].manager.on_layer_end(layer).unwrap();
    }
    let missing: RankSet = [Rank(LATE)].into_iter().collect();
    for rank in &world.ranks {
        rank.manager.end_forward().unwrap();
        let error = rank.manager.finish(ID, &[], LONG).unwrap_err();
        let Cause::Poisoned { fault: Fault::Barrier { missing: named, epoch, .. }, .. } = &*error.cause
        else {
            panic!("{error}")
        };
        assert_eq!((*named, epoch.0), (missing, STOPS_AT as u64), "{error}");
        // Two layers to two workers.
        assert_eq!(rank.engine.submits().len(), 2 * STOPS_AT);
        assert!(rank.manager.progress(ID).unwrap().is_quiet);
    }
    assert!(world.records(&offer).is_empty());
    for position in 0..9 {
        let arrived = world.arrived(&offer, position).unwrap();
        let untouched = |layer: &Vec<Vec<u8>>| layer.iter().flatten().all(|byte| *byte == transfer::POISON);
        assert!(arrived[..STOPS_AT].iter().all(|layer| !untouched(layer)));
        assert!(arrived[STOPS_AT..].iter().all(untouched), "position {position}");
    }
}
