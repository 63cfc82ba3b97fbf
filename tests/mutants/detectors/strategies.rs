//! All strategies against the oracle, and stagings whose other half is spoilt.

use cpkv::compose::StrategyChoice;
use cpkv::plan::{Batch, Strategy};

use super::{PATIENT, group_options};
use crate::fixture::{
    ALL, BatchMaker, Bench, POISON, Setup, compare, composer_options, layer_inputs, model, on_threads, poison,
};
use crate::scenario::{PAGE_SIZE, padding};

/// Of the test of stale halves: an odd number, so that layers and epochs part.
const NUM_LAYERS: usize = 3;

pub(crate) fn look() {
    on_threads(3, |setup| stale_halves(&setup));
    on_threads(3, |setup| {
        let mut bench = bench(&setup, 64, 2);
        conversation(&mut bench);
        bench.composer.close().unwrap();
    });
    on_threads(4, |setup| {
        let mut bench = bench(&setup, 64, 1);
        padding(&mut bench);
        bench.composer.close().unwrap();
    });
}

fn bench(setup: &Setup, num_pages: u32, num_layers: usize) -> Bench {
    let options = (group_options(PATIENT), composer_options(2 * num_pages));
    Bench::new(setup, model(num_layers, PAGE_SIZE), num_pages, options.0, options.1).unwrap()
}

/// Two batches, of which the second builds on pages of the first.
fn conversation(bench: &mut Bench) {
    let mut maker = BatchMaker::new(64, PAGE_SIZE);
    let first = maker.fresh(&[1, 7, 33, 90]);
    bench.prove_all(&first, &ALL);
    let (long, short) = (&first.requests[3], &first.requests[2]);
    let second = Batch {
        requests: vec![
            maker.request(&long.current_pages, 90, 20),
            maker.request(&[], 0, 0),
            maker.request(&short.current_pages[..4], 32, 1),
        ],
        num_pad_slots: 3,
    };
    bench.prove_all(&second, &[Strategy::PerSpan]);
    let third = Batch {
        requests: vec![
            maker.request(&long.current_pages[..11], 88, 20),
            maker.request(&short.current_pages[..4], 32, 1),
        ],
        num_pad_slots: 3,
    };
    bench.prove_all(&third, &ALL);
}

/// Batch after batch, the half that is filled next holds poison until then.
fn stale_halves(setup: &Setup) {
    let mut bench = bench(setup, 96, NUM_LAYERS);
    let mut maker = BatchMaker::new(96, PAGE_SIZE);
    for new_tokens in [[40, 13], [9, 70], [33, 33]] {
        let batch = maker.fresh(&new_tokens);
        let Bench { composer, oracle, model, device } = &mut bench;
        let mut flight = composer.begin(&batch, StrategyChoice::Exactly(Strategy::StagingFill)).unwrap();
        for layer in 0..NUM_LAYERS {
            poison(&flight, model, layer).unwrap();
            let inputs = layer_inputs(&flight, oracle, &**device, model, layer);
            flight.compose_layer(layer, &inputs).unwrap();
            flight.synchronize().unwrap();
            compare(&flight, oracle, model, layer);
            // Peers may still read the half just used; nobody reads the other one.
            for &buffer in model.buffers_of(layer) {
                let half = flight.next_staging(buffer).unwrap();
                flight.stream().upload(vec![POISON; half.bytes() as usize], &half).unwrap();
            }
        }
        flight.finish().unwrap();
        bench.persisted(&batch);
        for request in &batch.requests {
            maker.give_back(&request.current_pages);
        }
    }
    bench.composer.close().unwrap();
}
