//! The bytes of one batch on their way: what may go on, and in which pieces. Decisions only.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::super::{BatchId, EngineProblem, PeerId};
use super::codes;
use super::copy::PIECE_BYTES;
use super::presence::Presence;
use crate::device::DeviceBuffer;
use crate::transfer::Block;

/// How an endpoint stands while it decides what to deliver.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around {
    pub(super) frozen: bool,
    pub(super) hold: bool,
    pub(super) reorder: Option<u64>,
    pub(super) now_ns: u64,
}

/// What keeps a payload from going on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing.
    Ready,
    /// The test has not released it.
    Held,
    /// Its time has not come.
    Delayed,
    /// This endpoint or the peer is frozen: it may go on at any later time.
    Stuck,
    /// It never will.
    Lost(EngineProblem),
}

/// How a payload ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Delivered,
    Failed,
    Cancelled,
}

/// What has to be written of one batch.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) id: BatchId,
    pub(super) peer: PeerId,
    /// The peer, as it shows itself.
    pub(super) target: Arc<Presence>,
    /// In the order of delivery; sources and destinations lie in `keep`.
    pub(super) blocks: Vec<Block>,
    /// The memory of both sides.
    pub(super) keep: Arc<[DeviceBuffer]>,
    pub(super) due_ns: u64,
    /// Blocks that a test released; all of them, and the completion, where it is `usize::MAX`.
    pub(super) num_released: usize,
    /// Blocks after which it fails.
    pub(super) fails_after: Option<usize>,
    /// Its completion was reported already.
    pub(super) reported: bool,
    /// The peer was removed, or added anew.
    pub(super) forgotten: bool,
    /// It must not go on, and ends with the turn that is under way.
    pub(super) cancelled: bool,
    /// The first block that is not written.
    pub(super) next_block: usize,
    /// Bytes of that block that are.
    pub(super) next_byte: u64,
}

impl Payload {
    /// Whether the test has not released what comes next.
    const fn is_held(&self, hold: bool) -> bool {
        hold && self.next_block >= self.num_released
    }

    pub(super) fn standing(&self, around: Around) -> Standing {
        if around.frozen {
            Standing::Stuck
        } else if self.target.is_dead() {
            Standing::Lost(EngineProblem::PeerLost { code: codes::RESET })
        } else if self.target.is_frozen() {
            Standing::Stuck
        } else if self.forgotten {
            Standing::Lost(EngineProblem::UnknownPeer)
        } else if around.now_ns < self.due_ns {
            Standing::Delayed
        } else if self.is_held(around.hold) {
            Standing::Held
        } else {
            Standing::Ready
        }
    }

    /// Takes what is copied next: about [`PIECE_BYTES`]. Only a longer block is cut.
    pub(super) fn take(&mut self, hold: bool) -> Vec<Block> {
        let released = if hold { self.num_released } else { usize::MAX };
        let end = self.fails_after.unwrap_or(usize::MAX).min(released);
        let (mut pieces, mut taken) = (Vec::new(), 0);
        while taken < PIECE_BYTES && self.next_block < end {
            let Some(block) = self.blocks.get(self.next_block) else { break };
            let rest = block.bytes - self.next_byte;
            let bytes = rest.min(PIECE_BYTES);
            pieces.push(Block { src: block.src + self.next_byte, dst: block.dst + self.next_byte, bytes });
            taken += bytes;
            if bytes == rest {
                (self.next_block, self.next_byte) = (self.next_block + 1, 0);
            } else {
                self.next_byte += bytes;
            }
        }
        pieces
    }

    /// How it ends, where all that was to be written is; `None` while it goes on.
    pub(super) fn ending(&self, hold: bool) -> Option<Ending> {
        let is_whole = self.next_block >= self.blocks.len();
        if self.cancelled {
            return Some(Ending::Cancelled);
        }
        if self.is_held(hold) {
            return None;
        }
        match self.fails_after {
            Some(num_blocks) if is_whole || self.next_block >= num_blocks => Some(Ending::Failed),
            _ => is_whole.then_some(Ending::Delivered),
        }
    }

    /// Its place in the order of `seed`.
    pub(super) fn key(&self, seed: u64) -> u64 {
        xxh3_64_with_seed(&self.id.0.to_le_bytes(), seed)
    }
}

/// `blocks` in another order, which `seed` and the batch determine.
pub(super) fn shuffled(blocks: &[Block], batch: BatchId, seed: u64) -> Vec<Block> {
    let seed = seed ^ batch.0.rotate_left(32);
    let mut keyed: Vec<_> = (0_u64..).zip(blocks).collect();
    keyed.sort_by_key(|(at, _)| xxh3_64_with_seed(&at.to_le_bytes(), seed));
    keyed.into_iter().map(|(_, &block)| block).collect()
}

#[cfg(test)]
impl Payload {
    /// Batch `id` of `blocks`, to a peer that lives.
    pub(super) fn to(target: &Arc<Presence>, id: u64, blocks: Vec<Block>) -> Self {
        Self {
            id: BatchId(id),
            peer: PeerId(0),
            target: Arc::clone(target),
            blocks,
            keep: Arc::new([]),
            due_ns: 0,
            num_released: 0,
            fails_after: None,
            reported: false,
            forgotten: false,
            cancelled: false,
            next_block: 0,
            next_byte: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: u64 = 2 * PIECE_BYTES + 8;

    fn blocks() -> Vec<Block> {
        [(0, 8), (100, LONG), (7, 0), (50, 64)]
            .map(|(src, bytes)| Block { src, dst: src + (1 << 40), bytes })
            .to_vec()
    }

    #[test]
    fn pieces_are_bounded_and_cover_each_block_once_and_in_order() {
        let mut payload = Payload::to(&Arc::default(), 0, blocks());
        let mut turns = Vec::new();
        while payload.ending(false).is_none() {
            turns.push(payload.take(false));
        }
        assert_eq!(payload.ending(false), Some(Ending::Delivered));
        let bytes = |turn: &Vec<Block>| turn.iter().map(|piece| piece.bytes).sum::<u64>();
        assert!(turns.iter().all(|turn| bytes(turn) < 2 * PIECE_BYTES), "{turns:?}");
        let mut merged: Vec<Block> = Vec::new();
        for piece in turns.concat() {
            match merged.last_mut() {
                Some(last) if last.src + last.bytes == piece.src && last.bytes > 8 => {
                    last.bytes += piece.bytes
                }
                _ => merged.push(piece),
            }
        }
        assert_eq!(merged, blocks());
    }

    #[test]
    fn only_released_blocks_are_taken_and_the_completion_is_released_last() {
        let mut payload = Payload { num_released: 1, ..Payload::to(&Arc::default(), 0, blocks()) };
        assert_eq!(payload.take(true), blocks()[..1]);
        assert_eq!((payload.take(true), payload.ending(true)), (Vec::new(), None));
        payload.num_released = 4;
        while !payload.take(true).is_empty() {}
        assert_eq!((payload.next_block, payload.ending(true)), (4, None));
        payload.num_released = usize::MAX;
        assert_eq!(payload.ending(true), Some(Ending::Delivered));
    }

    #[test]
    fn a_payload_that_fails_stops_after_its_number_of_blocks() {
        for (num_blocks, written) in [(0, 0), (1, 1), (4, 4), (9, 4)] {
            let mut payload =
                Payload { fails_after: Some(num_blocks), ..Payload::to(&Arc::default(), 0, blocks()) };
            while payload.ending(false).is_none() {
                payload.take(false);
            }
            assert_eq!((payload.next_block, payload.ending(false)), (written, Some(Ending::Failed)));
        }
    }

    #[test]
    fn what_keeps_a_payload_from_going_on_is_told_in_order_of_weight() {
        let target: Arc<Presence> = Arc::default();
        let mut payload = Payload { due_ns: 5, ..Payload::to(&target, 0, blocks()) };
        let at = |now_ns, hold, frozen| Around { frozen, hold, reorder: None, now_ns };
        assert_eq!(payload.standing(at(4, true, false)), Standing::Delayed);
        assert_eq!(payload.standing(at(5, true, false)), Standing::Held);
        assert_eq!(payload.standing(at(5, false, false)), Standing::Ready);
        assert_eq!(payload.standing(at(5, false, true)), Standing::Stuck);
        payload.forgotten = true;
        assert_eq!(payload.standing(at(5, false, false)), Standing::Lost(EngineProblem::UnknownPeer));
        target.change_faults(|faults| faults.freeze = true);
        assert_eq!(payload.standing(at(5, false, false)), Standing::Stuck);
        target.die();
        let lost = Standing::Lost(EngineProblem::PeerLost { code: codes::RESET });
        assert_eq!(payload.standing(at(5, false, false)), lost);
        assert_eq!(payload.standing(at(5, false, true)), Standing::Stuck);
    }

    #[test]
    fn a_seed_gives_one_order_of_the_same_blocks() {
        let many: Vec<Block> = (0..20).map(|src| Block { src, dst: src, bytes: 1 }).collect();
        let once = shuffled(&many, BatchId(3), 7);
        assert_eq!(once, shuffled(&many, BatchId(3), 7));
        assert_ne!(once, many);
        assert_ne!(once, shuffled(&many, BatchId(4), 7));
        let mut sorted = once;
        sorted.sort_by_key(|block| block.src);
        assert_eq!(sorted, many);
    }
}
