//! Batches that threads and processes prove alike: one definition of each.

#![allow(dead_code, reason = "each test file uses its part")]

use cpkv::compose::{ComposeError, StrategyChoice};
use cpkv::plan::{Batch, BatchPlan, RequestPages, Strategy};
use cpkv::units::{PageId, Rank};

use super::fixture::{ALL, BatchMaker, Bench};

/// Tokens a page, where a scenario does not ask for more.
pub(crate) const PAGE_SIZE: u32 = 8;

/// Pages [`conversation`] needs.
pub(crate) const CONVERSATION_PAGES: u32 = 160;

/// Three batches in which later requests build on the pages of earlier ones, and pages are recycled.
pub(crate) fn conversation(bench: &mut Bench, strategies: &[Strategy]) {
    let mut maker = BatchMaker::new(CONVERSATION_PAGES, PAGE_SIZE);
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

/// Padding as first, middle and last slot, and everywhere, and a batch of nothing. Needs 64 pages.
pub(crate) fn padding(bench: &mut Bench) {
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
}

/// Prefixes that end inside a page: only the collective path can, and says so. Needs 128 pages.
pub(crate) fn straddles(bench: &mut Bench) {
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
}

/// Proves `batch` with every strategy; returns how many pages each rank computed, and how many barriers each strategy
/// took.
pub(crate) fn shares_and_barriers(bench: &mut Bench, batch: &Batch) -> (Vec<usize>, [u64; 6]) {
    let shape = bench.composer.pool().shape();
    let pages_of = |rank| BatchPlan::build(shape, rank, batch).unwrap().rows.current_idx.len();
    let shares = shape.group_size.ranks().map(|rank: Rank| pages_of(rank)).collect();
    let barriers = ALL.map(|strategy| {
        let before = bench.composer.group().epoch().0;
        bench.prove(batch, StrategyChoice::Exactly(strategy)).unwrap();
        bench.composer.group().epoch().0 - before
    });
    bench.persisted(batch);
    (shares, barriers)
}

/// One request of one page on top of `prefix`: all ranks but the first have nothing to compute.
pub(crate) fn one_busy_rank(maker: &mut BatchMaker, prefix: &RequestPages) -> Batch {
    let (pages, tokens) = (&prefix.current_pages, prefix.new_tokens);
    Batch { requests: vec![maker.request(pages, tokens, 1)], num_pad_slots: 0 }
}
