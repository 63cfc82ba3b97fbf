//! Every interleaving of two and three ranks, for the protocols that staging, pool, barrier and poison follow.
//!
//! Each rank runs one straight program of kernels, in stream order. A kernel has lanes, which advance in any
//! order, one atomic step at a time; between ranks the order is free. Memory is sequentially consistent: this
//! checks the protocol, not the orderings of its accesses. What is read or written in one step here takes
//! long on a machine, but an overlap of a read and a write shows as a wrong read in one of the two orders.
//!
//! Per layer: fill, barrier, gather, persist; the variants of [`Protocol`] move the half, the prefix reads and
//! the pool writes, or add a barrier. Every value is a stamp (batch, layer), so a stale one is told apart.
//!
//! | word                    | written by                       | read by                           | at rest | reset |
//! |-------------------------|----------------------------------|-----------------------------------|---------|-------|
//! | staging `[r][half]`     | r, in fill                       | peers, in gather                  | a stamp | never |
//! | pool `[r][layer][page]` | r, in persist                    | peers, in gather (or before)      | a stamp | never |
//! | signal word `[r][t]`    | r: +1 on entering; t: -1         | r, in its wait, until <= 0        | 0       | never |
//! | poison `[r]`            | r and peers, when a wait expires | r: barrier, fill, gather, persist | clear   | never |
//! | position `r`            | r                                | nobody (the check only)           | the end | never |
//!
//! A lane's steps: read, write; barrier: -1 peer's word, +1 own word, wait. With poison: every lane first looks
//! at its rank's poison word and ends there if it is set; a waiting lane may see it at any moment, or time out
//! at any moment (then it sets its rank's word, then the peers' one by one, and ends); and it looks once more
//! after a wait that succeeded.
//!
//! Every search is complete up to the first violation. With three ranks and poison it is a reduced one, which
//! leaves out orders that no rank can tell apart (`Model::moves`). State counts go to stderr (`--nocapture`);
//! with `INTERLEAVINGS_TRACE` set, counterexamples are told move by move.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "interleavings/barrier.rs"]
mod barrier;
#[path = "interleavings/halves.rs"]
mod halves;
#[path = "interleavings/model.rs"]
mod model;
#[path = "interleavings/poison.rs"]
mod poison;
#[path = "interleavings/pool.rs"]
mod pool;
#[path = "interleavings/protocol.rs"]
mod protocol;
#[path = "interleavings/search.rs"]
mod search;
#[path = "interleavings/state.rs"]
mod state;

use model::Model;
use protocol::{Kernel, Protocol};
use search::{Report, explore, replay};
use state::{Stamp, Violation};

/// Searches, prints the count, and makes sure that no empty or cut-off search passes for a result.
#[track_caller]
fn report(model: &Model, what: &str, min_num_states: usize) -> Report {
    let report = explore(model);
    let verdict = match &report.counterexample {
        None => "right".to_owned(),
        Some(found) => format!("wrong after {} moves: {}", found.trace.len(), found.violation),
    };
    eprintln!("{:>9} states  {what}: {verdict}", report.num_states);
    assert!(report.num_states >= min_num_states, "{what}: only {} states", report.num_states);
    report
}

#[track_caller]
fn assert_right(model: &Model, what: &str, min_num_states: usize) {
    let report = report(model, what, min_num_states);
    assert!(report.counterexample.is_none(), "{what}: found wrong");
    assert!(report.num_finished > 0, "{what}: no run reached its end");
}

/// Searches for a counterexample and runs it again, apart from the search.
#[track_caller]
fn assert_wrong(model: &Model, what: &str, min_num_states: usize) -> Violation {
    let report = report(model, what, min_num_states);
    let Some(found) = report.counterexample else { panic!("{what}: no counterexample") };
    assert!(!found.trace.is_empty(), "{what}: wrong before the first move");
    let told = std::env::var_os("INTERLEAVINGS_TRACE").is_some();
    let replayed = replay(model, &found.trace, |line| {
        if told {
            eprintln!("           {line}");
        }
    });
    assert_eq!(replayed, Some(found.violation), "{what}: the trace does not show it again");
    found.violation
}

/// The protocol's size in words, and what is special about it.
fn sized(protocol: &Protocol, what: &str) -> String {
    let Protocol { num_ranks, num_layers, num_batches, .. } = protocol;
    format!("{num_ranks} ranks, {num_layers} layers, {num_batches} batches, {what}")
}

/// Both group sizes, with batches enough for a page to be current, prefix, and current again.
fn group_sizes(num_layers: u8) -> [Protocol; 2] {
    [2, 3].map(|num_ranks| Protocol::staging_fill(num_ranks, num_layers, 4))
}

#[test]
fn the_search_visits_every_interleaving_of_independent_steps() {
    let page = Kernel::Persist { layer: 0, page: 0, stamp: Stamp::new(0, 0) };
    for (num_ranks, num_states) in [(2, 4 * 4), (3, 4 * 4 * 4)] {
        let protocol = Protocol::staging_fill(num_ranks, 1, 1);
        let report = report(&Model::with_program(&protocol, vec![page; 3]), "three steps each", num_states);
        assert_eq!((report.num_states, report.num_finished), (num_states, 1));
    }
}
