//! The sum through host memory where it fails, and where the group has failed before it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use cpkv::collective::{Collective, HostReduce, StagedCollective};
use cpkv::compose::{BatchInFlight, ComposeError, StrategyChoice};
use cpkv::device::{DeviceBuffer, DeviceError};
use cpkv::group::{Fault, GroupError};
use cpkv::plan::Strategy;
use cpkv::units::{Rank, RankSet};

use crate::support::fixture::{
    BatchMaker, Bench, LONG, Setup, composer_options, group_options, layer_inputs, model, on_setups,
    thread_setups,
};
use crate::support::scenario::PAGE_SIZE;
use crate::vgpu::{faults, in_child};

/// Sums nothing; fails where it is told to. Counts its calls.
struct Scripted {
    rank: Rank,
    failure: Option<DeviceError>,
    num_calls: Arc<AtomicUsize>,
}

impl HostReduce for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn call(&self) -> &'static str {
        "scripted sum"
    }

    fn rank(&self) -> Rank {
        self.rank
    }

    unsafe fn sum(&self, _buffer: &DeviceBuffer) -> Result<(), DeviceError> {
        self.num_calls.fetch_add(1, Ordering::SeqCst);
        self.failure.clone().map_or(Ok(()), Err)
    }
}

/// Two ranks on one GPU with scripted sums, of which rank 1's fails.
fn scripted(failure: &DeviceError, num_calls: &Arc<AtomicUsize>) -> Vec<Setup> {
    let with_sum = |setup: Setup| {
        let rank = setup.rank();
        let failure = Some(failure.clone()).filter(|_| rank == Rank(1));
        let reduce = Arc::new(Scripted { rank, failure, num_calls: Arc::clone(num_calls) });
        let collective: Arc<dyn Collective> =
            Arc::new(StagedCollective::new(reduce, Arc::clone(&setup.device)));
        assert_eq!(collective.name(), "scripted");
        Setup { collective, ..setup }
    };
    thread_setups(2).into_iter().map(with_sum).collect()
}

/// Composes and persists both layers of a small batch by one all-reduce a layer, once `all_have_begun` and behind what
/// `before` queues. A rank that began later could find that the group has failed already.
fn fused(
    bench: &mut Bench,
    all_have_begun: &Barrier,
    before: impl FnOnce(&mut BatchInFlight<'_>) -> Result<(), ComposeError>,
    wait: impl FnOnce(),
) -> ComposeError {
    let batch = BatchMaker::new(64, PAGE_SIZE).fresh(&[50]);
    let (oracle, device, model) = (bench.oracle.clone(), Arc::clone(&bench.device), bench.model.clone());
    let choice = StrategyChoice::Exactly(Strategy::FusedAllReduce);
    let mut flight = bench.composer.begin(&batch, choice).unwrap();
    let inputs: Vec<_> =
        (0..2).map(|layer| layer_inputs(&flight, &oracle, &*device, &model, layer)).collect();
    all_have_begun.wait();
    let mut outcome = before(&mut flight);
    for (layer, inputs) in inputs.iter().enumerate() {
        outcome = outcome.and_then(|()| flight.compose_layer(layer, inputs));
        outcome = outcome.and_then(|()| flight.persist_layer(layer));
    }
    wait();
    outcome.and_then(|()| flight.synchronize()).unwrap_err()
}

fn bench(setup: &Setup, barrier_timeout: Duration) -> Bench {
    let options = (group_options(barrier_timeout), composer_options(64));
    Bench::new(setup, model(2, PAGE_SIZE), 64, options.0, options.1).unwrap()
}

#[test]
fn a_sum_that_fails_on_one_rank_is_told_to_all_with_who_was_missing() {
    in_child(&[], || {
        let absent: RankSet = [Rank(0)].into_iter().collect();
        let timeout =
            DeviceError::CollectiveTimeout { call: "scripted sum", rank: 1, waited_ms: 5, missing: absent };
        let failed = DeviceError::HostCall { call: "scripted sum", code: 5, rank: 1 };
        for (failure, expected) in [(timeout, absent), (failed, RankSet::default())] {
            let (all_have_begun, rank_1_has_failed) = (Barrier::new(2), Barrier::new(2));
            on_setups(scripted(&failure, &Arc::default()), |setup| {
                let me = setup.rank();
                let mut bench = bench(&setup, LONG);
                let wait = || {
                    if me == Rank(0) {
                        rank_1_has_failed.wait();
                    }
                };
                let error = fused(&mut bench, &all_have_begun, |_| Ok(()), wait);
                if me == Rank(1) {
                    rank_1_has_failed.wait();
                }
                match &error {
                    ComposeError::Group(GroupError::Fault(Fault::PeerStream { by, missing, .. })) => {
                        assert_eq!((*by, *missing), (Rank(1), expected), "rank {me}: {error}");
                    }
                    // Its own failure, where it meets that before the verdict has come back to it.
                    ComposeError::Group(GroupError::Fault(Fault::Stream { problem, .. })) => {
                        assert_eq!((me, problem), (Rank(1), &failure), "rank {me}: {error}");
                    }
                    _ => panic!("rank {me}: {error}"),
                }
                assert_eq!(bench.composer.close().unwrap_err(), error);
            });
        }
    });
}

#[test]
fn behind_a_barrier_that_was_not_passed_nothing_is_summed() {
    let stderr = in_child(&[], || {
        let num_calls = Arc::default();
        let never = DeviceError::HostCall { call: "scripted sum", code: 5, rank: 1 };
        let (all_have_begun, rank_0_has_given_up) = (Barrier::new(2), Barrier::new(2));
        on_setups(scripted(&never, &num_calls), |setup| {
            let me = setup.rank();
            let mut bench = bench(&setup, Duration::from_millis(400));
            let before = |flight: &mut BatchInFlight<'_>| {
                if me == Rank(1) {
                    rank_0_has_given_up.wait();
                }
                flight.barrier(0)
            };
            let error = fused(&mut bench, &all_have_begun, before, || ());
            if me == Rank(0) {
                rank_0_has_given_up.wait();
            }
            let ComposeError::Group(GroupError::Fault(Fault::Barrier { missing, by, .. })) = &error else {
                panic!("rank {me}: {error}")
            };
            assert_eq!((*missing, *by), ([Rank(1)].into_iter().collect(), Rank(0)), "{error}");
        });
        assert_eq!(num_calls.load(Ordering::SeqCst), 0);
    });
    assert_eq!(faults(&stderr), [""; 0]);
}
