//! Random schedules: layers that fire late, twice or never, chunks, caches, engines that reorder, submits and batches that
//! fail, requests that are dropped. Whatever happens, a page of a layer is asked for once, a request that is reported done
//! holds the bytes of a monolithic send, and one that failed leaves no completion record.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/polled.rs"]
mod polled;
#[path = "support/transfer.rs"]
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cpkv::transfer::{ManagerOptions, Offer, Quiet, RequestId, RequestRun};
use cpkv::units::PageId;
use polled::polled;
use proptest::prelude::*;
use transfer::{LONG, Making, Shape, World};

/// One thing that happens.
#[derive(Clone, Debug)]
enum Op {
    /// The hook of a layer fires on one rank.
    Hook { rank: usize, layer: usize },
    /// Events of one rank fire, up to one of them.
    Fire { rank: usize, upto: usize },
    /// A forward ends on one rank, and the next chunk begins.
    NextChunk { rank: usize },
    /// One rank's engine lets some batches through.
    Release { rank: usize, num: usize },
    /// Workers of a manager without threads.
    Drive { rank: usize },
    /// A request is dropped on one rank.
    Drop { rank: usize, request: usize },
}

/// One request: pages by part (the first is the cached prefix), and positions that the decode side holds.
#[derive(Clone, Debug)]
struct Plan {
    parts: [u32; 3],
    cached: BTreeSet<u32>,
}

#[derive(Clone, Debug)]
struct Schedule {
    shape: Shape,
    num_threads: u32,
    /// Whether requests are finished by polls.
    polls: bool,
    multi_fire: Vec<bool>,
    plans: Vec<Plan>,
    ops: Vec<Op>,
    reorder: Option<u64>,
    hold: bool,
    fail_submits: BTreeSet<u64>,
    fail_batches: BTreeMap<u64, usize>,
}

fn ops(ranks: usize, layers: usize, requests: usize) -> impl Strategy<Value = Vec<Op>> {
    let rank = 0..ranks;
    let op = prop_oneof![
        8 => (rank.clone(), 0..layers).prop_map(|(rank, layer)| Op::Hook { rank, layer }),
        4 => (rank.clone(), 0..40usize).prop_map(|(rank, upto)| Op::Fire { rank, upto }),
        1 => rank.clone().prop_map(|rank| Op::NextChunk { rank }),
        3 => (rank.clone(), 1..4usize).prop_map(|(rank, num)| Op::Release { rank, num }),
        3 => rank.clone().prop_map(|rank| Op::Drive { rank }),
        1 => (rank, 0..requests * 8).prop_map(|(rank, request)| Op::Drop { rank, request }),
    ];
    proptest::collection::vec(op, 0..60)
}

fn schedules() -> impl Strategy<Value = Schedule> {
    let plan = ([0..6u32, 0..6u32, 0..5u32], proptest::collection::btree_set(0..16u32, 0..5))
        .prop_map(|(parts, cached)| Plan { parts, cached });
    let plans = proptest::collection::vec(plan, 1..4);
    let world = (1..4u32, 1..3u32, 1..5usize, 0..3u32, plans);
    world.prop_flat_map(|(ranks, workers, layers, num_threads, plans)| {
        let shape = Shape { ranks, workers, layers, prefill_pages: 64, decode_pages: 64 };
        let faults = (
            proptest::option::of(any::<u64>()),
            any::<bool>(),
            proptest::collection::btree_set(0..60u64, 0..2),
            proptest::collection::btree_map(0..60u64, 0..3usize, 0..2),
        );
        let multi_fire = proptest::collection::vec(proptest::bool::weighted(0.2), layers);
        let num_plans = plans.len();
        (ops(ranks as usize, layers, num_plans), multi_fire, faults, any::<bool>()).prop_map(
            move |(ops, multi_fire, faults, polls)| {
                let (reorder, hold, fail_submits, fail_batches) = faults;
                let (shape, plans) = (shape.clone(), plans.clone());
                Schedule {
                    shape,
                    num_threads,
                    polls,
                    multi_fire,
                    plans,
                    ops,
                    reorder,
                    hold,
                    fail_submits,
                    fail_batches,
                }
            },
        )
    })
}

/// A request under way.
struct Request {
    offer: Offer,
    parts: Vec<(u32, Vec<PageId>)>,
}

/// What a layer of a part holds once it is complete: multi-fire layers were written before.
const LAST: u64 = 5;

struct Run<'a> {
    schedule: &'a Schedule,
    world: World,
    requests: Vec<Request>,
    /// By rank: the part that its forward computes, from 1.
    chunk: Vec<usize>,
    dropped: BTreeSet<(usize, usize)>,
}

impl<'a> Run<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        let options = ManagerOptions {
            num_threads: schedule.num_threads,
            min_prompt_tokens: 0,
            multi_fire: schedule.multi_fire.clone(),
            ..ManagerOptions::default()
        };
        let world =
            World::with(schedule.shape.clone(), |_| Making { options: options.clone(), ..Making::default() });
        for rank in &world.ranks {
            rank.engine.inject(|faults| {
                faults.reorder = schedule.reorder;
                faults.fail_submits = schedule.fail_submits.clone();
                faults.fail_batches = schedule.fail_batches.clone();
            });
            if schedule.hold {
                rank.engine.hold();
            }
        }
        let mut next_page = 0;
        let requests: Vec<Request> = (0..)
            .zip(&schedule.plans)
            .map(|(request, plan)| {
                let first_page = next_page;
                let num: u32 = plan.parts.iter().sum();
                let mut parts = Vec::new();
                let mut first = 0;
                for num in plan.parts {
                    parts.push((first, transfer::pages((first_page + first) as i32, num as i32)));
                    first += num;
                }
                next_page += num;
                let cached: Vec<u32> = plan.cached.iter().copied().collect();
                Request { offer: world.offer(request, num, first_page, &cached), parts }
            })
            .collect();
        let chunk = vec![0; world.ranks.len()];
        let mut run = Self { schedule, world, requests, chunk, dropped: BTreeSet::new() };
        for request in &run.requests {
            let (first, pages) = request.parts[0].clone();
            run.world.write_all(&pages, LAST);
            run.world.register(&request.offer, &RequestRun { first, pages });
        }
        for rank in 0..run.world.ranks.len() {
            run.next_chunk(rank);
        }
        run
    }

    /// The forward ends, having written everything; the next begins, if there is one.
    fn next_chunk(&mut self, rank: usize) {
        let num_parts = 3;
        if self.chunk[rank] >= num_parts {
            return;
        }
        if self.chunk[rank] > 0 {
            for layer in 0..self.schedule.shape.layers {
                self.write(rank, layer, LAST);
            }
            self.world.ranks[rank].manager.end_forward().unwrap();
        }
        self.chunk[rank] += 1;
        for (idx, request) in self.requests.iter().enumerate() {
            let Some((first, pages)) = request.parts.get(self.chunk[rank]) else { continue };
            if self.dropped.contains(&(rank, idx)) {
                continue;
            }
            let run = RequestRun { first: *first, pages: pages.clone() };
            self.world.ranks[rank].manager.open_chunk(RequestId(idx as u64), &run).unwrap();
        }
    }

    fn write(&self, rank: usize, layer: usize, generation: u64) {
        for request in &self.requests {
            if let Some((_, pages)) = request.parts.get(self.chunk[rank]) {
                self.world.ranks[rank].write(layer, pages, generation);
            }
        }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Hook { rank, layer } => {
                let again = self.schedule.multi_fire[layer];
                // What a layer that is written once holds at its hook is what it holds for ever.
                self.write(rank, layer, if again { 1 } else { LAST });
                self.world.ranks[rank].manager.on_layer_end(layer).unwrap();
            }
            Op::Fire { rank, upto } => {
                let stream = &self.world.ranks[rank].stream;
                (0..upto.min(stream.num_events())).for_each(|event| stream.fire(event));
            }
            Op::NextChunk { rank } => self.next_chunk(rank),
            Op::Release { rank, num } => self.world.ranks[rank].engine.release(num),
            Op::Drive { rank } => drop(self.world.ranks[rank].manager.drive()),
            Op::Drop { rank, request } if request < self.requests.len() => {
                let manager = &self.world.ranks[rank].manager;
                // Not all wait: what is in flight is quarantined.
                manager.drop_request(RequestId(request as u64), Duration::ZERO).ok();
                self.dropped.insert((rank, request));
            }
            Op::Drop { .. } => {}
        }
    }

    /// Ends everything, and compares.
    fn end(mut self) -> Result<(), TestCaseError> {
        for rank in 0..self.world.ranks.len() {
            while self.chunk[rank] < 3 {
                self.next_chunk(rank);
            }
            self.world.ranks[rank].stream.fire_all();
            self.world.ranks[rank].engine.release_all();
        }
        for (idx, request) in self.requests.iter().enumerate() {
            let mut all_done = true;
            for (rank, side) in self.world.ranks.iter().enumerate() {
                let manager = &side.manager;
                let outcome = match self.schedule.polls {
                    true => polled(manager, RequestId(idx as u64)),
                    false => manager.finish(RequestId(idx as u64), &[], LONG),
                };
                let by_rank: Vec<_> = self
                    .world
                    .records(&request.offer)
                    .into_iter()
                    .filter(|((_, by), _)| *by as usize == rank)
                    .collect();
                if let Ok(sent) = &outcome {
                    let progress = manager.progress(RequestId(idx as u64)).unwrap();
                    prop_assert_eq!((progress.sent, progress.unsent), (sent.num_pages, 0));
                    let recorded: u64 = by_rank.iter().map(|(_, record)| record.num_pages).sum();
                    prop_assert_eq!(recorded, sent.num_pages);
                    prop_assert_eq!(by_rank.len(), self.world.workers.len());
                } else {
                    all_done = false;
                    prop_assert!(by_rank.len() < self.world.workers.len() || self.a_record_failed(rank));
                }
                let dropped = self.dropped.contains(&(rank, idx));
                prop_assert!(!(dropped && outcome.is_ok()), "a dropped request is reported done");
                let may_fail = dropped
                    || !self.schedule.fail_submits.is_empty()
                    || !self.schedule.fail_batches.is_empty();
                prop_assert!(may_fail || outcome.is_ok(), "{outcome:?}");
            }
            if all_done {
                prop_assert!(self.world.is_complete(&request.offer));
                for (first, pages) in &request.parts {
                    self.world.expect(&request.offer, *first, pages, |_| LAST);
                }
            }
        }
        self.exactly_once()
    }

    /// The record itself may have been what failed, after it was written.
    fn a_record_failed(&self, rank: usize) -> bool {
        let failing = &self.schedule.fail_batches;
        self.world.ranks[rank].engine.submits().iter().any(|submit| {
            submit.outcome.as_ref().is_ok_and(|batch| failing.contains_key(&batch.0))
                && submit.blocks.len() == 1
        })
    }

    /// By the engines' own logs: no byte of a page was asked for twice, and nothing of a dropped request was lost count of.
    fn exactly_once(self) -> Result<(), TestCaseError> {
        let mut asked: Vec<(Box<str>, u64, u64)> = Vec::new();
        for rank in &self.world.ranks {
            for submit in rank.engine.submits().iter().filter(|submit| submit.outcome.is_ok()) {
                asked.extend(submit.blocks.iter().map(|block| (submit.peer.clone(), block.dst, block.bytes)));
            }
        }
        asked.sort_unstable();
        for pair in asked.windows(2) {
            let ((peer, dst, bytes), (next_peer, next, _)) = (&pair[0], &pair[1]);
            prop_assert!(peer != next_peer || dst + bytes <= *next, "{peer}: {dst:#x} is written twice");
        }
        for (rank, side) in self.world.ranks.iter().enumerate() {
            for request in 0..self.requests.len() {
                let id = RequestId(request as u64);
                if !side.manager.has_request(id) {
                    prop_assert!(self.dropped.contains(&(rank, request)));
                    continue;
                }
                let quiet = side.manager.drop_request(id, LONG).unwrap();
                // Only what failed on its way stays in quarantine: everything else was let through.
                let may_be_lost = !self.schedule.fail_batches.is_empty();
                prop_assert!(quiet == Quiet::Confirmed || may_be_lost, "{quiet:?}");
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_schedule_every_page_goes_once_and_done_means_done(schedule in schedules()) {
        let mut run = Run::new(&schedule);
        for op in &schedule.ops {
            run.step(op);
        }
        run.end()?;
    }
}
