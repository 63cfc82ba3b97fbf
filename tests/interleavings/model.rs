//! The rules: which moves a state allows, and what each of them does.

use crate::protocol::{Fault, Kernel, PrefixPage, Protocol};
use crate::state::{
    Choice, Lane, MAX_LANES, MAX_LAYERS, MAX_RANKS, Move, Place, Position, RankSet, Stamp, State, Violation,
};

/// A protocol with its program spelt out.
pub(crate) struct Model {
    protocol: Protocol,
    program: Vec<Kernel>,
}

impl Model {
    pub(crate) fn new(protocol: &Protocol) -> Self {
        Self::with_program(protocol, protocol.program())
    }

    /// The protocol's ranks, faults and timeouts with another program than its own.
    pub(crate) fn with_program(protocol: &Protocol, program: Vec<Kernel>) -> Self {
        assert!((2..=MAX_RANKS).contains(&usize::from(protocol.num_ranks)));
        assert!(usize::from(protocol.num_layers) <= MAX_LAYERS);
        assert!(program.len() <= usize::from(u8::MAX));
        let ranks_differ = matches!(protocol.fault, Fault::MissingPeerAdd | Fault::MissingWait);
        assert!(!(protocol.reduced && ranks_differ), "a reduced search takes the ranks as alike");
        Self { protocol: *protocol, program }
    }

    pub(crate) fn initial(&self) -> State {
        State {
            positions: [Position { step: 0, lanes: [self.first_phase(); MAX_LANES] }; MAX_RANKS],
            words: [[0; MAX_RANKS]; MAX_RANKS],
            staging: [[Stamp::EMPTY; 2]; MAX_RANKS],
            pool: [[[Stamp::EMPTY; 2]; MAX_LAYERS]; MAX_RANKS],
            poisoned: RankSet::default(),
            returned: RankSet::default(),
            gather_skipped: RankSet::default(),
            halted: RankSet::default(),
            num_timeouts: 0,
        }
    }

    pub(crate) fn num_ranks(&self) -> usize {
        usize::from(self.protocol.num_ranks)
    }

    fn models_poison(&self) -> bool {
        self.protocol.max_timeouts > 0
    }

    fn first_phase(&self) -> Lane {
        if self.models_poison() { Lane::Unchecked } else { Lane::Ready }
    }

    /// The kernel `rank` is running, or none when it has finished.
    pub(crate) fn kernel(&self, state: &State, rank: usize) -> Option<Kernel> {
        self.program.get(usize::from(state.positions[rank].step)).copied()
    }

    fn num_lanes(&self, kernel: Kernel) -> usize {
        let num_peers = self.num_ranks() - 1;
        match kernel {
            Kernel::Fill { .. } | Kernel::Persist { .. } => 1,
            Kernel::Barrier | Kernel::ReadPrefix(_) | Kernel::Gather { prefix: None, .. } => num_peers,
            Kernel::Gather { prefix: Some(_), .. } => 2 * num_peers,
        }
    }

    /// The peer that `lane` of `rank` works on.
    pub(crate) fn peer(&self, rank: usize, lane: usize) -> usize {
        let num_ranks = self.num_ranks();
        (rank + 1 + lane % (num_ranks - 1)) % num_ranks
    }

    /// What `lane` of a gathering kernel reads, and what it must find; none for the other kernels.
    pub(crate) fn read(&self, kernel: Kernel, rank: usize, lane: usize) -> Option<(Place, Stamp)> {
        let peer = self.peer(rank, lane);
        let pool =
            |prefix: PrefixPage| (Place::Pool { peer, layer: prefix.layer, page: prefix.page }, prefix.stamp);
        match kernel {
            Kernel::ReadPrefix(prefix) => Some(pool(prefix)),
            Kernel::Gather { half, stamp, .. } if lane < self.num_ranks() - 1 => {
                Some((Place::Staging { peer, half }, stamp))
            }
            Kernel::Gather { prefix, .. } => prefix.map(pool),
            Kernel::Fill { .. } | Kernel::Barrier | Kernel::Persist { .. } => None,
        }
    }

    /// Puts every enabled move of `state` into `moves`. A reduced search leaves out two kinds:
    ///
    /// * beside a private move, all others: it commutes with each of them, and nothing but its rank's halt, of
    ///   which it then leaves no mark, takes it away;
    /// * a first timeout on another rank than 0: ranks are alike, so turning the group makes it rank 0's.
    pub(crate) fn moves(&self, state: &State, moves: &mut Vec<Move>) {
        moves.clear();
        for rank in 0..self.num_ranks() {
            let Some(kernel) = self.kernel(state, rank) else { continue };
            if state.halted.contains(rank) {
                continue;
            }
            for lane in 0..self.num_lanes(kernel) {
                let as_move = |choice| Move { rank: rank as u8, lane: lane as u8, choice };
                if self.protocol.reduced && self.is_private(state, kernel, rank, lane) {
                    moves.clear();
                    moves.push(as_move(Choice::Go));
                    return;
                }
                self.lane_moves(state, rank, lane, |choice| moves.push(as_move(choice)));
            }
            let spreads = state.positions[rank].lanes.iter().any(|lane| matches!(lane, Lane::Expired(_)));
            if self.protocol.may_halt && state.halted.is_empty() && !spreads {
                moves.push(Move { rank: rank as u8, lane: 0, choice: Choice::Halt });
            }
        }
    }

    fn lane_moves(&self, state: &State, rank: usize, lane: usize, mut allow: impl FnMut(Choice)) {
        match state.positions[rank].lanes[lane] {
            Lane::Done => {}
            Lane::Waiting => {
                let arrived = state.words[rank][self.peer(rank, lane)] <= 0;
                if arrived || (rank == 0 && self.protocol.fault == Fault::MissingWait) {
                    allow(Choice::Go);
                }
                if state.poisoned.contains(rank) {
                    allow(Choice::SeePoison);
                }
                let turned_away = self.protocol.reduced && rank != 0 && state.num_timeouts == 0;
                if state.num_timeouts < self.protocol.max_timeouts && !turned_away {
                    allow(Choice::Expire);
                }
            }
            _ => allow(Choice::Go),
        }
    }

    /// Whether the next step of a lane is seen by its own lane only and comes out the same at any later time:
    /// +1 on the own word, which the lane's own wait alone reads, and ending on a poison word that is set,
    /// which never clears.
    fn is_private(&self, state: &State, kernel: Kernel, rank: usize, lane: usize) -> bool {
        match state.positions[rank].lanes[lane] {
            Lane::Unchecked => state.poisoned.contains(rank) && self.heeds_poison(kernel),
            Lane::WaitOver => state.poisoned.contains(rank),
            Lane::PeerAdded => true,
            _ => false,
        }
    }

    /// The state after `by`, which must be one of the enabled moves.
    ///
    /// # Errors
    /// What `by` did wrong.
    pub(crate) fn apply(&self, state: &State, by: Move) -> Result<State, Violation> {
        let (rank, lane) = (usize::from(by.rank), usize::from(by.lane));
        let mut next = *state;
        if by.choice == Choice::Halt {
            next.halted.insert(rank);
            return Ok(next);
        }
        let Some(kernel) = self.kernel(state, rank) else { return Ok(next) };
        let phase = match (by.choice, state.positions[rank].lanes[lane]) {
            (Choice::Expire, _) => {
                next.num_timeouts += 1;
                Lane::Expired(0)
            }
            (Choice::SeePoison, _) => self.skip(&mut next, kernel, rank),
            (_, Lane::Unchecked) if self.heeds_poison(kernel) && state.poisoned.contains(rank) => {
                self.skip(&mut next, kernel, rank)
            }
            (_, Lane::Unchecked) => Lane::Ready,
            (_, phase) if kernel == Kernel::Barrier => self.barrier_step(&mut next, rank, lane, phase)?,
            _ => self.work(&mut next, kernel, rank, lane)?,
        };
        next.positions[rank].lanes[lane] = phase;
        if next.positions[rank].lanes[..self.num_lanes(kernel)].iter().all(|&phase| phase == Lane::Done) {
            let step = next.positions[rank].step + 1;
            next.positions[rank] = Position { step, lanes: [self.first_phase(); MAX_LANES] };
        }
        Ok(next)
    }

    fn heeds_poison(&self, kernel: Kernel) -> bool {
        match kernel {
            Kernel::Fill { .. } => self.protocol.fault != Fault::FillIgnoresPoison,
            Kernel::Gather { .. } | Kernel::ReadPrefix(_) => {
                self.protocol.fault != Fault::GatherIgnoresPoison
            }
            Kernel::Persist { .. } => self.protocol.fault != Fault::PersistIgnoresPoison,
            Kernel::Barrier => true,
        }
    }

    /// A lane of `kernel` ends because it found the poison word set.
    fn skip(&self, next: &mut State, kernel: Kernel, rank: usize) -> Lane {
        match kernel {
            Kernel::Barrier => next.returned.insert(rank),
            Kernel::Gather { .. } | Kernel::ReadPrefix(_) => next.gather_skipped.insert(rank),
            Kernel::Fill { .. } | Kernel::Persist { .. } => {}
        }
        Lane::Done
    }

    fn barrier_step(
        &self,
        next: &mut State,
        rank: usize,
        lane: usize,
        phase: Lane,
    ) -> Result<Lane, Violation> {
        let peer = self.peer(rank, lane);
        match phase {
            Lane::Ready => {
                if !(rank == 0 && self.protocol.fault == Fault::MissingPeerAdd) {
                    next.words[peer][rank] -= 1;
                }
                word_in_range(next, peer, rank)?;
                Ok(Lane::PeerAdded)
            }
            Lane::PeerAdded => {
                next.words[rank][peer] += 1;
                word_in_range(next, rank, peer)?;
                Ok(Lane::Waiting)
            }
            Lane::Waiting if next.positions[peer].step < next.positions[rank].step => {
                Err(Violation::PassedEarly { rank, peer })
            }
            Lane::Waiting if self.models_poison() && self.protocol.fault != Fault::NoCheckAfterWait => {
                Ok(Lane::WaitOver)
            }
            Lane::Waiting => Ok(Lane::Done),
            Lane::WaitOver if next.poisoned.contains(rank) => Ok(self.skip(next, Kernel::Barrier, rank)),
            Lane::WaitOver => Ok(Lane::Done),
            Lane::Expired(num_set) => Ok(self.spread_poison(next, rank, num_set)),
            Lane::Unchecked | Lane::Done => Ok(phase),
        }
    }

    /// Sets the next poison word of the group: the own one, then each peer's. Returns after the last.
    fn spread_poison(&self, next: &mut State, rank: usize, num_set: u8) -> Lane {
        let target = (rank + usize::from(num_set)) % self.num_ranks();
        let left_out = match self.protocol.fault {
            Fault::TimeoutWithoutPoison => true,
            Fault::PoisonStaysLocal => target != rank,
            Fault::PoisonMissesSelf => target == rank,
            _ => false,
        };
        if !left_out {
            next.poisoned.insert(target);
        }
        if num_set + 1 < self.protocol.num_ranks {
            return Lane::Expired(num_set + 1);
        }
        next.returned.insert(rank);
        Lane::Done
    }

    /// The one read or write of a lane that is not a barrier's.
    fn work(&self, next: &mut State, kernel: Kernel, rank: usize, lane: usize) -> Result<Lane, Violation> {
        let is_fill = matches!(kernel, Kernel::Fill { .. });
        if !is_fill && next.returned.contains(rank) {
            return Err(Violation::RanAfterReturn { rank });
        }
        match kernel {
            Kernel::Fill { half, stamp } => next.staging[rank][usize::from(half)] = stamp,
            Kernel::Persist { .. } if next.gather_skipped.contains(rank) => {
                return Err(Violation::PersistedPartial { rank });
            }
            Kernel::Persist { layer, page, stamp } => {
                next.pool[rank][usize::from(layer)][usize::from(page)] = stamp;
            }
            Kernel::Barrier | Kernel::ReadPrefix(_) | Kernel::Gather { .. } => {}
        }
        if let Some((place, expected)) = self.read(kernel, rank, lane) {
            let found = found_at(next, place);
            if found != expected {
                return Err(Violation::WrongRead { rank, place, found, expected });
            }
        }
        Ok(Lane::Done)
    }

    /// Whether every rank has run its whole program.
    pub(crate) fn is_finished(&self, state: &State) -> bool {
        (0..self.num_ranks()).all(|rank| self.kernel(state, rank).is_none())
    }

    /// What is wrong with a state in which no rank can go on; none while one can.
    pub(crate) fn at_rest(&self, state: &State, moves: &[Move]) -> Option<Violation> {
        if moves.iter().any(|by| by.choice != Choice::Halt) {
            return None;
        }
        let waits = |&rank: &usize| !state.halted.contains(rank) && self.kernel(state, rank).is_some();
        if let Some(rank) = (0..self.num_ranks()).find(waits) {
            // While a timeout is left, only a reduced search gets here, and the turned run goes on.
            let may_expire = state.num_timeouts < self.protocol.max_timeouts;
            return (!may_expire).then_some(Violation::Stuck { rank });
        }
        if !state.halted.is_empty() || !state.returned.is_empty() {
            return None;
        }
        let pairs = (0..MAX_RANKS).flat_map(|rank| (0..MAX_RANKS).map(move |peer| (rank, peer)));
        pairs
            .map(|(rank, peer)| (rank, peer, state.words[rank][peer]))
            .find(|&(.., word)| word != 0)
            .map(|(rank, peer, word)| Violation::WordNotZero { rank, peer, word })
    }
}

pub(crate) fn found_at(state: &State, place: Place) -> Stamp {
    match place {
        Place::Staging { peer, half } => state.staging[peer][usize::from(half)],
        Place::Pool { peer, layer, page } => state.pool[peer][usize::from(layer)][usize::from(page)],
    }
}

fn word_in_range(state: &State, rank: usize, peer: usize) -> Result<(), Violation> {
    match state.words[rank][peer] {
        // -2: the peer passed this barrier and entered the next one before the own +1.
        -2..=1 => Ok(()),
        word => Err(Violation::WordOutOfRange { rank, peer, word }),
    }
}
