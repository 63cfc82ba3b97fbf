//! A request on all ranks of a world: its opening and its end.

#![allow(dead_code, reason = "each test file uses its part")]

use cpkv::transfer::{Offer, RequestId, RequestRun};
use cpkv::units::PageId;

use crate::transfer::{LONG, World, pages};

/// The request.
pub(crate) const ID: RequestId = RequestId(7);
/// Nothing of it is cached.
pub(crate) const NO_PREFIX: RequestRun = RequestRun { first: 0, pages: Vec::new() };

/// Finishes the request on every rank.
pub(crate) fn finish(world: &World) {
    for rank in &world.ranks {
        rank.stream.fire_all();
        rank.manager.end_forward().unwrap();
        rank.stream.fire_all();
    }
    let num_sent: u64 =
        world.ranks.iter().map(|rank| rank.manager.finish(ID, &[], LONG).unwrap().num_pages).sum();
    let progress: Vec<_> = world.ranks.iter().map(|rank| rank.manager.progress(ID).unwrap()).collect();
    assert_eq!(progress.iter().map(|progress| progress.sent).sum::<u64>(), num_sent);
    assert!(progress.iter().all(|progress| progress.unsent + progress.in_flight + progress.unknown == 0));
}

/// Registers the request, of `num` pages that the next forward computes.
pub(crate) fn one_request(world: &World, num: i32) -> (Offer, Vec<PageId>) {
    let current = pages(3, num);
    let offer = world.offer(ID.0, num as u32, 5, &[]);
    world.register(&offer, &NO_PREFIX);
    world.open(ID.0, 0, &current);
    (offer, current)
}
