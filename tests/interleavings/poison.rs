//! Timeouts and poison. A search that finds nothing has shown, for every interleaving: no rank gathers or
//! persists after its barrier gave up; no gather that runs reads a wrong stamp; nothing gathered in part is
//! persisted; every rank that has not halted terminates.

use crate::model::Model;
use crate::protocol::{Fault, Protocol};
use crate::state::Violation;
use crate::{assert_right, assert_wrong, sized};

/// One timeout, and three layers in the queue: what follows must end without a second one.
const ONE_TIMEOUT: Protocol = Protocol { max_timeouts: 1, ..Protocol::staging_fill(2, 3, 1) };
const ANY_TIMEOUTS: u8 = u8::MAX;

#[test]
fn one_timeout_ends_every_rank_and_no_incomplete_staging_is_read() {
    let with_prefix = Protocol { num_layers: 1, num_batches: 4, ..ONE_TIMEOUT };
    let three_ranks = Protocol { num_ranks: 3, reduced: true, ..ONE_TIMEOUT };
    for (protocol, min_num_states) in [(ONE_TIMEOUT, 3_000), (with_prefix, 5_000), (three_ranks, 700_000)] {
        assert_right(&Model::new(&protocol), &sized(&protocol, "one timeout"), min_num_states);
    }
}

#[test]
fn one_timeout_ends_the_other_ranks_when_one_has_halted() {
    let with_prefix = Protocol { num_layers: 1, num_batches: 4, ..ONE_TIMEOUT };
    let three_ranks = Protocol { num_ranks: 3, num_layers: 2, reduced: true, ..ONE_TIMEOUT };
    for (protocol, min_num_states) in [(ONE_TIMEOUT, 9_000), (with_prefix, 30_000), (three_ranks, 1_000_000)]
    {
        let protocol = Protocol { may_halt: true, ..protocol };
        assert_right(&Model::new(&protocol), &sized(&protocol, "one timeout, one may halt"), min_num_states);
    }
}

#[test]
fn timeouts_on_several_ranks_at_once_are_as_safe() {
    let with_prefix = Protocol { num_layers: 1, num_batches: 4, ..ONE_TIMEOUT };
    let three_ranks = Protocol { num_ranks: 3, num_layers: 1, reduced: true, ..ONE_TIMEOUT };
    for (protocol, min_num_states) in [(ONE_TIMEOUT, 3_000), (with_prefix, 5_000), (three_ranks, 700_000)] {
        let protocol = Protocol { max_timeouts: ANY_TIMEOUTS, ..protocol };
        assert_right(&Model::new(&protocol), &sized(&protocol, "any timeouts"), min_num_states);
    }
}

type IsExpected = fn(&Violation) -> bool;

/// What a planted fault in the handling of poison must be found as; none where it does no harm.
const POISON_FAULTS: [(Fault, Option<IsExpected>); 7] = [
    (Fault::TimeoutWithoutPoison, Some(|found| matches!(found, Violation::RanAfterReturn { .. }))),
    (Fault::PoisonMissesSelf, Some(|found| matches!(found, Violation::RanAfterReturn { .. }))),
    (Fault::PoisonStaysLocal, Some(|found| matches!(found, Violation::Stuck { .. }))),
    (Fault::GatherIgnoresPoison, Some(|found| matches!(found, Violation::RanAfterReturn { .. }))),
    (Fault::PersistIgnoresPoison, Some(|found| matches!(found, Violation::RanAfterReturn { .. }))),
    (Fault::FillIgnoresPoison, Some(|found| matches!(found, Violation::WrongRead { .. }))),
    // Gather looks for itself: the check after the wait saves work, the safety does not rest on it.
    (Fault::NoCheckAfterWait, None),
];

#[test]
fn faults_in_the_handling_of_poison_are_found() {
    for (fault, expected) in POISON_FAULTS {
        for reduced in [false, true] {
            let protocol = Protocol { fault, reduced, ..ONE_TIMEOUT };
            let what = sized(&protocol, &format!("{fault:?}, reduced: {reduced}"));
            match expected {
                None => assert_right(&Model::new(&protocol), &what, 700),
                Some(is_expected) => {
                    let violation = assert_wrong(&Model::new(&protocol), &what, 20);
                    assert!(is_expected(&violation), "{what}: {violation}");
                }
            }
        }
    }
}
