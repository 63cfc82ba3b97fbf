//! When the prefill side may write a page again: with real transfers, by the agreement of the group, never by one rank alone.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/one_request.rs"]
mod one_request;
#[path = "support/transfer.rs"]
mod transfer;

use std::thread;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::group::ThreadBootstrap;
use cpkv::transfer::lifetime::{HeldPages, agree_quiet};
use cpkv::transfer::{Quiet, RequestId};
use cpkv::units::{GroupSize, PageId};
use one_request::{ID, NO_PREFIX};
use transfer::{LONG, SMALL, World, pages, until};

/// Pages of the prefill group's pool, and what transfers read of them: what each rank keeps, and all keep alike.
struct Pool {
    num_pages: i32,
    held: HeldPages,
}

impl Pool {
    /// The first `num` pages that nobody reads, for `request`.
    fn take(&mut self, request: RequestId, num: usize) -> Vec<PageId> {
        let free = (0..self.num_pages).map(PageId).filter(|&page| !self.held.is_held(page));
        let taken: Vec<_> = free.take(num).collect();
        self.held.hold(request, &taken);
        taken
    }
}

/// Every rank drops the request, and the group agrees on what is quiet everywhere.
fn drop_on_all(world: &World, request: RequestId, timeout: Duration) -> Vec<RequestId> {
    let boots = ThreadBootstrap::group(GroupSize::new(world.shape.ranks).unwrap());
    let mut answers = thread::scope(|scope| {
        let ranks = world.ranks.iter().zip(boots).map(|(rank, boot)| {
            scope.spawn(move || {
                // A rank that was quiet before says so again: for it the request is gone.
                let is_quiet = !rank.manager.has_request(request)
                    || rank.manager.drop_request(request, timeout) == Ok(Quiet::Confirmed);
                let quiet: Vec<_> = is_quiet.then_some(request).into_iter().collect();
                agree_quiet(&boot, &quiet, Deadline::after(LONG)).unwrap()
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
    answers.remove(0)
}

#[test]
fn pages_of_an_aborted_transfer_are_written_again_only_when_no_rank_sends_them() {
    let world = World::new(SMALL);
    let mut pool = Pool { num_pages: 24, held: HeldPages::default() };
    let aborted = pool.take(ID, 9);
    assert_eq!(aborted, pages(0, 9));
    let offer = world.offer(ID.0, 9, 0, &[]);
    world.register(&offer, &NO_PREFIX);
    world.open(ID.0, 0, &aborted);
    world.write_all(&aborted, 1);
    // One rank's writes are on their way, and stay so.
    world.ranks[1].engine.hold();
    for rank in &world.ranks {
        (0..3).for_each(|layer| rank.manager.on_layer_end(layer).unwrap());
        rank.manager.end_forward().unwrap();
        rank.stream.fire_all();
    }
    until("the writes", || world.ranks[1].engine.submits().len() == 6);
    assert_eq!(drop_on_all(&world, ID, Duration::ZERO), []);
    pool.held.quarantine(ID);
    assert_eq!(pool.held.quarantined().collect::<Vec<_>>(), [(ID, &aborted[..])]);
    // Two ranks are done with theirs; all the same nobody gets one.
    let next = RequestId(8);
    let taken = pool.take(next, 9);
    assert_eq!(taken, pages(9, 9));
    pool.held.release(next);
    // The frozen writes end, with what was there when they were submitted.
    world.ranks[1].engine.release_all();
    until("quiet", || world.ranks[1].manager.progress(ID).is_none_or(|progress| progress.is_quiet));
    assert_eq!(drop_on_all(&world, ID, LONG), [ID]);
    assert_eq!(pool.held.release(ID), aborted);
    let taken = pool.take(next, 9);
    assert_eq!(taken, aborted);
    world.write_all(&taken, 2);
    // What rank 1 sent late is of the first generation, whole.
    for (position, &page) in (0..).zip(&aborted).filter(|(_, page)| page.0 % 3 == 1) {
        world.expect(&offer, position, &[page], |_| 1);
    }
    assert!(!world.is_complete(&offer));
}
