//! Layers captured as graphs: a replay composes what lies in the inputs by then, in the half of its own epoch.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/fixture.rs"]
mod fixture;

use cpkv::compose::{BatchInFlight, CapturedLayer, ComposeError, LayerInputs, StrategyChoice};
use cpkv::model::{BufferId, ModelSpec};
use cpkv::plan::{Batch, RequestPages, Strategy};
use cpkv::units::{Epoch, PageId};
use cpkv::verify::Oracle;

use fixture::{BatchMaker, Bench, compare, layer_inputs, model, on_threads, poison};

const PAGE_SIZE: u32 = 8;
const NUM_PAGES: u32 = 96;
/// Odd, so that captured and replayed halves differ in every other turn.
const NUM_REPLAYS: u64 = 5;

/// Strategies without a call of the host.
const CAPTURABLE: [Strategy; 3] = [Strategy::StagingFill, Strategy::StagingPublish, Strategy::SymmDense];
/// Strategies with a collective.
const COLLECTIVE: [Strategy; 3] = [Strategy::PerSpan, Strategy::FusedAllReduce, Strategy::GatherCompact];

/// A batch on top of another one, which is in the pool already.
fn bench_with_prefix(setup: &fixture::Setup, num_layers: usize) -> (Bench, Batch) {
    let mut bench = Bench::usual(setup, model(num_layers, PAGE_SIZE), NUM_PAGES);
    let mut maker = BatchMaker::new(NUM_PAGES, PAGE_SIZE);
    let first = maker.fresh(&[9 * PAGE_SIZE, 3]);
    bench.prove(&first, StrategyChoice::Exactly(Strategy::StagingFill)).unwrap();
    bench.persisted(&first);
    let prefix = &first.requests[0].current_pages;
    let requests = vec![maker.request(prefix, 9 * PAGE_SIZE, 53), maker.request(&[], 0, 70)];
    (bench, Batch { requests, num_pad_slots: 2 })
}

/// Writes the oracle's rows of now into `inputs`, in place.
fn overwrite(flight: &BatchInFlight<'_>, oracle: &Oracle, model: &ModelSpec, layer: usize, to: &LayerInputs) {
    for &buffer in model.buffers_of(layer) {
        let bytes = oracle.inputs(flight.plan(), layer, buffer);
        flight.stream().upload(bytes, to.get(buffer).unwrap()).unwrap();
    }
}

#[test]
fn every_replay_composes_the_inputs_of_its_time_in_its_own_half() {
    for num_ranks in [1, 3] {
        on_threads(num_ranks, |setup| {
            let (mut bench, batch) = bench_with_prefix(&setup, 2);
            for strategy in CAPTURABLE {
                let model = bench.model.clone();
                let device = bench.device.clone();
                let mut flight = bench.composer.begin(&batch, StrategyChoice::Exactly(strategy)).unwrap();
                let layers = 0..model.num_layers();
                let captured: Vec<(CapturedLayer, LayerInputs)> = layers
                    .map(|layer| {
                        let inputs = layer_inputs(&flight, &bench.oracle, &*device, &model, layer);
                        let captured = flight.capture_layer(layer, &inputs).unwrap();
                        assert_eq!((captured.layer(), captured.num_barriers()), (layer, 1), "{strategy}");
                        (captured, inputs)
                    })
                    .collect();
                for _ in 0..NUM_REPLAYS {
                    bench.oracle.restamp();
                    for (layer, (captured, inputs)) in captured.iter().enumerate() {
                        poison(&flight, &model, layer).unwrap();
                        overwrite(&flight, &bench.oracle, &model, layer, inputs);
                        flight.replay_layer(captured).unwrap();
                        flight.persist_layer(layer).unwrap();
                        flight.synchronize().unwrap();
                        compare(&flight, &bench.oracle, &model, layer);
                    }
                }
                let slots = flight.plan().slots.clone();
                // In checked mode this compares the host's epoch with the device's.
                flight.finish().unwrap();
                let mut after = bench.oracle.clone();
                after.persisted(&slots);
                for layer in 0..model.num_layers() {
                    for (&buffer, &page) in model.buffers_of(layer).iter().zip(&slots.current_pages) {
                        if let Some(bytes) = bench.pool_page(layer, buffer, PageId(page)) {
                            assert_eq!(bytes, after.pool_page(layer, buffer, PageId(page)), "{strategy}");
                        }
                    }
                }
            }
            bench.composer.close().unwrap();
        });
    }
}

#[test]
fn capturing_takes_no_epoch_and_runs_nothing_and_every_replay_takes_its_barriers() {
    on_threads(3, |setup| {
        let (mut bench, batch) = bench_with_prefix(&setup, 1);
        let (model, device) = (bench.model.clone(), bench.device.clone());
        let before = bench.composer.group().epoch();
        let num_layers_before = bench.composer.stats().num_layers;
        let strategy = StrategyChoice::Exactly(Strategy::StagingFill);
        let mut flight = bench.composer.begin(&batch, strategy).unwrap();
        let inputs = layer_inputs(&flight, &bench.oracle, &*device, &model, 0);
        poison(&flight, &model, 0).unwrap();
        let captured = flight.capture_layer(0, &inputs).unwrap();
        let refused = flight.persist_layer(0).unwrap_err();
        assert_eq!(refused, ComposeError::NotComposed { layer: 0, composed: None });
        let dense = fixture::dense_bytes(&flight, BufferId::TOKEN_KV);
        assert!(dense.iter().all(|&byte| byte == fixture::POISON), "something ran");
        for _ in 0..NUM_REPLAYS {
            flight.replay_layer(&captured).unwrap();
        }
        flight.finish().unwrap();
        assert_eq!(bench.composer.group().epoch(), Epoch(before.0 + NUM_REPLAYS));
        assert_eq!(bench.composer.stats().num_layers, num_layers_before + NUM_REPLAYS);
        bench.composer.close().unwrap();
    });
}

#[test]
fn ranks_may_replay_a_layer_that_others_compose() {
    on_threads(3, |setup| {
        let (mut bench, batch) = bench_with_prefix(&setup, 1);
        let (model, device) = (bench.model.clone(), bench.device.clone());
        let strategy = StrategyChoice::Exactly(Strategy::SymmDense);
        let mut flight = bench.composer.begin(&batch, strategy).unwrap();
        let inputs = layer_inputs(&flight, &bench.oracle, &*device, &model, 0);
        let captured = flight.capture_layer(0, &inputs).unwrap();
        for turn in 0..4 {
            bench.oracle.restamp();
            poison(&flight, &model, 0).unwrap();
            overwrite(&flight, &bench.oracle, &model, 0, &inputs);
            if (turn + setup.rank().0).is_multiple_of(2) {
                flight.replay_layer(&captured).unwrap();
            } else {
                flight.compose_layer(0, &inputs).unwrap();
            }
            flight.synchronize().unwrap();
            compare(&flight, &bench.oracle, &model, 0);
        }
        flight.finish().unwrap();
        bench.composer.close().unwrap();
    });
}

#[test]
fn a_collective_of_the_host_is_refused_by_name_and_the_batch_goes_on_without_a_graph() {
    on_threads(3, |setup| {
        let (mut bench, batch) = bench_with_prefix(&setup, 2);
        for strategy in COLLECTIVE {
            let (model, device) = (bench.model.clone(), bench.device.clone());
            let epoch = bench.composer.group().epoch();
            let mut flight = bench.composer.begin(&batch, StrategyChoice::Exactly(strategy)).unwrap();
            bench.oracle.restamp();
            let inputs = layer_inputs(&flight, &bench.oracle, &*device, &model, 0);
            let refused = flight.capture_layer(0, &inputs).err().unwrap();
            assert!(
                matches!(refused, ComposeError::NotCapturable { strategy: named, .. } if named == strategy),
                "{refused}"
            );
            assert!(refused.to_string().contains(&strategy.to_string()), "{refused}");
            poison(&flight, &model, 0).unwrap();
            flight.compose_layer(0, &inputs).unwrap();
            compare(&flight, &bench.oracle, &model, 0);
            flight.finish().unwrap();
            assert_eq!(bench.composer.group().epoch(), epoch);
        }
        bench.composer.close().unwrap();
    });
}

#[test]
fn a_layer_captured_in_another_batch_is_refused_and_nothing_is_queued() {
    on_threads(1, |setup| {
        let (mut bench, batch) = bench_with_prefix(&setup, 1);
        let (model, device) = (bench.model.clone(), bench.device.clone());
        let strategy = StrategyChoice::Exactly(Strategy::StagingFill);
        let mut first = bench.composer.begin(&batch, strategy).unwrap();
        let inputs = layer_inputs(&first, &bench.oracle, &*device, &model, 0);
        let captured = first.capture_layer(0, &inputs).unwrap();
        first.finish().unwrap();
        let epoch = bench.composer.group().epoch();
        let mut second = bench.composer.begin(&batch, strategy).unwrap();
        let refused = second.replay_layer(&captured).unwrap_err();
        assert_eq!(refused, ComposeError::CapturedElsewhere { layer: 0 });
        second.finish().unwrap();
        assert_eq!(bench.composer.group().epoch(), epoch);
        bench.composer.close().unwrap();
    });
}

#[test]
fn without_current_pages_gather_compact_has_no_collective_and_can_be_captured() {
    on_threads(3, |setup| {
        let (mut bench, batch) = bench_with_prefix(&setup, 2);
        bench.prove(&batch, StrategyChoice::Exactly(Strategy::StagingFill)).unwrap();
        bench.persisted(&batch);
        let request = &batch.requests[1];
        let reader = RequestPages {
            prefix_tokens: 64,
            prefix_pages: request.current_pages[..8].to_vec(),
            ..RequestPages::default()
        };
        let reads = Batch { requests: vec![reader], num_pad_slots: 1 };
        let model = bench.model.clone();
        let strategy = StrategyChoice::Exactly(Strategy::GatherCompact);
        let mut flight = bench.composer.begin(&reads, strategy).unwrap();
        let captured = flight.capture_layer(1, &LayerInputs::default()).unwrap();
        assert_eq!(captured.num_barriers(), 0);
        poison(&flight, &model, 1).unwrap();
        flight.replay_layer(&captured).unwrap();
        compare(&flight, &bench.oracle, &model, 1);
        flight.finish().unwrap();
        bench.composer.close().unwrap();
    });
}
