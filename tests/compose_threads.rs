//! Compose with ranks as threads: every strategy gives the oracle's bytes on every rank.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/fixture.rs"]
mod fixture;
#[path = "support/scenario.rs"]
mod scenario;

use cpkv::compose::{ComposeError, ComposerOptions, StrategyChoice};
use cpkv::plan::{Admission, Batch, PlanError, Strategy};
use fixture::{
    ALL, BatchMaker, Bench, LONG, compare, composer_options, group_options, layer_inputs, model, on_threads,
};
use scenario::{CONVERSATION_PAGES, PAGE_SIZE, conversation, padding, straddles};

#[test]
fn every_strategy_is_exact_for_every_group_size_and_number_of_layers() {
    for num_ranks in [1, 2, 3, 5, 7, 8] {
        for num_layers in [1, 2, 3] {
            on_threads(num_ranks, |setup| {
                let mut bench = Bench::usual(&setup, model(num_layers, PAGE_SIZE), CONVERSATION_PAGES);
                conversation(&mut bench, &ALL);
                assert!(bench.composer.group().words_not_zero().unwrap().is_empty());
                bench.composer.close().unwrap();
            });
        }
    }
}

#[test]
fn a_local_arena_for_the_dense_buffers_changes_no_byte() {
    on_threads(3, |setup| {
        let options = ComposerOptions { dense_arena: true, ..composer_options(320) };
        let (model, pages) = (model(2, PAGE_SIZE), CONVERSATION_PAGES);
        let mut bench = Bench::new(&setup, model, pages, group_options(LONG), options).unwrap();
        conversation(&mut bench, &ALL);
        bench.composer.close().unwrap();
    });
}

#[test]
fn padding_is_zero_wherever_it_stands() {
    on_threads(4, |setup| {
        let mut bench = Bench::usual(&setup, model(2, PAGE_SIZE), 64);
        padding(&mut bench);
        bench.composer.close().unwrap();
    });
}

#[test]
fn a_prefix_that_ends_inside_a_page_takes_the_collective_path_and_is_exact() {
    on_threads(3, |setup| {
        let mut bench = Bench::usual(&setup, model(3, PAGE_SIZE), 128);
        straddles(&mut bench);
        bench.composer.close().unwrap();
    });
}

#[test]
fn staging_exactly_full_passes_and_one_page_over_fails_everywhere_before_anything_is_written() {
    on_threads(4, |setup| {
        let admission = Some(Admission { max_extend_tokens: 64, max_batch_requests: 2 });
        let options = ComposerOptions { admission, ..ComposerOptions::default() };
        let mut bench = Bench::new(&setup, model(2, PAGE_SIZE), 128, group_options(LONG), options).unwrap();
        let mut maker = BatchMaker::new(128, PAGE_SIZE);
        let full = maker.fresh(&[10 * PAGE_SIZE]);
        bench.prove_all(&full, &[Strategy::StagingFill, Strategy::StagingPublish]);
        let epoch = bench.composer.group().epoch();
        let over = maker.fresh(&[10 * PAGE_SIZE, 1]);
        let error = bench.prove(&over, StrategyChoice::Auto).unwrap_err();
        let expected = PlanError::OverCapacity { what: "staging", needed: 11, capacity: 10 };
        assert_eq!(error, ComposeError::Plan(expected));
        assert_eq!(bench.composer.group().epoch(), epoch);
        bench.prove(&full, StrategyChoice::Auto).unwrap();
        bench.composer.close().unwrap();
    });
}

#[test]
fn a_forward_waits_for_no_stream_between_its_layers() {
    on_threads(3, |setup| {
        let mut bench = Bench::usual(&setup, model(5, PAGE_SIZE), 64);
        let mut maker = BatchMaker::new(64, PAGE_SIZE);
        // In the second batch all ranks but the first have nothing to compute.
        let batches = [maker.fresh(&[50, 9]), maker.fresh(&[0, 1])];
        for (batch, strategy) in batches.iter().flat_map(|batch| ALL.map(|strategy| (batch, strategy))) {
            let Bench { composer, oracle, model, device } = &mut bench;
            let mut flight = composer.begin(batch, StrategyChoice::Exactly(strategy)).unwrap();
            let inputs: Vec<_> =
                (0..5).map(|layer| layer_inputs(&flight, oracle, &**device, model, layer)).collect();
            let before = flight.stream().num_host_syncs();
            for (layer, inputs) in inputs.iter().enumerate() {
                flight.compose_layer(layer, inputs).unwrap();
                flight.persist_layer(layer).unwrap();
            }
            assert_eq!(flight.stream().num_host_syncs(), before, "{strategy}");
            flight.finish().unwrap();
        }
        bench.composer.close().unwrap();
    });
}

#[test]
fn a_barrier_between_compose_and_persist_ends_what_can_be_persisted() {
    on_threads(2, |setup| {
        let mut bench = Bench::usual(&setup, model(2, PAGE_SIZE), 32);
        let batch = BatchMaker::new(32, PAGE_SIZE).fresh(&[20]);
        let Bench { composer, oracle, model, device } = &mut bench;
        let mut flight = composer.begin(&batch, StrategyChoice::Exactly(Strategy::SymmDense)).unwrap();
        let inputs = layer_inputs(&flight, oracle, &**device, model, 0);
        flight.compose_layer(0, &inputs).unwrap();
        flight.barrier(0).unwrap();
        // The bytes are still where they were composed.
        compare(&flight, oracle, model, 0);
        assert!(matches!(flight.persist_layer(0), Err(ComposeError::NotComposed { layer: 0, .. })));
        flight.finish().unwrap();
        bench.composer.close().unwrap();
    });
}

#[test]
fn one_layer_of_gather_compact_is_enclosed_in_barriers() {
    on_threads(2, |setup| {
        let mut bench = Bench::usual(&setup, model(1, PAGE_SIZE), 32);
        let batch = BatchMaker::new(32, PAGE_SIZE).fresh(&[20]);
        bench.prove(&batch, StrategyChoice::Exactly(Strategy::GatherCompact)).unwrap();
        assert_eq!(bench.composer.group().epoch().0, 2);
        bench.composer.close().unwrap();
    });
}

#[test]
fn a_batch_without_new_tokens_is_enclosed_in_barriers_where_nothing_else_orders_its_reads() {
    on_threads(3, |setup| {
        let mut bench = Bench::usual(&setup, model(3, PAGE_SIZE), 64);
        let mut maker = BatchMaker::new(64, PAGE_SIZE);
        let base = maker.fresh(&[40]);
        bench.prove_all(&base, &ALL);
        let prefix = base.requests[0].current_pages.clone();
        let batch = Batch { requests: vec![maker.request(&prefix, 40, 0)], num_pad_slots: 0 };
        let epoch = bench.composer.group().epoch().0;
        bench.prove(&batch, StrategyChoice::Exactly(Strategy::GatherCompact)).unwrap();
        assert_eq!(bench.composer.group().epoch().0, epoch + 2);
        bench.composer.close().unwrap();
    });
}
