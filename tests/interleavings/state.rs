//! One state of all ranks and their shared memory, small enough to keep millions of them.

use std::fmt;

use crate::protocol::NUM_POOL_PAGES;

pub(crate) const MAX_RANKS: usize = 3;
pub(crate) const MAX_LAYERS: usize = 3;
/// A gather reads the staging half and one pool page of every peer.
pub(crate) const MAX_LANES: usize = 2 * (MAX_RANKS - 1);

/// What a page or half holds: the batch and layer it was written for, or nothing yet. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stamp(u8);

impl Stamp {
    pub(crate) const EMPTY: Self = Self(0);

    pub(crate) const fn new(batch: u8, layer: u8) -> Self {
        Self(((batch + 1) << 4) | layer)
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 >> 4).checked_sub(1) {
            None => write!(f, "nothing"),
            Some(batch) => write!(f, "(batch {batch}, layer {})", self.0 & 15),
        }
    }
}

/// How far one lane of the running kernel is. The barrier uses all of them, the others three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// About to look at the own poison word (left out where poison is not modelled).
    Unchecked,
    /// About to do its read, its write, or its -1 on the peer's word.
    Ready,
    /// Peer's word done, about to add +1 to the own word.
    PeerAdded,
    /// Waits for the own word to be <= 0.
    Waiting,
    /// The wait succeeded; about to look at the poison word once more.
    WaitOver,
    /// The wait timed out; this many poison words of the group are set, the own one first.
    Expired(u8),
    Done,
}

/// Where a rank is in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Position {
    /// Index of the running kernel; the program's length when finished.
    pub(crate) step: u8,
    pub(crate) lanes: [Lane; MAX_LANES],
}

/// A set of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RankSet(u8);

impl RankSet {
    pub(crate) const fn contains(self, rank: usize) -> bool {
        self.0 & (1 << rank) != 0
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn insert(&mut self, rank: usize) {
        self.0 |= 1 << rank;
    }
}

/// The state table in the crate's head says who writes and reads each of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) positions: [Position; MAX_RANKS],
    pub(crate) words: [[i8; MAX_RANKS]; MAX_RANKS],
    pub(crate) staging: [[Stamp; 2]; MAX_RANKS],
    pub(crate) pool: [[[Stamp; NUM_POOL_PAGES as usize]; MAX_LAYERS]; MAX_RANKS],
    pub(crate) poisoned: RankSet,
    /// Observer: ranks with a barrier lane that returned because of poison or a timeout.
    pub(crate) returned: RankSet,
    /// Observer: ranks with a gather lane that did not run.
    pub(crate) gather_skipped: RankSet,
    pub(crate) halted: RankSet,
    pub(crate) num_timeouts: u8,
}

/// What a lane does where it has a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The next step of the lane's program.
    Go,
    /// A waiting lane sees its rank's poison word set.
    SeePoison,
    /// A waiting lane's timeout expires.
    Expire,
    /// The rank halts for ever.
    Halt,
}

/// One atomic step of one lane of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) rank: u8,
    pub(crate) lane: u8,
    pub(crate) choice: Choice,
}

/// The place a lane reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Staging { peer: usize, half: u8 },
    Pool { peer: usize, layer: u8, page: u8 },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Staging { peer, half } => write!(f, "staging half {half} of rank {peer}"),
            Self::Pool { peer, layer, page } => write!(f, "pool page {page}, layer {layer}, of rank {peer}"),
        }
    }
}

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// A read met bytes of another batch or layer, or none.
    WrongRead { rank: usize, place: Place, found: Stamp, expected: Stamp },
    /// A rank left its wait for a peer that has not arrived at that barrier.
    PassedEarly { rank: usize, peer: usize },
    /// A signal word other than -1, 0 or +1.
    WordOutOfRange { rank: usize, peer: usize, word: i8 },
    /// A gather or persist ran although a barrier before it had returned because of poison.
    RanAfterReturn { rank: usize },
    /// A dense buffer that was gathered in part went into the pool.
    PersistedPartial { rank: usize },
    /// No step is enabled and a rank that did not halt has not finished.
    Stuck { rank: usize },
    /// Every rank has left every barrier, and this word is not 0.
    WordNotZero { rank: usize, peer: usize, word: i8 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongRead { rank, place, found, expected } => {
                write!(f, "rank {rank} reads {place}: found {found}, expected {expected}")
            }
            Self::PassedEarly { rank, peer } => write!(f, "rank {rank} passes before rank {peer} arrived"),
            Self::WordOutOfRange { rank, peer, word } => write!(f, "word [{rank}][{peer}] is {word}"),
            Self::RanAfterReturn { rank } => write!(f, "rank {rank} works on after its barrier gave up"),
            Self::PersistedPartial { rank } => write!(f, "rank {rank} persists a page gathered in part"),
            Self::Stuck { rank } => write!(f, "rank {rank} waits for ever"),
            Self::WordNotZero { rank, peer, word } => write!(f, "word [{rank}][{peer}] at rest is {word}"),
        }
    }
}
