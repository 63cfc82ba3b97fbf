//! Breadth-first search over every reachable state, so a counterexample is a shortest one.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use crate::model::{Model, found_at};
use crate::protocol::Kernel;
use crate::state::{Choice, Lane, Move, State, Violation};

/// The moves from the initial state to the violation, the offending one included.
pub(crate) struct Counterexample {
    pub(crate) trace: Vec<Move>,
    pub(crate) violation: Violation,
}

/// What a search found. Without a counterexample, `num_states` is all there are.
pub(crate) struct Report {
    pub(crate) num_states: usize,
    /// States in which every rank has run its whole program.
    pub(crate) num_finished: usize,
    pub(crate) counterexample: Option<Counterexample>,
}

/// A visited state, and how it was first reached.
struct Node {
    state: State,
    /// The node before, and the move from there; none for the initial state.
    reached: Option<(u32, Move)>,
}

/// Visits every state that `model` can reach, until the first violation.
pub(crate) fn explore(model: &Model) -> Report {
    let mut seen: HashSet<State, BuildHasherDefault<Mix>> = HashSet::default();
    let mut nodes = vec![Node { state: model.initial(), reached: None }];
    seen.insert(model.initial());
    let mut moves = Vec::new();
    let mut num_finished = 0;
    let mut cursor = 0;
    let mut found = None;
    'search: while let Some(&Node { state, .. }) = nodes.get(cursor) {
        model.moves(&state, &mut moves);
        num_finished += usize::from(model.is_finished(&state));
        if let Some(violation) = model.at_rest(&state, &moves) {
            found = Some(Counterexample { trace: trace_to(&nodes, cursor), violation });
            break;
        }
        for &by in &moves {
            match model.apply(&state, by) {
                Ok(next) if seen.insert(next) => {
                    nodes.push(Node { state: next, reached: Some((cursor as u32, by)) });
                }
                Ok(_) => {}
                Err(violation) => {
                    let mut trace = trace_to(&nodes, cursor);
                    trace.push(by);
                    found = Some(Counterexample { trace, violation });
                    break 'search;
                }
            }
        }
        cursor += 1;
    }
    Report { num_states: nodes.len(), num_finished, counterexample: found }
}

fn trace_to(nodes: &[Node], mut at: usize) -> Vec<Move> {
    let mut trace = Vec::new();
    while let Some((before, by)) = nodes[at].reached {
        trace.push(by);
        at = before as usize;
    }
    trace.reverse();
    trace
}

/// Runs `trace` in the model, apart from any search, and says how it ends: with the violation of its last
/// move, or of the state that the last move leads to. `tell` hears every move in words.
pub(crate) fn replay(model: &Model, trace: &[Move], mut tell: impl FnMut(String)) -> Option<Violation> {
    let mut state = model.initial();
    let mut moves = Vec::new();
    for (at, &by) in trace.iter().enumerate() {
        model.moves(&state, &mut moves);
        assert!(moves.contains(&by), "move {at} of the trace is not enabled: {by:?}");
        tell(in_words(model, &state, by));
        match model.apply(&state, by) {
            Ok(next) => state = next,
            Err(violation) => {
                assert_eq!(at + 1, trace.len(), "the trace goes on after its violation");
                return Some(violation);
            }
        }
    }
    model.moves(&state, &mut moves);
    model.at_rest(&state, &moves)
}

fn in_words(model: &Model, state: &State, by: Move) -> String {
    let (rank, lane) = (usize::from(by.rank), usize::from(by.lane));
    let phase = state.positions[rank].lanes[lane];
    let peer = model.peer(rank, lane);
    let poison = if state.poisoned.contains(rank) { "set" } else { "clear" };
    let what = match (by.choice, phase, model.kernel(state, rank)) {
        (Choice::Halt, ..) => "halts".to_owned(),
        (Choice::Expire, ..) => format!("wait for rank {peer} times out"),
        (Choice::SeePoison, ..) => format!("wait for rank {peer} ends: poisoned"),
        (_, Lane::Unchecked, Some(kernel)) => format!("{}: poison word {poison}", name(kernel)),
        (_, Lane::WaitOver, _) => format!("barrier, after the wait for rank {peer}: poison word {poison}"),
        (_, Lane::Expired(num_set), _) => {
            format!("poisons rank {}", (rank + usize::from(num_set)) % model.num_ranks())
        }
        (_, Lane::Ready, Some(Kernel::Barrier)) => format!("barrier: -1 to word [{peer}][{rank}]"),
        (_, Lane::PeerAdded, _) => format!("barrier: +1 to word [{rank}][{peer}]"),
        (_, Lane::Waiting, _) => {
            format!("barrier: wait for rank {peer} over, word {}", state.words[rank][peer])
        }
        (_, _, Some(Kernel::Fill { half, stamp })) => format!("fill: half {half} := {stamp}"),
        (_, _, Some(Kernel::Persist { layer, page, stamp })) => {
            format!("persist: pool page {page}, layer {layer} := {stamp}")
        }
        (_, _, kernel) => match kernel.and_then(|kernel| model.read(kernel, rank, lane)) {
            Some((place, _)) => format!("reads {place}: {}", found_at(state, place)),
            None => "nothing".to_owned(),
        },
    };
    format!("rank {rank}  {what}")
}

fn name(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::Fill { .. } => "fill",
        Kernel::Barrier => "barrier",
        Kernel::ReadPrefix(_) => "prefix read",
        Kernel::Gather { .. } => "gather",
        Kernel::Persist { .. } => "persist",
    }
}

/// A quick hash for small integers: the set compares whole states, so a collision only costs time.
#[derive(Default)]
struct Mix(u64);

impl Mix {
    fn add(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.add(u64::from(value));
    }

    fn write_isize(&mut self, value: isize) {
        self.add(value as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
