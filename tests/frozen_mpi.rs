//! Ranks that are late or frozen, as processes: what is queued drains at once, nothing is written after the timeout, and
//! who comes late learns who was missing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cpkv::compose::{ComposeError, StrategyChoice};
use cpkv::deadline::Deadline;
use cpkv::device::{Device, DeviceBuffer};
use cpkv::group::{BootstrapError, Fault, GroupError, GroupOptions};
use cpkv::plan::{Batch, Strategy};
use cpkv::symm::RegisterError;
use cpkv::units::{PageId, Rank, RankSet};

use support::fixture::platform::on_gpu;
use support::fixture::{
    ALL, BatchMaker, Bench, LONG, POISON, Setup, composer_options, layer_inputs, model, poison, read,
};
use support::processes::{
    Fate, doomed_setup, expect_nothing_left, freeze, freeze_other, mpi_setup, pids, ranks, thaw,
};
use support::scenario::PAGE_SIZE;
use support::{Ending, MpiJob, under_mpirun, wait_until_stopped};

/// After this a barrier, or an exchange that a test breaks, gives up.
const TIMEOUT: Duration = Duration::from_secs(3);
/// After this a barrier gives up that a rank is frozen in.
const LONG_TIMEOUT: Duration = Duration::from_secs(8);
/// The rank that is late.
const LATE: u32 = 6;
const NUM_PAGES: u32 = 64;
const NUM_LAYERS: usize = 3;
/// The exit code of a rank that reports a failure.
const FAILED: i32 = 1;

/// Exchanges wait long, barriers do not.
fn options() -> GroupOptions {
    GroupOptions { barrier_timeout: TIMEOUT, ..support::fixture::group_options(TIMEOUT) }
}

fn meet(setup: &Setup, call: &'static str) {
    setup.bootstrap.barrier(call, Deadline::after(LONG)).unwrap();
}

/// Every page of the pool that this rank owns.
fn pool_bytes(bench: &Bench) -> Vec<Vec<u8>> {
    let pages = (0..NUM_PAGES as i32).map(PageId);
    let of_layer = |layer, page| {
        let buffers = bench.model.buffers_of(layer).iter();
        buffers.filter_map(move |&buffer| bench.pool_page(layer, buffer, page))
    };
    pages.flat_map(|page| (0..NUM_LAYERS).flat_map(move |layer| of_layer(layer, page))).collect()
}

/// The bytes of `buffers` as they are now. No kernel runs but a barrier, which does not touch them.
fn bytes_of(device: &dyn Device, buffers: &[DeviceBuffer]) -> Vec<Vec<u8>> {
    buffers.iter().map(|buffer| read(device, buffer)).collect()
}

/// A batch in the pool, and one on top of it.
fn two_batches(bench: &mut Bench) -> Batch {
    let mut maker = BatchMaker::new(NUM_PAGES, PAGE_SIZE);
    let first = maker.fresh(&[72, 9]);
    bench.prove(&first, StrategyChoice::Auto).unwrap();
    bench.persisted(&first);
    let requests = vec![maker.request(&first.requests[0].current_pages, 72, 50), maker.request(&[], 0, 90)];
    Batch { requests, num_pad_slots: 1 }
}

/// Who was missing, where `error` is a barrier's timeout.
fn missing_in(error: &ComposeError) -> RankSet {
    match error {
        ComposeError::Group(GroupError::Fault(Fault::Barrier { missing, .. })) => *missing,
        _ => panic!("{error}"),
    }
}

/// Case 13b with one strategy: the late rank takes part in the agreement, but comes to the barrier only after the others
/// have given up.
fn three_layers_behind_a_timeout(setup: &Setup, strategy: Strategy) {
    let (choice, is_late) = (StrategyChoice::Exactly(strategy), setup.rank() == Rank(LATE));
    let options = (options(), composer_options(2 * NUM_PAGES));
    let mut bench = Bench::new(setup, model(NUM_LAYERS, PAGE_SIZE), NUM_PAGES, options.0, options.1).unwrap();
    let batch = two_batches(&mut bench);
    let pool = pool_bytes(&bench);
    let (oracle, device, model) = (bench.oracle.clone(), Arc::clone(&bench.device), bench.model.clone());
    let mut flight = bench.composer.begin(&batch, choice).unwrap();
    let mut denses = Vec::new();
    for &buffer in model.buffers_of(0) {
        // Both halves of a symmetric dense buffer; twice the same one otherwise.
        denses.extend([flight.next_dense(buffer).unwrap(), flight.dense(buffer).unwrap()]);
    }
    for dense in &denses {
        flight.stream().upload(vec![POISON; dense.bytes() as usize], dense).unwrap();
    }
    flight.synchronize().unwrap();
    if is_late {
        meet(setup, "reported");
    }
    let started = Instant::now();
    let mut error = None;
    // A strategy that has no barrier of its own stands behind one.
    if !strategy.needs_peer_access() || strategy == Strategy::GatherCompact {
        error = flight.barrier(0).err();
    }
    for layer in 0..NUM_LAYERS {
        let inputs = layer_inputs(&flight, &oracle, &*device, &model, layer);
        let queued = flight.compose_layer(layer, &inputs).and_then(|()| flight.persist_layer(layer));
        // The host of a GPU hears of a fault only from its own kernels, so there the first layers may be queued.
        let must_fail = is_late && !on_gpu();
        assert!(
            if must_fail { queued.is_err() } else { queued.is_ok() || is_late },
            "{strategy}: {queued:?}"
        );
        error = error.or(queued.err());
    }
    let before = if is_late {
        denses.iter().map(|dense| vec![POISON; dense.bytes() as usize]).collect()
    } else {
        thread::sleep(TIMEOUT / 2);
        bytes_of(&*device, &denses)
    };
    let synchronized = flight.synchronize().unwrap_err();
    let waited = started.elapsed();
    assert_eq!(error.unwrap_or(synchronized.clone()), synchronized);
    assert_eq!(missing_in(&synchronized), ranks(&[LATE]), "{strategy}: {synchronized}");
    if is_late {
        assert!(waited < TIMEOUT, "{strategy}: a late rank waited {waited:?} for what it could have read");
    } else {
        // One timeout, not one a layer.
        assert!(waited < TIMEOUT * 5 / 2, "{strategy}: {waited:?}");
        meet(setup, "reported");
    }
    assert!(bytes_of(&*device, &denses) == before, "{strategy}: dense bytes changed after the timeout");
    let writes_before_its_barrier = [Strategy::StagingPublish, Strategy::SymmDense].contains(&strategy);
    if !writes_before_its_barrier {
        assert!(before.iter().flatten().all(|&byte| byte == POISON), "{strategy}");
    }
    // Everything is refused from now on, at once and with the same words.
    let again = Instant::now();
    let no_layer = flight.compose_layer(1, &layer_inputs(&flight, &oracle, &*device, &model, 1));
    assert_eq!(no_layer.and_then(|()| flight.synchronize()), Err(synchronized.clone()));
    assert_eq!(flight.finish(), Err(synchronized.clone()));
    assert_eq!(bench.composer.begin(&batch, choice).err(), Some(synchronized.clone()));
    assert!(again.elapsed() < TIMEOUT);
    assert!(pool_bytes(&bench) == pool, "{strategy}: the pool changed after the timeout");
    meet(setup, "compared");
}

#[test]
fn layers_queued_behind_a_timeout_drain_at_once_and_change_no_byte_whatever_the_strategy() {
    let test = "layers_queued_behind_a_timeout_drain_at_once_and_change_no_byte_whatever_the_strategy";
    under_mpirun(&MpiJob::new(8), test, || {
        let setup = mpi_setup();
        for strategy in ALL {
            three_layers_behind_a_timeout(&setup, strategy);
        }
        Ending::Normal
    });
}

/// The late rank is frozen inside a barrier that the others pass, for it had entered. They miss it at the next one.
#[test]
fn a_rank_frozen_inside_a_barrier_learns_later_that_it_was_missed_and_writes_nothing() {
    let test = "a_rank_frozen_inside_a_barrier_learns_later_that_it_was_missed_and_writes_nothing";
    under_mpirun(&MpiJob::new(8), test, || {
        let setup = mpi_setup();
        let (pids, me) = (pids(&setup), setup.rank());
        let options = GroupOptions { barrier_timeout: LONG_TIMEOUT, ..options() };
        let spec = model(NUM_LAYERS, PAGE_SIZE);
        let mut bench =
            Bench::new(&setup, spec, NUM_PAGES, options, composer_options(2 * NUM_PAGES)).unwrap();
        let batch = two_batches(&mut bench);
        let pool = pool_bytes(&bench);
        let (oracle, device, model) = (bench.oracle.clone(), Arc::clone(&bench.device), bench.model.clone());
        let mut flight = bench.composer.begin(&batch, StrategyChoice::Auto).unwrap();
        assert_eq!(flight.strategy(), Strategy::StagingFill);
        poison(&flight, &model, 0).unwrap();
        let denses: Vec<_> = model.buffers_of(0).iter().map(|&id| flight.dense(id).unwrap()).collect();
        flight.synchronize().unwrap();
        let (all_have_queued, may_freeze) = mpsc::channel();
        if me == Rank(0) {
            let late = pids[LATE as usize];
            let wait = move || {
                if may_freeze.recv_timeout(LONG).is_ok() {
                    // By then the late rank's barrier has begun: only rank 0 is missing in it.
                    thread::sleep(LONG_TIMEOUT / 4);
                    freeze_other(late);
                }
                Ok(())
            };
            flight.stream().host_call("freeze a peer", Box::new(wait)).unwrap();
        }
        for layer in 0..NUM_LAYERS {
            let inputs = layer_inputs(&flight, &oracle, &*device, &model, layer);
            flight.compose_layer(layer, &inputs).unwrap();
            flight.persist_layer(layer).unwrap();
        }
        meet(&setup, "queued");
        // Nobody listens but on rank 0.
        let _ = all_have_queued.send(());
        let error = flight.synchronize().unwrap_err();
        if me == Rank(0) {
            // Nobody is needed for this but the late rank.
            thaw(pids[LATE as usize]);
        }
        assert_eq!(missing_in(&error), ranks(&[LATE]), "{error}");
        let ComposeError::Group(GroupError::Fault(Fault::Barrier { by, epoch, .. })) = &error else {
            panic!("{error}")
        };
        assert_ne!(*by, Rank(LATE));
        assert_eq!(epoch.0, 4, "three layers before, and the first of this batch");
        if me == Rank(LATE) {
            assert!(bytes_of(&*device, &denses).iter().flatten().all(|&byte| byte == POISON));
        }
        drop(flight);
        if me == Rank(LATE) {
            assert!(pool_bytes(&bench) == pool);
        }
        meet(&setup, "compared");
        Ending::Normal
    });
}

/// Freezes the late rank when it enters exchange `call` for the `after`-th time; the others give up in `body`, and
/// thaw it. All leave without `MPI_Finalize`: the exchange is broken.
fn frozen_at(test: &str, call: &'static str, after: u32, num_handles: usize, body: impl FnOnce(&Setup)) {
    let everyone: Vec<u32> = (0..8).collect();
    let job = MpiJob::new(8).surviving(&everyone).exiting(&[FAILED; 8]);
    let reported = under_mpirun(&job, test, || {
        let me = std::env::var("OMPI_COMM_WORLD_RANK").unwrap();
        let fate = Fate::new(call, after, freeze).filter(|_| me == LATE.to_string());
        let setup = doomed_setup(fate);
        let pids = pids(&setup);
        let thawing = (setup.rank() == Rank(0)).then(|| {
            // Thaws the late rank when everyone has given up, and not before it was frozen.
            let late = pids[LATE as usize];
            thread::spawn(move || {
                wait_until_stopped(late);
                thread::sleep(TIMEOUT * 2);
                thaw(late);
            })
        });
        body(&setup);
        // Rank 0 stays until it has thawed the late one, which in turn waits for nobody.
        thawing.into_iter().for_each(|thawing| thawing.join().unwrap());
        Ending::Fail(FAILED)
    });
    if let Some(reported) = reported {
        expect_nothing_left(&reported, num_handles);
    }
}

/// Registers everything with short exchanges; the error.
fn registration_fails(setup: &Setup) -> ComposeError {
    let options = GroupOptions { bootstrap_timeout: TIMEOUT, ..options() };
    let spec = model(NUM_LAYERS, PAGE_SIZE);
    let error = Bench::new(setup, spec, NUM_PAGES, options, composer_options(NUM_PAGES)).err();
    error.unwrap()
}

#[test]
fn a_rank_frozen_while_the_signals_are_registered_is_named_and_goes_no_further_later() {
    let test = "a_rank_frozen_while_the_signals_are_registered_is_named_and_goes_no_further_later";
    frozen_at(test, "register: handles", 0, 8, |setup| {
        let error = registration_fails(setup);
        let ComposeError::Register(RegisterError::Bootstrap { problem, .. }) = &error else {
            panic!("{error}")
        };
        let BootstrapError::Missing { missing, .. } = problem else { panic!("{error}") };
        // There are no signals yet that could tell the late rank more than that it is alone.
        let others = ranks(&[0, 1, 2, 3, 4, 5, 7]);
        let expected = if setup.rank() == Rank(LATE) { others } else { ranks(&[LATE]) };
        assert_eq!(*missing, expected, "{error}");
    });
}

/// `error` says, on every rank alike, that some other rank missed the late one in an exchange.
fn expect_lost(error: &ComposeError) {
    let ComposeError::Group(GroupError::Fault(Fault::Exchange { by, missing, waited_ms, .. })) = error else {
        panic!("{error}")
    };
    assert!(*by != Rank(LATE) && *waited_ms >= TIMEOUT.as_millis() as u64, "{error}");
    assert_eq!(*missing, ranks(&[LATE]), "{error}");
}

#[test]
fn a_rank_frozen_while_the_pool_is_registered_learns_later_that_it_was_missed() {
    let test = "a_rank_frozen_while_the_pool_is_registered_learns_later_that_it_was_missed";
    frozen_at(test, "register: handles", 1, 16, |setup| expect_lost(&registration_fails(setup)));
}

#[test]
fn a_rank_frozen_while_staging_is_registered_learns_later_that_it_was_missed() {
    let test = "a_rank_frozen_while_staging_is_registered_learns_later_that_it_was_missed";
    frozen_at(test, "register: allocate", 2, 16, |setup| expect_lost(&registration_fails(setup)));
}

#[test]
fn a_rank_frozen_at_the_agreement_on_a_batch_learns_later_that_it_was_missed_and_launches_nothing() {
    let test =
        "a_rank_frozen_at_the_agreement_on_a_batch_learns_later_that_it_was_missed_and_launches_nothing";
    frozen_at(test, "agree on the plan", 1, 24, |setup| {
        let options = GroupOptions { bootstrap_timeout: TIMEOUT, ..options() };
        let spec = model(NUM_LAYERS, PAGE_SIZE);
        let mut bench = Bench::new(setup, spec, NUM_PAGES, options, composer_options(2 * NUM_PAGES)).unwrap();
        let batch = two_batches(&mut bench);
        let (pool, epoch) = (pool_bytes(&bench), bench.composer.group().epoch());
        let error = bench.composer.begin(&batch, StrategyChoice::Auto).err().unwrap();
        expect_lost(&error);
        let again = Instant::now();
        assert_eq!(bench.composer.begin(&batch, StrategyChoice::Auto).err(), Some(error));
        assert!(again.elapsed() < TIMEOUT);
        assert_eq!(bench.composer.group().epoch(), epoch);
        assert!(pool_bytes(&bench) == pool);
    });
}
