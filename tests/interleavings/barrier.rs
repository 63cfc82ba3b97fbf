//! The counting barrier alone, and faults planted in it.

use crate::model::Model;
use crate::protocol::{Fault, Kernel, Protocol};
use crate::state::Violation;
use crate::{assert_right, assert_wrong, group_sizes, sized};

#[test]
fn nobody_passes_a_barrier_before_all_arrived_and_the_words_come_to_rest_at_zero() {
    for (num_ranks, num_barriers, min_num_states) in [(2, 2, 25), (2, 3, 40), (3, 2, 5_000), (3, 3, 9_000)] {
        let model = Model::with_program(
            &Protocol::staging_fill(num_ranks, 1, 1),
            vec![Kernel::Barrier; num_barriers],
        );
        let what = format!("{num_ranks} ranks, {num_barriers} barriers back to back");
        assert_right(&model, &what, min_num_states);
    }
}

#[test]
fn a_missing_add_to_the_peers_is_found_as_a_wait_without_end() {
    for protocol in group_sizes(1) {
        let protocol = Protocol { fault: Fault::MissingPeerAdd, ..protocol };
        let violation = assert_wrong(&Model::new(&protocol), &sized(&protocol, "no -1 from rank 0"), 10);
        assert!(matches!(violation, Violation::Stuck { .. }), "{violation}");
    }
}

#[test]
fn a_missing_wait_is_found_as_passing_early() {
    for protocol in group_sizes(1) {
        let protocol = Protocol { fault: Fault::MissingWait, ..protocol };
        let violation = assert_wrong(&Model::new(&protocol), &sized(&protocol, "rank 0 does not wait"), 5);
        assert!(matches!(violation, Violation::PassedEarly { rank: 0, .. }), "{violation}");
    }
}
