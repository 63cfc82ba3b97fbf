//! The barrier with ranks as processes, against ranks that are late, frozen or absent.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/adversary.rs"]
mod adversary;
mod support;
use support::fixture;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cpkv::deadline::Deadline;
use cpkv::group::{Fault, Group, GroupError};
use cpkv::units::{Epoch, Rank};

use adversary::Adversary;
use support::fixture::{LONG, Setup, group_options};
use support::processes::{freeze_other, mpi_setup, pids, ranks, thaw};
use support::{Ending, MpiJob, under_mpirun};

const TIMEOUT: Duration = Duration::from_secs(3);

fn register(setup: &Setup, barrier_timeout: Duration) -> Group {
    let (bootstrap, backend) = (Arc::clone(&setup.bootstrap), Arc::clone(&setup.backend));
    Group::register(bootstrap, Arc::clone(&setup.device), backend, group_options(barrier_timeout)).unwrap()
}

fn meet(setup: &Setup, call: &'static str) {
    setup.bootstrap.barrier(call, Deadline::after(LONG)).unwrap();
}

#[test]
fn every_process_sees_every_peers_bytes_though_a_rotating_one_is_late() {
    let test = "every_process_sees_every_peers_bytes_though_a_rotating_one_is_late";
    under_mpirun(&MpiJob::new(8), test, || {
        let mut adversary = Adversary::new(&mpi_setup());
        assert_eq!(adversary.run(true), 0);
        adversary.close();
        Ending::Normal
    });
}

#[test]
fn without_its_barrier_the_adversary_finds_wrong_bytes() {
    under_mpirun(&MpiJob::new(8), "without_its_barrier_the_adversary_finds_wrong_bytes", || {
        let setup = mpi_setup();
        let mut adversary = Adversary::new(&setup);
        let num_wrong = adversary.run(false) as u64;
        let counts = setup.bootstrap.all_gather("wrong", &num_wrong.to_le_bytes(), Deadline::after(LONG));
        let counts = counts.unwrap().into_iter().map(|blob| u64::from_le_bytes(blob.try_into().unwrap()));
        assert!(counts.sum::<u64>() > 0);
        adversary.close();
        Ending::Normal
    });
}

/// Rank 3 is frozen between its add and its wait: it has entered the first barrier, rank 0 has not, so it cannot
/// have passed.
#[test]
fn nobody_passes_the_second_barrier_while_a_rank_is_frozen_inside_the_first() {
    let test = "nobody_passes_the_second_barrier_while_a_rank_is_frozen_inside_the_first";
    under_mpirun(&MpiJob::new(8), test, || {
        let setup = mpi_setup();
        let pids = pids(&setup);
        let mut group = register(&setup, LONG);
        let me = setup.rank();
        if me != Rank(0) {
            group.barrier(1).unwrap();
        } else {
            let started = Instant::now();
            // -1: ahead of me by one barrier.
            while !group.words_not_zero().unwrap().contains(&(Rank(3), -1)) {
                assert!(started.elapsed() < LONG);
                thread::sleep(Duration::from_millis(1));
            }
            freeze_other(pids[3]);
            group.barrier(1).unwrap();
        }
        group.barrier(2).unwrap();
        let passed = group.stream().record().unwrap();
        let mut thawed_ns = 0;
        if me == Rank(0) {
            // Everyone but rank 3 has come to the second barrier.
            let started = Instant::now();
            while group.words_not_zero().unwrap() != [(Rank(3), 1)] {
                assert!(started.elapsed() < LONG, "{:?}", group.words_not_zero().unwrap());
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(200));
            assert!(!passed.query());
            thawed_ns = cpkv_kernels::now_ns();
            thaw(pids[3]);
        }
        group.synchronize().unwrap();
        let times = [passed.fired_at_ns().unwrap(), thawed_ns].map(u64::to_le_bytes).concat();
        let all = setup.bootstrap.all_gather("times", &times, Deadline::after(LONG)).unwrap();
        let time = |rank: usize, at: usize| u64::from_le_bytes(all[rank][at..at + 8].try_into().unwrap());
        assert!((0..8).all(|rank| time(rank, 0) > time(0, 8)), "rank 3 was still frozen");
        assert_eq!((group.words_not_zero().unwrap(), group.epoch()), (vec![], Epoch(2)));
        group.close().unwrap();
        Ending::Normal
    });
}

#[test]
fn a_timeout_names_the_two_absent_processes_and_no_others_and_a_new_group_works() {
    let test = "a_timeout_names_the_two_absent_processes_and_no_others_and_a_new_group_works";
    under_mpirun(&MpiJob::new(8), test, || {
        let setup = mpi_setup();
        let absent = ranks(&[2, 5]);
        let mut group = register(&setup, TIMEOUT);
        let is_absent = absent.contains(setup.rank());
        if is_absent {
            meet(&setup, "reported");
        }
        let started = Instant::now();
        let launched = group.barrier(7);
        let error = launched.and_then(|()| group.synchronize()).unwrap_err();
        let waited = started.elapsed();
        if is_absent {
            assert!(waited < TIMEOUT, "a late rank waited {waited:?} for what it could have read");
        } else {
            assert!(waited < TIMEOUT * 5, "{waited:?}");
            meet(&setup, "reported");
        }
        let GroupError::Fault(Fault::Barrier { by, epoch, missing, tag, .. }) = &error else {
            panic!("{error}");
        };
        assert_eq!((*epoch, *missing, *tag), (Epoch(0), absent, 7));
        assert!(!absent.contains(*by));
        assert_eq!(group.barrier(8), Err(error.clone()));
        assert_eq!(group.close().unwrap_err(), error);
        // The exchange between the ranks is whole: the group can be registered anew.
        let mut anew = register(&setup, LONG);
        anew.barrier(9).unwrap();
        anew.synchronize().unwrap();
        meet(&setup, "all have left");
        assert_eq!(anew.words_not_zero().unwrap(), []);
        anew.close().unwrap();
        Ending::Normal
    });
}
