//! The pool: a page that is current in one batch, prefix in the next, and recycled in the one after.

use crate::model::Model;
use crate::protocol::{PoolWrites, PrefixReads, Protocol};
use crate::state::{Place, Violation};
use crate::{assert_right, assert_wrong, group_sizes, sized};

const EARLY_READS: Protocol =
    Protocol { prefix_reads: PrefixReads::BeforeBarrier, ..Protocol::staging_fill(2, 1, 4) };
const EARLY_WRITES: Protocol =
    Protocol { pool_writes: PoolWrites::BeforeBarrier, ..Protocol::staging_fill(2, 1, 4) };

#[test]
fn a_one_layer_pool_is_safe_when_reads_follow_the_barrier_and_writes_the_gather() {
    for (protocol, min_num_states) in group_sizes(1).iter().zip([200, 70_000]) {
        assert_right(&Model::new(protocol), &sized(protocol, "staging_fill"), min_num_states);
    }
}

#[test]
fn prefix_reads_before_the_barrier_are_wrong_with_one_layer() {
    for num_ranks in [2, 3] {
        let protocol = Protocol { num_ranks, ..EARLY_READS };
        let violation = assert_wrong(&Model::new(&protocol), &sized(&protocol, "early prefix reads"), 25);
        // The owner's persist of the batch before has not happened yet.
        let Violation::WrongRead { place: Place::Pool { .. }, found, expected, .. } = violation else {
            panic!("{violation}")
        };
        assert!(found < expected, "{violation}");
    }
}

#[test]
fn pool_writes_before_the_barrier_are_wrong_with_one_layer() {
    for num_ranks in [2, 3] {
        let protocol = Protocol { num_ranks, ..EARLY_WRITES };
        let violation = assert_wrong(&Model::new(&protocol), &sized(&protocol, "early pool writes"), 80);
        // The page was recycled under its reader.
        let Violation::WrongRead { place: Place::Pool { .. }, found, expected, .. } = violation else {
            panic!("{violation}")
        };
        assert!(found > expected, "{violation}");
    }
}

#[test]
fn a_closing_barrier_per_batch_cures_early_reads_and_early_writes() {
    for (num_ranks, min_num_states) in [(2, 250), (3, 45_000)] {
        for (protocol, what) in [(EARLY_READS, "early prefix reads"), (EARLY_WRITES, "early pool writes")] {
            let protocol = Protocol { num_ranks, closing_barrier: true, ..protocol };
            let what = sized(&protocol, &format!("{what}, closing barrier"));
            assert_right(&Model::new(&protocol), &what, min_num_states);
        }
    }
}

#[test]
fn with_several_layers_early_reads_and_early_writes_are_safe() {
    for (num_ranks, num_layers, min_num_states) in [(2, 2, 400), (2, 3, 600), (3, 2, 60_000), (3, 3, 100_000)]
    {
        for (protocol, what) in [(EARLY_READS, "early prefix reads"), (EARLY_WRITES, "early pool writes")] {
            let protocol = Protocol { num_ranks, num_layers, ..protocol };
            assert_right(&Model::new(&protocol), &sized(&protocol, what), min_num_states);
        }
    }
}
