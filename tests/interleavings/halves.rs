//! The staging half: by epoch it is right, by layer, by batch or alone it is not.

use crate::model::Model;
use crate::protocol::{HalfBy, Protocol};
use crate::state::{Place, Violation};
use crate::{assert_right, assert_wrong, group_sizes, sized};

#[test]
fn the_half_from_the_epoch_is_right_for_any_number_of_layers() {
    for num_layers in 1..=3 {
        for (protocol, per_layer) in group_sizes(num_layers).iter().zip([200, 60_000]) {
            let min_num_states = per_layer * usize::from(num_layers);
            assert_right(&Model::new(protocol), &sized(protocol, "half by epoch"), min_num_states);
        }
    }
}

#[test]
fn the_half_from_the_layer_is_wrong_with_an_odd_number_of_layers() {
    for protocol in [group_sizes(1), group_sizes(3)].as_flattened() {
        assert_stale_half(&Protocol { half: HalfBy::Layer, ..*protocol }, "half by layer");
    }
}

#[test]
fn the_half_from_the_layer_is_right_with_two_layers() {
    for (protocol, min_num_states) in group_sizes(2).iter().zip([500, 150_000]) {
        let protocol = Protocol { half: HalfBy::Layer, ..*protocol };
        assert_right(&Model::new(&protocol), &sized(&protocol, "half by layer"), min_num_states);
    }
}

#[test]
fn the_half_from_the_batch_is_wrong_with_several_layers() {
    for protocol in [group_sizes(2), group_sizes(3)].as_flattened() {
        assert_stale_half(&Protocol { half: HalfBy::Batch, ..*protocol }, "half by batch");
    }
}

#[test]
fn a_single_half_is_wrong_for_any_number_of_layers() {
    for protocol in [group_sizes(1), group_sizes(2), group_sizes(3)].as_flattened() {
        assert_stale_half(&Protocol { half: HalfBy::Single, ..*protocol }, "single half");
    }
}

/// A reader must be found that meets a staging half already written again.
#[track_caller]
fn assert_stale_half(protocol: &Protocol, what: &str) {
    let violation = assert_wrong(&Model::new(protocol), &sized(protocol, what), 30);
    let Violation::WrongRead { place: Place::Staging { .. }, found, expected, .. } = violation else {
        panic!("{what}: {violation}")
    };
    assert!(found > expected, "{what}: {violation}");
}
