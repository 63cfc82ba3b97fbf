//! What the launch thread does while a forward runs: it queues, and waits for nothing. Ranks are threads.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/fixture.rs"]
mod fixture;

use cpkv::compose::{BatchInFlight, LayerInputs, StrategyChoice};
use cpkv::deadline::Deadline;
use cpkv::device::DeviceBuffer;
use cpkv::plan::{Batch, Strategy};
use fixture::{ALL, BatchMaker, Bench, LONG, Setup, layer_inputs, model, on_threads};

const PAGE_SIZE: u32 = 8;
const NUM_PAGES: u32 = 96;

/// Strategies that can compose a prefix that ends inside a page.
const UNALIGNED: [Strategy; 2] = [Strategy::PerSpan, Strategy::FusedAllReduce];
/// Strategies without a call of the host.
const CAPTURABLE: [Strategy; 3] = [Strategy::StagingFill, Strategy::StagingPublish, Strategy::SymmDense];

/// Two requests on top of a first batch, which is in the pool then; `new_tokens` of them, behind `prefix_tokens`.
fn bench_and_batch(
    setup: &Setup,
    num_layers: usize,
    prefix_tokens: u32,
    new_tokens: [u32; 2],
) -> (Bench, Batch) {
    let mut bench = Bench::usual(setup, model(num_layers, PAGE_SIZE), NUM_PAGES);
    let mut maker = BatchMaker::new(NUM_PAGES, PAGE_SIZE);
    let first = maker.fresh(&[prefix_tokens]);
    bench.prove_all(&first, &[Strategy::StagingFill]);
    let [on_prefix, alone] = new_tokens;
    let requests = vec![
        maker.request(&first.requests[0].current_pages, prefix_tokens, on_prefix),
        maker.request(&[], 0, alone),
    ];
    (bench, Batch { requests, num_pad_slots: 1 })
}

/// What a batch's host synchronisations were.
#[derive(Debug, PartialEq, Eq)]
struct Syncs {
    in_layers: u64,
    in_batch: u64,
}

/// Runs `layers` between the first layer and the last, and counts.
fn count(
    bench: &mut Bench,
    batch: &Batch,
    strategy: Strategy,
    layers: impl FnOnce(&mut BatchInFlight<'_>, &[LayerInputs]),
) -> Syncs {
    let Bench { composer, oracle, model, device } = bench;
    let before_batch = composer.stats().num_host_syncs;
    let mut flight = composer.begin(batch, StrategyChoice::Exactly(strategy)).unwrap();
    assert_eq!(flight.strategy(), strategy);
    let inputs = (0..model.num_layers()).map(|layer| layer_inputs(&flight, oracle, &**device, model, layer));
    let inputs: Vec<_> = inputs.collect();
    let before_layers = flight.stream().num_host_syncs();
    layers(&mut flight, &inputs);
    let in_layers = flight.stream().num_host_syncs() - before_layers;
    flight.finish().unwrap();
    Syncs { in_layers, in_batch: composer.stats().num_host_syncs - before_batch }
}

/// Every layer composed, looked at by attention, and persisted.
fn forward(flight: &mut BatchInFlight<'_>, inputs: &[LayerInputs]) {
    for (layer, inputs) in inputs.iter().enumerate() {
        flight.compose_layer(layer, inputs).unwrap();
        assert_eq!(flight.ragged().topk_offsets.bytes(), 4 * u64::from(flight.plan().ragged.num_rows()));
        flight.persist_layer(layer).unwrap();
    }
}

#[test]
fn a_forward_over_an_unaligned_prefix_waits_for_no_stream_between_its_layers() {
    on_threads(3, |setup| {
        let (mut bench, batch) = bench_and_batch(&setup, 5, 37, [50, 9]);
        for strategy in UNALIGNED {
            assert_eq!(count(&mut bench, &batch, strategy, forward).in_layers, 0, "{strategy}");
        }
        bench.composer.close().unwrap();
    });
}

#[test]
fn replayed_layers_wait_for_no_stream() {
    on_threads(3, |setup| {
        let (mut bench, batch) = bench_and_batch(&setup, 3, 40, [50, 9]);
        for strategy in CAPTURABLE {
            let counted = count(&mut bench, &batch, strategy, |flight, inputs| {
                for (layer, inputs) in inputs.iter().enumerate() {
                    let captured = flight.capture_layer(layer, inputs).unwrap();
                    for _ in 0..2 {
                        flight.replay_layer(&captured).unwrap();
                        flight.persist_layer(layer).unwrap();
                    }
                }
            });
            assert_eq!(counted.in_layers, 0, "{strategy}");
        }
        bench.composer.close().unwrap();
    });
}

/// Nothing that waits is put off to the end of the batch either.
#[test]
fn a_batch_of_many_layers_waits_as_often_as_one_of_few() {
    let of_batches = |num_layers| {
        on_threads(3, |setup| {
            let (mut bench, batch) = bench_and_batch(&setup, num_layers, 40, [50, 9]);
            let counted = ALL.map(|strategy| count(&mut bench, &batch, strategy, forward));
            bench.composer.close().unwrap();
            counted
        })
    };
    let few = of_batches(2);
    assert!(few.iter().flatten().all(|syncs| syncs.in_batch > 0), "finish waits: {few:?}");
    assert_eq!(of_batches(9), few);
}

#[test]
fn a_wait_between_layers_is_counted() {
    on_threads(2, |setup| {
        let (mut bench, batch) = bench_and_batch(&setup, 2, 40, [50, 9]);
        let counted = count(&mut bench, &batch, Strategy::StagingFill, |flight, inputs| {
            flight.compose_layer(0, &inputs[0]).unwrap();
            flight.synchronize().unwrap();
            flight.compose_layer(1, &inputs[1]).unwrap();
        });
        assert_eq!(counted.in_layers, 1);
        bench.composer.close().unwrap();
    });
}

/// The int32 entries of `table`.
fn entries(flight: &BatchInFlight<'_>, table: &DeviceBuffer) -> Vec<i32> {
    let mut bytes = vec![0; table.bytes() as usize];
    flight.stream().download(table, &mut bytes, Deadline::after(LONG)).unwrap();
    bytes.as_chunks().0.iter().map(|&entry| i32::from_le_bytes(entry)).collect()
}

#[test]
fn every_strategy_brings_the_ragged_plan_to_the_device() {
    let check = |bench: &mut Bench, batch: &Batch, strategy| {
        let flight = bench.composer.begin(batch, StrategyChoice::Exactly(strategy)).unwrap();
        let (host, device) = (&flight.plan().ragged, flight.ragged());
        let by_name = [
            (&device.q_starts, host.q_starts()),
            (&device.q_lens, host.q_lens()),
            (&device.kv_lens, host.kv_lens()),
            (&device.k_bases, host.k_bases()),
            (&device.q_bases, host.q_bases()),
            (&device.current_bases, host.current_bases()),
            (&device.segments, host.segments().as_flattened()),
            (&device.topk_offsets, host.topk_offsets()),
        ];
        for (which, (on_device, in_host)) in by_name.into_iter().enumerate() {
            assert_eq!(entries(&flight, on_device), in_host, "table {which} of {strategy}");
            assert_eq!(on_device.addr() % 16, 0, "table {which} of {strategy}");
        }
        let num_rows = host.num_rows();
        flight.finish().unwrap();
        num_rows
    };
    for (prefix_tokens, strategies) in [(40, &ALL[..]), (37, &UNALIGNED)] {
        let num_rows = on_threads(3, |setup| {
            let (mut bench, batch) = bench_and_batch(&setup, 1, prefix_tokens, [50, 9]);
            let num_rows = strategies.iter().map(|&strategy| check(&mut bench, &batch, strategy)).max();
            bench.composer.close().unwrap();
            num_rows.unwrap()
        });
        assert_eq!(num_rows.iter().sum::<u32>(), 59);
    }
}
