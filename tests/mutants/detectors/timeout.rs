//! A rank that never comes: everybody learns whom it waited for, once, and nothing is written afterwards.

use std::thread;
use std::time::{Duration, Instant};

use cpkv::compose::{ComposeError, StrategyChoice};
use cpkv::deadline::Deadline;
use cpkv::group::{Fault, GroupError};
use cpkv::model::BufferId;
use cpkv::plan::{Batch, Strategy};
use cpkv::units::Rank;

use super::group_options;
use crate::fixture::{
    BatchMaker, Bench, LONG, POISON, Setup, composer_options, dense_bytes, layer_inputs, model, on_threads,
    poison,
};
use crate::scenario::PAGE_SIZE;

/// Of the barriers. Long enough for ranks that come, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(6);
const ABSENT: Rank = Rank(2);
/// It enters when others have waited for half of the timeout: the poison must end its own wait.
const SECOND: Rank = Rank(1);
const NUM_LAYERS: usize = 3;

pub(crate) fn look() {
    on_threads(4, |setup| {
        let options = (group_options(TIMEOUT), composer_options(128));
        let mut bench = Bench::new(&setup, model(NUM_LAYERS, PAGE_SIZE), 64, options.0, options.1).unwrap();
        let mut maker = BatchMaker::new(64, PAGE_SIZE);
        let base = maker.fresh(&[4 * PAGE_SIZE]);
        bench.prove_all(&base, &[Strategy::StagingFill]);
        let request = maker.request(&base.requests[0].current_pages, 4 * PAGE_SIZE, 40);
        let batch = Batch { requests: vec![request], num_pad_slots: 1 };
        lose_a_rank(&setup, bench, &batch);
    });
}

fn lose_a_rank(setup: &Setup, mut bench: Bench, batch: &Batch) {
    let rank = setup.rank();
    let meet = |call| setup.bootstrap.barrier(call, Deadline::after(LONG)).unwrap();
    let Bench { composer, oracle, model, device } = &mut bench;
    let mut flight = composer.begin(batch, StrategyChoice::Exactly(Strategy::StagingFill)).unwrap();
    poison(&flight, model, 0).unwrap();
    let inputs: Vec<_> =
        (0..NUM_LAYERS).map(|layer| layer_inputs(&flight, oracle, &**device, model, layer)).collect();
    flight.synchronize().unwrap();
    meet("all are there");
    if rank == ABSENT {
        // Comes when all the others have gone.
        meet("the others have given up");
    } else if rank == SECOND {
        thread::sleep(TIMEOUT / 2);
    }
    let started = Instant::now();
    let mut outcome = Ok(());
    for (layer, inputs) in inputs.iter().enumerate() {
        outcome = outcome.and_then(|()| flight.compose_layer(layer, inputs));
        outcome = outcome.and_then(|()| flight.persist_layer(layer));
    }
    let error = outcome.and_then(|()| flight.synchronize()).expect_err("a barrier without a rank was passed");
    let waited = started.elapsed();
    let ComposeError::Group(GroupError::Fault(Fault::Barrier { missing, by, waited_ms, .. })) = &error else {
        panic!("{error}");
    };
    assert_eq!((*missing, *by), ([ABSENT].into_iter().collect(), *by), "{error}");
    assert!(*by != ABSENT && u128::from(*waited_ms) >= TIMEOUT.as_millis(), "{error}");
    if rank == ABSENT || rank == SECOND {
        assert!(waited < TIMEOUT * 9 / 10, "{rank} waited {waited:?} for what it could have read");
    }
    if rank != ABSENT {
        meet("the others have given up");
    }
    let dense = dense_bytes(&flight, BufferId::TOKEN_KV);
    assert!(dense.iter().all(|&byte| byte == POISON), "dense bytes changed after the timeout");
    assert_eq!(flight.finish().expect_err("a poisoned group finished a batch"), error);
    for layer in 0..NUM_LAYERS {
        for &page in &batch.requests[0].current_pages {
            let page = bench.pool_page(layer, BufferId::TOKEN_KV, page).unwrap_or_default();
            assert!(page.iter().all(|&byte| byte == 0), "a page was persisted after the timeout");
        }
    }
}
