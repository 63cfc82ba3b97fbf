//! Compose with ranks as processes under `mpirun`: every strategy gives the oracle's bytes on every rank.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use cpkv::compose::ComposerOptions;
use cpkv::plan::Batch;

use support::fixture::{ALL, BatchMaker, Bench, LONG, composer_options, group_options, model};
use support::processes::mpi_setup;
use support::scenario::{
    CONVERSATION_PAGES, PAGE_SIZE, conversation, one_busy_rank, padding, shares_and_barriers, straddles,
};
use support::{Ending, MpiJob, report, under_mpirun};

/// Ends a bench in good order: no signal word is left over.
fn close(bench: Bench) {
    assert!(bench.composer.group().words_not_zero().unwrap().is_empty());
    assert!(bench.composer.group().unreachable().is_none());
    bench.composer.close().unwrap();
}

/// Models of 1, 2 and 3 layers, the dense buffers apart and in one arena.
fn conversations() -> Ending {
    let setup = mpi_setup();
    for (num_layers, dense_arena) in [(1, false), (2, true), (3, false)] {
        let options = ComposerOptions { dense_arena, ..composer_options(2 * CONVERSATION_PAGES) };
        let model = model(num_layers, PAGE_SIZE);
        let mut bench = Bench::new(&setup, model, CONVERSATION_PAGES, group_options(LONG), options).unwrap();
        conversation(&mut bench, &ALL);
        let stats = bench.composer.stats();
        assert_eq!((stats.num_batches, stats.num_fallbacks), (18, 0));
        report(&format!("PROVEN {} batches", stats.num_batches));
        close(bench);
    }
    Ending::Normal
}

macro_rules! conversations {
    ($($name:ident: $num_ranks:literal),*) => {$(
        #[test]
        fn $name() {
            let reported = under_mpirun(&MpiJob::new($num_ranks), stringify!($name), conversations);
            if let Some(reported) = reported {
                let proven = reported.lines().filter(|line| *line == "PROVEN 18 batches").count();
                assert_eq!(proven, 3 * $num_ranks);
            }
        }
    )*};
}

conversations!(
    one_process_composes_exactly: 1,
    two_processes_compose_exactly: 2,
    three_processes_compose_exactly: 3,
    five_processes_compose_exactly: 5,
    seven_processes_compose_exactly: 7,
    eight_processes_compose_exactly: 8
);

#[test]
fn padding_is_zero_wherever_it_stands() {
    under_mpirun(&MpiJob::new(4), "padding_is_zero_wherever_it_stands", || {
        let mut bench = Bench::usual(&mpi_setup(), model(2, PAGE_SIZE), 64);
        padding(&mut bench);
        close(bench);
        Ending::Normal
    });
}

#[test]
fn a_prefix_that_ends_inside_a_page_takes_the_collective_path_and_is_exact() {
    let test = "a_prefix_that_ends_inside_a_page_takes_the_collective_path_and_is_exact";
    under_mpirun(&MpiJob::new(8), test, || {
        let mut bench = Bench::usual(&mpi_setup(), model(3, PAGE_SIZE), 128);
        straddles(&mut bench);
        close(bench);
        Ending::Normal
    });
}

#[test]
fn ranks_without_work_enter_every_barrier_of_every_layer() {
    under_mpirun(&MpiJob::new(8), "ranks_without_work_enter_every_barrier_of_every_layer", || {
        let mut bench = Bench::usual(&mpi_setup(), model(3, 64), 256);
        let mut maker = BatchMaker::new(256, 64);
        // Barriers a batch: none where a collective does the work, else one a layer.
        let barriers = [0, 0, 0, 3, 3, 3];
        let long = maker.fresh(&[4097]);
        let shares = vec![9, 8, 8, 8, 8, 8, 8, 8];
        assert_eq!(shares_and_barriers(&mut bench, &long), (shares, barriers));
        let one = maker.fresh(&[1]);
        let alone = vec![1, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(shares_and_barriers(&mut bench, &one), (alone.clone(), barriers));
        let prefix = maker.fresh(&[512]);
        bench.prove_all(&prefix, &ALL);
        let next = one_busy_rank(&mut maker, &prefix.requests[0]);
        assert_eq!(shares_and_barriers(&mut bench, &next), (alone, barriers));
        // Without current pages gather_compact has no collective, and is enclosed in barriers instead.
        let enclosed = [0, 0, 2, 3, 3, 3];
        assert_eq!(shares_and_barriers(&mut bench, &Batch::default()), (vec![0; 8], enclosed));
        close(bench);
        Ending::Normal
    });
}

#[test]
fn lengths_around_page_and_block_ends_are_exact_together_and_with_an_empty_request() {
    let test = "lengths_around_page_and_block_ends_are_exact_together_and_with_an_empty_request";
    under_mpirun(&MpiJob::new(8), test, || {
        let mut bench = Bench::usual(&mpi_setup(), model(2, 64), 400);
        let mut maker = BatchMaker::new(400, 64);
        for lengths in [&[1, 63, 64, 65, 511, 512, 513, 4097][..], &[4000, 0], &[1, 64, 65, 513]] {
            let batch = maker.fresh(lengths);
            bench.prove_all(&batch, &ALL);
        }
        close(bench);
        Ending::Normal
    });
}
