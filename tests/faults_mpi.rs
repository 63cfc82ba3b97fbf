//! Ranks that are killed or absent, as processes: who is named, how long it takes, and what is left behind.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cpkv::compose::{ComposeError, StrategyChoice};
use cpkv::deadline::Deadline;
use cpkv::group::{BootstrapError, Fault, Group, GroupError, GroupOptions};
use cpkv::plan::Strategy;
use cpkv::symm::RegisterError;
use cpkv::units::Rank;

use support::fixture::{BatchMaker, Bench, LONG, Setup, composer_options, layer_inputs, model};
use support::processes::{Fate, die, doomed_setup, expect_nothing_left, pids, ranks};
use support::scenario::PAGE_SIZE;
use support::{Ending, KILLED, MpiJob, is_running, report, under_mpirun, wait_for_reports};

/// After this a barrier gives up.
const TIMEOUT: Duration = Duration::from_secs(3);
/// After this it does where others wait in it for a process to be killed.
const LONG_TIMEOUT: Duration = Duration::from_secs(8);
/// The rank that is killed.
const VICTIM: u32 = 5;
/// The exit code of a rank that reports a failure.
const FAILED: i32 = 1;
/// What a rank reports that has left the last exchange before a death.
const REGISTERED: &str = "REGISTERED";

/// Exchanges wait long, barriers do not.
fn options() -> GroupOptions {
    GroupOptions { barrier_timeout: TIMEOUT, ..support::fixture::group_options(TIMEOUT) }
}

/// Eight ranks of which one is killed; the others fail by themselves.
fn job() -> MpiJob {
    let survivors: Vec<u32> = (0..8).filter(|&rank| rank != VICTIM).collect();
    let codes: Vec<i32> = (0..8).map(|rank| if rank == VICTIM { KILLED } else { FAILED }).collect();
    MpiJob::new(8).surviving(&survivors).exiting(&codes)
}

/// Nothing of ours stays: seven or eight ranks exported `num_regions` regions each.
fn expect_clean(reported: Option<String>, num_handles: usize) {
    if let Some(reported) = reported {
        expect_nothing_left(&reported, num_handles);
    }
}

fn register(setup: &Setup, barrier_timeout: Duration) -> Group {
    let (bootstrap, backend) = (Arc::clone(&setup.bootstrap), Arc::clone(&setup.backend));
    let options = GroupOptions { barrier_timeout, ..options() };
    Group::register(bootstrap, Arc::clone(&setup.device), backend, options).unwrap()
}

/// `error` is a barrier's timeout that names the victim and nobody else.
fn expect_victim(error: &GroupError, timeout: Duration, waited: Duration) {
    let GroupError::Fault(Fault::Barrier { missing, by, .. }) = error else { panic!("{error}") };
    assert_eq!(*missing, ranks(&[VICTIM]), "{error}");
    assert!(*by != Rank(VICTIM) && error.to_string().contains(&VICTIM.to_string()));
    assert!(waited < timeout * 4, "reported after {waited:?}");
}

#[test]
fn a_rank_killed_before_a_barrier_is_named_by_the_other_seven_which_leave_by_themselves() {
    let test = "a_rank_killed_before_a_barrier_is_named_by_the_other_seven_which_leave_by_themselves";
    let reported = under_mpirun(&job(), test, || {
        let setup = doomed_setup(None);
        let mut group = register(&setup, TIMEOUT);
        group.barrier(0).unwrap();
        group.synchronize().unwrap();
        if setup.rank() == Rank(VICTIM) {
            die();
        }
        let started = Instant::now();
        let error = group.barrier(1).and_then(|()| group.synchronize()).unwrap_err();
        expect_victim(&error, TIMEOUT, started.elapsed());
        assert_eq!(group.close().unwrap_err(), error);
        Ending::Fail(FAILED)
    });
    expect_clean(reported, 8);
}

/// The victim has entered the barrier and waits in it for rank 0, which comes only after its death: this barrier is
/// passed, the next one is not.
#[test]
fn a_rank_killed_inside_a_barrier_is_named_at_the_next_one() {
    let reported = under_mpirun(&job(), "a_rank_killed_inside_a_barrier_is_named_at_the_next_one", || {
        let setup = doomed_setup(None);
        let pids = pids(&setup);
        let mut group = register(&setup, LONG_TIMEOUT);
        report(REGISTERED);
        if setup.rank() == Rank(0) {
            // Nobody needs a message of the victim any more.
            wait_for_reports(0..8, REGISTERED);
            let started = Instant::now();
            while !group.words_not_zero().unwrap().contains(&(Rank(VICTIM), -1)) {
                assert!(started.elapsed() < LONG);
                thread::sleep(Duration::from_millis(1));
            }
            support::processes::kill(pids[VICTIM as usize]);
            while is_running(pids[VICTIM as usize]) {
                assert!(started.elapsed() < LONG);
                thread::sleep(Duration::from_millis(1));
            }
        }
        group.barrier(1).unwrap();
        if setup.rank() == Rank(VICTIM) {
            thread::sleep(LONG);
        }
        group.synchronize().unwrap();
        let started = Instant::now();
        let error = group.barrier(2).and_then(|()| group.synchronize()).unwrap_err();
        expect_victim(&error, LONG_TIMEOUT, started.elapsed());
        Ending::Fail(FAILED)
    });
    expect_clean(reported, 8);
}

/// A rank is killed while the group, its pool or its staging is registered.
fn killed_at(test: &str, call: &'static str, after: u32, num_handles: usize) {
    let reported = under_mpirun(&job(), test, || {
        let me = std::env::var("OMPI_COMM_WORLD_RANK").unwrap();
        let fate = Fate::new(call, after, || die()).filter(|_| me == VICTIM.to_string());
        let setup = doomed_setup(fate);
        let options = GroupOptions { bootstrap_timeout: TIMEOUT, ..options() };
        // All are there: from now on the time runs.
        setup.bootstrap.barrier("together", Deadline::after(LONG)).unwrap();
        let started = Instant::now();
        let error = Bench::new(&setup, model(2, PAGE_SIZE), 64, options, composer_options(64)).err().unwrap();
        let waited = started.elapsed();
        assert!(waited < TIMEOUT * 4, "{waited:?}");
        // Without signals the exchange itself says it; later the group does.
        let missing = match &error {
            ComposeError::Register(RegisterError::Bootstrap {
                problem: BootstrapError::Missing { missing, .. },
                ..
            }) if num_handles <= 8 => *missing,
            ComposeError::Group(GroupError::Fault(Fault::Exchange { missing, .. })) => *missing,
            _ => panic!("{error}"),
        };
        assert_eq!(missing, ranks(&[VICTIM]), "{error}");
        Ending::Fail(FAILED)
    });
    expect_clean(reported, num_handles);
}

#[test]
fn a_rank_killed_before_its_export_of_the_signals_is_named_and_leaves_nothing() {
    let test = "a_rank_killed_before_its_export_of_the_signals_is_named_and_leaves_nothing";
    killed_at(test, "register: allocate", 0, 0);
}

#[test]
fn a_rank_killed_while_the_pool_is_registered_is_named_and_leaves_nothing() {
    let test = "a_rank_killed_while_the_pool_is_registered_is_named_and_leaves_nothing";
    killed_at(test, "register: handles", 1, 16);
}

#[test]
fn a_rank_killed_while_staging_is_registered_is_named_and_leaves_nothing() {
    let test = "a_rank_killed_while_staging_is_registered_is_named_and_leaves_nothing";
    killed_at(test, "register: open", 2, 24);
}

#[test]
fn a_rank_killed_at_the_agreement_on_a_batch_is_named_before_anything_is_launched() {
    let test = "a_rank_killed_at_the_agreement_on_a_batch_is_named_before_anything_is_launched";
    let reported = under_mpirun(&job(), test, || {
        let me = std::env::var("OMPI_COMM_WORLD_RANK").unwrap();
        let fate = Fate::new("agree on the plan", 1, || die()).filter(|_| me == VICTIM.to_string());
        let setup = doomed_setup(fate);
        let options = GroupOptions { bootstrap_timeout: TIMEOUT * 2, ..options() };
        let mut bench = Bench::new(&setup, model(2, PAGE_SIZE), 64, options, composer_options(64)).unwrap();
        let mut maker = BatchMaker::new(64, PAGE_SIZE);
        let batch = maker.fresh(&[100]);
        bench.prove(&batch, StrategyChoice::Auto).unwrap();
        let epoch = bench.composer.group().epoch();
        let error = bench.composer.begin(&batch, StrategyChoice::Auto).err().unwrap();
        let again = Instant::now();
        assert_eq!(bench.composer.begin(&batch, StrategyChoice::Auto).err().unwrap(), error);
        assert!(again.elapsed() < TIMEOUT);
        assert!(error.to_string().contains(&format!("ranks [{VICTIM}]")), "{error}");
        assert_eq!(bench.composer.group().epoch(), epoch);
        Ending::Fail(FAILED)
    });
    expect_clean(reported, 24);
}

/// MPI's collective has no deadline: what reports the dead rank's silence is the host's.
#[test]
fn a_rank_killed_inside_a_collective_is_reported_by_the_hosts_timeout() {
    let test = "a_rank_killed_inside_a_collective_is_reported_by_the_hosts_timeout";
    let reported = under_mpirun(&job(), test, || {
        let setup = doomed_setup(None);
        let pids = pids(&setup);
        let options = GroupOptions { host_timeout: TIMEOUT * 2, ..options() };
        let mut bench = Bench::new(&setup, model(3, PAGE_SIZE), 64, options, composer_options(64)).unwrap();
        let mut maker = BatchMaker::new(64, PAGE_SIZE);
        let batch = maker.fresh(&[200]);
        let (oracle, device, model) = (bench.oracle.clone(), Arc::clone(&bench.device), bench.model.clone());
        let choice = StrategyChoice::Exactly(Strategy::GatherCompact);
        let mut flight = bench.composer.begin(&batch, choice).unwrap();
        report(REGISTERED);
        if setup.rank() == Rank(0) {
            let (victim, gate) = (pids[VICTIM as usize], Duration::from_millis(300));
            let late = move || {
                // Nobody needs a message of the victim any more, but for those of the collective; others wait in that by now.
                wait_for_reports(0..8, REGISTERED);
                thread::sleep(gate);
                support::processes::kill(victim);
                while is_running(victim) {
                    thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            };
            flight.stream().host_call("late", Box::new(late)).unwrap();
        }
        for layer in 0..3 {
            let inputs = layer_inputs(&flight, &oracle, &*device, &model, layer);
            flight.compose_layer(layer, &inputs).unwrap();
        }
        if setup.rank() == Rank(VICTIM) {
            thread::sleep(LONG);
        }
        let started = Instant::now();
        let error = flight.synchronize().unwrap_err();
        let waited = started.elapsed();
        assert!(waited < TIMEOUT * 6, "{waited:?}");
        let ComposeError::Group(GroupError::Fault(Fault::Host { by, .. })) = &error else {
            panic!("{error}");
        };
        assert_ne!(*by, Rank(VICTIM));
        assert_eq!(flight.finish().unwrap_err(), error);
        let again = Instant::now();
        assert_eq!(bench.composer.begin(&batch, choice).err().unwrap(), error);
        assert!(again.elapsed() < TIMEOUT);
        Ending::Fail(FAILED)
    });
    expect_clean(reported, 24);
}
