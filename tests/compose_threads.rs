//! Compose with ranks as threads: every strategy gives the oracle's bytes on every rank.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/fixture.rs"]
mod fixture;

use cpkv::compose::{ComposeError, ComposerOptions, StrategyChoice};
use cpkv::plan::{Admission, Batch, PlanError, RequestPages, Strategy};
use cpkv::units::PageId;
use fixture::{ALL, BatchMaker, Bench, LONG, composer_options, group_options, model, on_threads};

const PAGE_SIZE: u32 = 8;

/// Three batches in which later requests build on the pages of earlier ones, and pages are recycled.
fn conversation(bench: &mut Bench, num_pages: u32, strategies: &[Strategy]) {
    let mut maker = BatchMaker::new(num_pages, PAGE_SIZE);
    let first = maker.fresh(&[1, 7, 8, 9, 63, 64, 65, 200]);
    bench.prove_all(&first, strategies);
    let (long, aligned) = (&first.requests[7], &first.requests[5]);
    let second = Batch {
        requests: vec![
            maker.request(&long.current_pages, 200, 33),
            maker.request(&[], 0, 0),
            maker.request(&aligned.current_pages, 64, 1),
            // Shares its prefix with the request before.
            maker.request(&aligned.current_pages[..4], 32, 40),
        ],
        num_pad_slots: 3,
    };
    bench.prove_all(&second, strategies);
    for request in &first.requests[..5] {
        maker.give_back(&request.current_pages);
    }
    let third = maker.fresh(&[5 * PAGE_SIZE, 300, 2]);
    bench.prove_all(&third, strategies);
}

#[test]
fn every_strategy_is_exact_for_every_group_size_and_number_of_layers() {
    for num_ranks in [1, 2, 3, 5, 7, 8] {
        for num_layers in [1, 2, 3] {
            on_threads(num_ranks, |setup| {
                let mut bench = Bench::usual(&setup, model(num_layers, PAGE_SIZE), 160);
                conversation(&mut bench, 160, &ALL);
                assert!(bench.composer.group().words_not_zero().is_empty());
                bench.composer.close().unwrap();
            });
        }
    }
}

#[test]
fn a_local_arena_for_the_dense_buffers_changes_no_byte() {
    on_threads(3, |setup| {
        let options = ComposerOptions { dense_arena: true, ..composer_options(320) };
        let mut bench = Bench::new(&setup, model(2, PAGE_SIZE), 160, group_options(LONG), options).unwrap();
        conversation(&mut bench, 160, &ALL);
        bench.composer.close().unwrap();
    });
}

#[test]
fn padding_is_zero_wherever_it_stands() {
    on_threads(4, |setup| {
        let mut bench = Bench::usual(&setup, model(2, PAGE_SIZE), 64);
        let mut maker = BatchMaker::new(64, PAGE_SIZE);
        let base = maker.fresh(&[4 * PAGE_SIZE]);
        bench.prove_all(&base, &ALL);
        let mut prefix = base.requests[0].current_pages.clone();
        prefix[0] = PageId::PAD;
        prefix[2] = PageId::PAD;
        let padded = Batch { requests: vec![maker.request(&prefix, 4 * PAGE_SIZE, 11)], num_pad_slots: 1 };
        bench.prove_all(&padded, &ALL);
        let pads = RequestPages {
            prefix_tokens: 3 * PAGE_SIZE,
            prefix_pages: vec![PageId::PAD; 3],
            ..RequestPages::default()
        };
        bench.prove_all(&Batch { requests: vec![pads], num_pad_slots: 2 }, &ALL);
        bench.prove_all(&Batch::default(), &ALL);
        bench.composer.close().unwrap();
    });
}

#[test]
fn a_prefix_that_ends_inside_a_page_takes_the_collective_path_and_is_exact() {
    on_threads(3, |setup| {
        let mut bench = Bench::usual(&setup, model(3, PAGE_SIZE), 128);
        let mut maker = BatchMaker::new(128, PAGE_SIZE);
        let base = maker.fresh(&[100, 30]);
        bench.prove_all(&base, &ALL);
        // Two requests continue the same shared page; the original stays as it is.
        let shared = &base.requests[0].current_pages;
        let batch = Batch {
            requests: vec![
                maker.request(shared, 100, 50),
                maker.request(shared, 100, 1),
                maker.request(&base.requests[1].current_pages, 30, 0),
            ],
            num_pad_slots: 0,
        };
        bench.prove(&batch, StrategyChoice::Exactly(Strategy::PerSpan)).unwrap();
        bench.prove(&batch, StrategyChoice::Auto).unwrap();
        let path = bench.composer.stats().last_path.unwrap();
        assert_eq!(path.strategy, Strategy::FusedAllReduce);
        assert!(path.reason.contains("inside a page"), "{}", path.reason);
        let refused = bench.prove(&batch, StrategyChoice::Exactly(Strategy::StagingFill)).unwrap_err();
        assert!(matches!(refused, ComposeError::StrategyUnavailable { .. }), "{refused}");
        bench.persisted(&batch);
        // What was persisted privately serves the next batch.
        let next = Batch {
            requests: vec![maker.request(
                &[shared[..12].to_vec(), batch.requests[0].current_pages.clone()].concat(),
                150,
                2,
            )],
            num_pad_slots: 0,
        };
        bench.prove(&next, StrategyChoice::Auto).unwrap();
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
