//! The barrier with ranks as threads, against ranks that are late.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/adversary.rs"]
mod adversary;
#[path = "support/fixture.rs"]
mod fixture;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cpkv::deadline::Deadline;
use cpkv::group::{Fault, Group, GroupError};
use cpkv::units::{Epoch, Rank, RankSet};

use adversary::{Adversary, NUM_ITERATIONS};
use fixture::{LONG, Setup, group_options, on_threads, platform};

const TIMEOUT: Duration = Duration::from_secs(3);

fn register(setup: &Setup, barrier_timeout: Duration) -> Group {
    let (bootstrap, backend) = (Arc::clone(&setup.bootstrap), Arc::clone(&setup.backend));
    Group::register(bootstrap, Arc::clone(&setup.device), backend, group_options(barrier_timeout)).unwrap()
}

#[test]
fn every_rank_sees_every_peers_bytes_though_a_rotating_rank_is_late() {
    on_threads(8, |setup| {
        let mut adversary = Adversary::new(&setup);
        assert_eq!(adversary.run(true), 0);
        assert_eq!(adversary.group.epoch(), Epoch(u64::from(NUM_ITERATIONS)));
        adversary.close();
    });
}

#[test]
fn nobody_passes_the_second_of_two_barriers_before_a_very_late_rank_has_entered_it() {
    let late = Duration::from_secs(1);
    let passes = on_threads(8, |setup| {
        let mut group = register(&setup, LONG);
        group.barrier(1).unwrap();
        if setup.rank() == Rank(3) {
            group.synchronize().unwrap();
            thread::sleep(late);
        }
        let entered_ns = cpkv_kernels::now_ns();
        group.barrier(2).unwrap();
        let passed = group.stream().record().unwrap();
        group.synchronize().unwrap();
        setup.bootstrap.barrier("all have left", Deadline::after(LONG)).unwrap();
        assert_eq!(group.words_not_zero().unwrap(), []);
        group.close().unwrap();
        (entered_ns, passed.fired_at_ns().unwrap())
    });
    let late_entry_ns = passes[3].0;
    assert!(passes.iter().all(|&(_, passed_ns)| passed_ns > late_entry_ns), "{passes:?}");
    assert!(passes.iter().any(|&(entry_ns, _)| entry_ns < late_entry_ns), "nobody was late: {passes:?}");
}

#[test]
fn a_timeout_names_the_two_absent_ranks_and_no_others_and_the_late_ranks_learn_it() {
    let absent: RankSet = [Rank(2), Rank(5)].into_iter().collect();
    let faults = on_threads(8, |setup| {
        let mut group = register(&setup, TIMEOUT);
        group.barrier(1).unwrap();
        group.synchronize().unwrap();
        let is_absent = absent.contains(setup.rank());
        if is_absent {
            setup.bootstrap.barrier("reported", Deadline::after(LONG)).unwrap();
        }
        let started = Instant::now();
        let launched = group.barrier(2);
        let error = launched.and_then(|()| group.synchronize()).unwrap_err();
        let waited = started.elapsed();
        if is_absent {
            assert!(waited < TIMEOUT, "a late rank waited {waited:?} for what it could have read");
        } else {
            assert!(waited < TIMEOUT * 5, "{waited:?}");
            setup.bootstrap.barrier("reported", Deadline::after(LONG)).unwrap();
        }
        assert_eq!(group.barrier(3), Err(error.clone()));
        assert_eq!(group.synchronize(), Err(error.clone()));
        // Where the host does not reach the pads, a late rank learns it from the barrier it queued.
        let refused_at_once = is_absent && !platform::on_gpu();
        assert_eq!(group.epoch().0, if refused_at_once { 1 } else { 2 });
        error
    });
    for error in faults {
        let GroupError::Fault(Fault::Barrier { by, epoch, missing, waited_ms, tag }) = error else {
            panic!("{error}");
        };
        assert_eq!((epoch, missing, tag), (Epoch(1), absent, 2));
        assert!(!absent.contains(by) && waited_ms >= TIMEOUT.as_millis() as u64);
    }
}
