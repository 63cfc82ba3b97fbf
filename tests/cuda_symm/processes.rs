//! Ranks that are processes under `mpirun`: capability that is only promised, and a rank that is killed.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cpkv::group::{Fault, Group, GroupError, GroupOptions};
use cpkv::units::Rank;

use crate::support::fixture::{LONG, group_options};
use crate::support::processes::{die, doomed_setup, mpi_setup, ranks};
use crate::support::{Ending, KILLED, MpiJob, under_mpirun};
use crate::vgpu::in_child;
use crate::{expect_collective_path, expect_every_strategy};

/// Faults, and what all ranks say of them.
const CASES: [(&str, &[&str]); 5] = [
    ("peer-lies@rank1", &["rank 1: ", "opening the memory of rank 0", "cuIpcOpenMemHandle", "205"]),
    ("peer-garbage@rank2", &["rank 2: ", "reads other bytes than rank 0 wrote"]),
    // What rank 0 adds to the others' words is lost: they miss it.
    ("lost-adds@rank0", &["rank 1: ", "rank 2: ", "counts 512 of 768 concurrent adds"]),
    ("export-fails@rank1", &["rank 1: ", "exporting symmetric memory", "cuIpcGetMemHandle", "205"]),
    ("peer-off@rank2", &["rank 2: ", "opening the memory of rank 0", "cuIpcOpenMemHandle", "217"]),
];

/// Runs `body` under `mpirun` on the virtual GPU with more variables; the faults of the machine that all processes told.
#[track_caller]
pub(crate) fn on_gpus<F: FnOnce()>(environment: &[(&str, &str)], body: F) -> String {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("faults");
    let log_variable = ("CPKV_VGPU_FAULT_LOG", log.to_str().unwrap());
    in_child(&[environment, &[log_variable]].concat(), body);
    fs::read_to_string(&log).unwrap_or_default()
}

fn case(name: &str) -> &'static [&'static str] {
    CASES.iter().find(|(fault, _)| *fault == name).map(|(_, words)| *words).unwrap()
}

/// All three ranks take the collective path where `fault` is staged on one of them.
macro_rules! collective_path {
    ($($test:ident: $fault:literal),*) => {$(
        #[test]
        fn $test() {
            let test = concat!("processes::", stringify!($test));
            let faults = on_gpus(&[("CPKV_VGPU_DEVICES", "3"), ("CPKV_VGPU_FAULTS", $fault)], || {
                under_mpirun(&MpiJob::new(3), test, || {
                    expect_collective_path(&mpi_setup(), case($fault));
                    Ending::Normal
                });
            });
            assert_eq!(faults, "");
        }
    )*};
}

collective_path!(
    a_rank_that_cannot_open_what_it_was_promised_sends_all_down_the_collective_path: "peer-lies@rank1",
    a_rank_that_opens_other_memory_sends_all_down_the_collective_path: "peer-garbage@rank2",
    a_rank_whose_adds_are_lost_sends_all_down_the_collective_path: "lost-adds@rank0",
    a_rank_that_cannot_export_its_memory_sends_all_down_the_collective_path: "export-fails@rank1",
    a_rank_without_access_to_the_others_gpus_sends_all_down_the_collective_path: "peer-off@rank2"
);

#[test]
fn processes_on_a_gpu_each_and_on_one_together_are_exact_and_break_no_rule_of_the_machine() {
    const TEST: &str =
        "processes::processes_on_a_gpu_each_and_on_one_together_are_exact_and_break_no_rule_of_the_machine";
    for devices in ["3", "1", "2"] {
        let faults = on_gpus(&[("CPKV_VGPU_DEVICES", devices)], || {
            under_mpirun(&MpiJob::new(3), TEST, || {
                expect_every_strategy(&mpi_setup());
                Ending::Normal
            });
        });
        assert_eq!(faults, "", "{devices} GPUs");
    }
}

/// After this a barrier gives up.
const TIMEOUT: Duration = Duration::from_secs(5);
const VICTIM: Rank = Rank(1);

#[test]
fn a_rank_killed_before_a_barrier_is_named_by_the_others_which_fail_by_themselves_and_free_nothing_in_use() {
    const TEST: &str = "processes::a_rank_killed_before_a_barrier_is_named_by_the_others_which_fail_by_themselves_and_free_nothing_in_use";
    let faults = on_gpus(&[("CPKV_VGPU_DEVICES", "3")], || {
        let job = MpiJob::new(3).surviving(&[0, 2]).exiting(&[1, KILLED, 1]);
        under_mpirun(&job, TEST, || {
            let setup = doomed_setup(None);
            let options = GroupOptions { barrier_timeout: TIMEOUT, ..group_options(LONG) };
            let (bootstrap, backend) = (Arc::clone(&setup.bootstrap), Arc::clone(&setup.backend));
            let mut group = Group::register(bootstrap, Arc::clone(&setup.device), backend, options).unwrap();
            group.barrier(0).unwrap();
            group.synchronize().unwrap();
            if setup.rank() == VICTIM {
                die();
            }
            let started = Instant::now();
            let error = group.barrier(1).and_then(|()| group.synchronize()).unwrap_err();
            let GroupError::Fault(Fault::Barrier { missing, by, .. }) = &error else { panic!("{error}") };
            assert_eq!((*missing, *by == VICTIM), (ranks(&[1]), false), "{error}");
            assert!(started.elapsed() < 3 * TIMEOUT, "{:?}", started.elapsed());
            assert_eq!(group.close().unwrap_err(), error);
            Ending::Fail(1)
        });
    });
    assert_eq!(faults, "");
}
