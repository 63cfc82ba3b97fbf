//! Symmetric memory of GPUs on virtual ones that lie about it: what the probe finds, and what the ranks do then.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[cfg(feature = "mpi")]
#[path = "cuda_symm/ipc.rs"]
mod ipc;
#[path = "cuda_symm/memory_kinds.rs"]
mod memory_kinds;
#[cfg(feature = "mpi")]
#[path = "cuda_symm/processes.rs"]
mod processes;
#[path = "cuda_symm/staged.rs"]
mod staged;
mod support;
#[path = "cuda_symm/threads.rs"]
mod threads;
#[path = "support/vgpu.rs"]
mod vgpu;

use cpkv::compose::{ComposeError, StrategyChoice};
use cpkv::plan::Strategy;

use support::fixture::{ALL, BatchMaker, Bench, Setup, model};
use support::scenario::PAGE_SIZE;

/// Pages of a pool in these tests.
const NUM_PAGES: u32 = 96;

/// All ranks take the collective path, exactly, after one probe, and say why: some of `words`.
fn expect_collective_path(setup: &Setup, words: &[&str]) {
    let mut bench = Bench::usual(setup, model(3, PAGE_SIZE), NUM_PAGES);
    let mut maker = BatchMaker::new(NUM_PAGES, PAGE_SIZE);
    for new_tokens in [[50, 8], [3, 41]] {
        let batch = maker.fresh(&new_tokens);
        bench.prove(&batch, StrategyChoice::Auto).unwrap();
        bench.persisted(&batch);
    }
    let stats = bench.composer.stats();
    assert_eq!((stats.num_probes, stats.num_fallbacks), (1, 2));
    assert_eq!(stats.last_path.unwrap().strategy, Strategy::FusedAllReduce);
    let reason = stats.unreachable.unwrap();
    assert!(words.iter().all(|word| reason.contains(word)), "{reason}");
    assert_eq!(bench.composer.group().unreachable(), Some(&*reason));
    let batch = maker.fresh(&[9]);
    bench.prove(&batch, StrategyChoice::Exactly(Strategy::PerSpan)).unwrap();
    let refused = bench.prove(&batch, StrategyChoice::Exactly(Strategy::StagingFill)).unwrap_err();
    assert!(matches!(refused, ComposeError::StrategyUnavailable { .. }), "{refused}");
    assert!(words.iter().all(|word| refused.to_string().contains(word)), "{refused}");
    bench.composer.close().unwrap();
}

/// Every strategy is exact on memory that all ranks reach.
fn expect_every_strategy(setup: &Setup) {
    let mut bench = Bench::usual(setup, model(2, PAGE_SIZE), NUM_PAGES);
    let mut maker = BatchMaker::new(NUM_PAGES, PAGE_SIZE);
    let first = maker.fresh(&[50, 8]);
    bench.prove_all(&first, &ALL);
    let request = maker.request(&first.requests[0].current_pages[..6], 6 * PAGE_SIZE, 21);
    let second = cpkv::plan::Batch { requests: vec![request], num_pad_slots: 1 };
    bench.prove_all(&second, &ALL);
    assert_eq!((bench.composer.group().unreachable(), bench.composer.stats().num_fallbacks), (None, 0));
    assert!(bench.composer.group().words_not_zero().unwrap().is_empty());
    bench.composer.close().unwrap();
}
