//! The queue's decisions, without a thread.

use super::super::presence::Presence;
use super::*;

fn block(i: u64) -> Block {
    Block { src: 8 * i, dst: 8 * i + (1 << 20), bytes: 8 }
}

/// A queue of `num_batches` batches of 3 blocks each, to one peer.
fn queue(num_batches: u64) -> (Queue, Arc<Presence>) {
    let (mut queue, target) = (Queue::default(), Arc::default());
    for id in 0..num_batches {
        queue.push(Payload::to(&target, id, (3 * id..3 * id + 3).map(block).collect()));
    }
    (queue, target)
}

const FREE: Around = Around { frozen: false, hold: false, reorder: None, now_ns: 0 };
const HELD: Around = Around { hold: true, ..FREE };
const FROZEN: Around = Around { frozen: true, ..FREE };

/// Delivers all that may be, and gives the blocks in their order.
fn run(queue: &mut Queue, around: Around) -> Vec<u64> {
    let mut written = Vec::new();
    while let Some(turn) = queue.begin_turn(around) {
        written.extend(turn.pieces.iter().map(|piece| piece.src / 8));
        queue.end_turn(around);
    }
    written
}

#[test]
fn batches_go_in_order_and_each_end_is_told_once() {
    let (mut queue, _) = queue(2);
    assert_eq!(queue.poll(BatchId(0)), Ok(BatchState::InFlight));
    assert_eq!(run(&mut queue, FREE), [0, 1, 2, 3, 4, 5]);
    for id in [0, 1] {
        assert_eq!(queue.poll(BatchId(id)), Ok(BatchState::Done));
        assert_eq!(queue.poll(BatchId(id)), Err((None, EngineProblem::UnknownBatch)));
    }
    assert_eq!(queue.counters(), Counters { num_delivered: 2, num_bytes: 48, ..Counters::default() });
}

#[test]
fn held_batches_go_one_by_one_as_they_are_released_those_to_come_included() {
    let (mut queue, target) = queue(2);
    assert!(run(&mut queue, HELD).is_empty() && !queue.is_busy(HELD));
    queue.release(1);
    assert_eq!(run(&mut queue, HELD), [0, 1, 2]);
    queue.release(2);
    assert_eq!(run(&mut queue, HELD), [3, 4, 5]);
    for id in [2, 3] {
        queue.push(Payload::to(&target, id, vec![block(id)]));
    }
    assert_eq!(run(&mut queue, HELD), [2]);
    assert_eq!(queue.poll(BatchId(3)), Ok(BatchState::InFlight));
    assert_eq!(run(&mut queue, FREE), [3]);
}

#[test]
fn a_batch_can_be_released_block_by_block_and_before_earlier_ones() {
    let (mut queue, _) = queue(2);
    assert!(queue.release_blocks(BatchId(1), 2) && !queue.release_blocks(BatchId(2), 1));
    assert_eq!(run(&mut queue, HELD), [3, 4]);
    assert_eq!(queue.poll(BatchId(1)), Ok(BatchState::InFlight));
    assert!(queue.release_blocks(BatchId(1), usize::MAX));
    assert_eq!(run(&mut queue, HELD), [5]);
    assert_eq!(queue.poll(BatchId(1)), Ok(BatchState::Done));
    assert_eq!(queue.undelivered().collect::<Vec<_>>(), [BatchId(0)]);
}

#[test]
fn seeds_give_different_orders_of_batches() {
    let order = |seed| run(&mut queue(6).0, Around { reorder: Some(seed), ..FREE });
    let orders: std::collections::HashSet<_> = (0..8).map(order).collect();
    assert!(orders.len() > 4, "{orders:?}");
    assert_eq!(order(3), order(3));
}

#[test]
fn a_batch_reported_early_is_done_before_it_is_written_and_cannot_be_taken_back() {
    let (mut queue, target) = queue(0);
    queue.push(Payload { reported: true, ..Payload::to(&target, 0, vec![block(0)]) });
    assert_eq!(queue.poll(BatchId(0)), Ok(BatchState::Done));
    assert_eq!(queue.abandon(BatchId(0), HELD), Abandoned::Loose);
    assert_eq!(run(&mut queue, FREE), [0]);
    assert_eq!(queue.abandon(BatchId(0), HELD), Abandoned::Quiet);
    assert_eq!(queue.poll(BatchId(0)), Err((None, EngineProblem::UnknownBatch)));
}

#[test]
fn a_batch_that_waits_is_cancelled_cleanly_and_one_under_way_with_its_turn() {
    let (mut queue, _) = queue(2);
    assert!(queue.begin_turn(FREE).is_some());
    assert_eq!(queue.abandon(BatchId(1), FREE), Abandoned::Quiet);
    assert_eq!(queue.abandon(BatchId(0), FREE), Abandoned::EndsWithTurn);
    assert!(!queue.is_quiet(BatchId(0)) && queue.is_quiet(BatchId(1)));
    queue.end_turn(FREE);
    assert!(queue.is_quiet(BatchId(0)) && queue.is_empty());
    assert_eq!(queue.counters().num_cancelled, 2);
    assert_eq!(queue.counters().num_delivered, 0);
}

#[test]
fn a_frozen_batch_is_loose_whoever_is_frozen_and_is_written_after_the_thaw() {
    let (mut own, _) = queue(1);
    assert_eq!(own.abandon(BatchId(0), FROZEN), Abandoned::Loose);
    assert_eq!(own.poll(BatchId(0)), Err((None, EngineProblem::UnknownBatch)));
    assert!(run(&mut own, FROZEN).is_empty());
    assert_eq!(run(&mut own, FREE), [0, 1, 2]);

    let (mut to_frozen, target) = queue(1);
    target.change_faults(|faults| faults.freeze = true);
    assert_eq!(to_frozen.abandon(BatchId(0), FREE), Abandoned::Loose);
    assert!(run(&mut to_frozen, FREE).is_empty());
    target.change_faults(|faults| faults.freeze = false);
    assert_eq!(run(&mut to_frozen, FREE), [0, 1, 2]);
}

#[test]
fn batches_to_a_dead_or_forgotten_peer_fail_but_not_in_the_middle_of_a_turn() {
    let (mut queue, target) = queue(2);
    assert!(queue.begin_turn(FREE).is_some());
    target.die();
    queue.sweep(FREE);
    assert_eq!(queue.poll(BatchId(0)), Ok(BatchState::InFlight));
    let lost = EngineProblem::PeerLost { code: codes::RESET };
    assert_eq!(queue.poll(BatchId(1)), Err((Some(PeerId(0)), lost)));
    queue.end_turn(FREE);
    assert_eq!(queue.poll(BatchId(0)), Ok(BatchState::Done));

    let (mut queue, _) = self::queue(1);
    queue.forget(PeerId(1));
    queue.sweep(FREE);
    assert_eq!(queue.poll(BatchId(0)), Ok(BatchState::InFlight));
    queue.forget(PeerId(0));
    queue.sweep(FREE);
    assert_eq!(queue.poll(BatchId(0)), Err((Some(PeerId(0)), EngineProblem::UnknownPeer)));
    assert!(queue.is_empty());
}

#[test]
fn a_cleared_queue_forgets_all_but_the_turn_under_way() {
    let (mut queue, _) = queue(3);
    assert!(queue.begin_turn(FREE).is_some());
    queue.clear();
    assert_eq!(queue.undelivered().collect::<Vec<_>>(), [BatchId(0)]);
    assert_eq!(queue.poll(BatchId(0)), Err((None, EngineProblem::UnknownBatch)));
    queue.end_turn(FREE);
    assert!(queue.is_empty() && queue.begin_turn(FREE).is_none());
}
