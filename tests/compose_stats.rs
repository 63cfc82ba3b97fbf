//! What a composer says it did: bytes by the rank they came from, and who was late to its barriers. Ranks are threads.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/fixture.rs"]
mod fixture;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use cpkv::compose::{BarrierWaits, ComposeError, ComposerOptions, Stats, StrategyChoice};
use cpkv::deadline::Deadline;
use cpkv::device::Event;
use cpkv::plan::{Batch, RequestPages, Strategy};
use cpkv::units::{PageId, Rank};
use fixture::{
    BatchMaker, Bench, LONG, Setup, composer_options, group_options, layer_inputs, model, on_threads,
};

const PAGE_SIZE: u32 = 8;
const NUM_PAGES: u32 = 64;
/// Bytes of a page: 20 a token of token-KV, and 132 of index-K, which only every second layer has.
const TOKEN_KV_BYTES: u64 = 20 * PAGE_SIZE as u64;
const BOTH_BYTES: u64 = (20 + 132) * PAGE_SIZE as u64;

fn timed_bench(setup: &Setup, num_layers: usize) -> Bench {
    let options = ComposerOptions { time_barriers: true, ..composer_options(2 * NUM_PAGES) };
    Bench::new(setup, model(num_layers, PAGE_SIZE), NUM_PAGES, group_options(LONG), options).unwrap()
}

fn waits(stats: &Stats) -> &BarrierWaits {
    stats.barrier_waits.as_ref().unwrap()
}

#[test]
fn bytes_are_counted_by_the_rank_they_are_read_from() {
    on_threads(2, |setup| {
        let mut bench = Bench::usual(&setup, model(3, PAGE_SIZE), NUM_PAGES);
        let pages = |ids: &[i32]| ids.iter().copied().map(PageId).collect();
        let request =
            RequestPages { new_tokens: 24, current_pages: pages(&[1, 3, 5]), ..RequestPages::default() };
        let first = Batch { requests: vec![request], num_pad_slots: 0 };
        // Layers 0 and 2 have both buffers; the zigzag of three pages over two ranks is 0, 1, 1.
        let three_layers = 2 * BOTH_BYTES + TOKEN_KV_BYTES;
        bench.prove(&first, StrategyChoice::Auto).unwrap();
        bench.persisted(&first);
        let stats = bench.composer.stats();
        assert_eq!(stats.last_gathered, stats.gathered);
        assert_eq!(stats.gathered.prefix_bytes, [0, 0]);
        assert_eq!(stats.gathered.current_bytes, [three_layers, 2 * three_layers]);
        assert_eq!(stats.gathered.egress_skew(), 4.0 / 3.0);
        assert_eq!(stats.lower_bound(three_layers as f64), Some(Duration::from_secs(2)));

        // All three are rank 1's now.
        let prefix =
            RequestPages { prefix_tokens: 24, prefix_pages: pages(&[1, 3, 5]), ..RequestPages::default() };
        let second = Batch { requests: vec![prefix], num_pad_slots: 1 };
        bench.prove(&second, StrategyChoice::Exactly(Strategy::StagingFill)).unwrap();
        let stats = bench.composer.stats();
        assert_eq!(stats.last_gathered.prefix_bytes, [0, 3 * three_layers]);
        assert_eq!(stats.last_gathered.egress_skew(), 2.0);
        assert_eq!(stats.gathered.egress_bytes(), [three_layers, 5 * three_layers]);

        // A collective's traffic is its own.
        bench.prove(&second, StrategyChoice::Exactly(Strategy::FusedAllReduce)).unwrap();
        let after = bench.composer.stats();
        assert_eq!(after.last_gathered.egress_bytes(), [0, 0]);
        assert_eq!(after.gathered, stats.gathered);
        assert_eq!(after.barrier_waits, None);
        bench.composer.close().unwrap();
    });
}

#[test]
fn a_rank_delayed_on_purpose_is_named_as_late_with_its_delay() {
    const LATE: Rank = Rank(2);
    const DELAY: Duration = Duration::from_millis(300);
    // Fire when the streams of the others have come to the second layer.
    let arrivals: Mutex<Vec<Arc<dyn Event>>> = Mutex::new(Vec::new());
    let all = on_threads(4, |setup| {
        let mut bench = timed_bench(&setup, 3);
        let batch = BatchMaker::new(NUM_PAGES, PAGE_SIZE).fresh(&[70]);
        let Bench { composer, oracle, model, device } = &mut bench;
        let mut flight = composer.begin(&batch, StrategyChoice::Auto).unwrap();
        let inputs: Vec<_> =
            (0..3).map(|layer| layer_inputs(&flight, oracle, &**device, model, layer)).collect();
        let before = flight.stream().num_host_syncs();
        flight.compose_layer(0, &inputs[0]).unwrap();
        if setup.rank() != LATE {
            arrivals.lock().unwrap().push(flight.stream().record().unwrap());
            flight.compose_layer(1, &inputs[1]).unwrap();
        }
        setup.bootstrap.barrier("three have queued the second layer", Deadline::after(LONG)).unwrap();
        if setup.rank() == LATE {
            let arrived = std::mem::take(&mut *arrivals.lock().unwrap());
            arrived.iter().for_each(|event| event.wait(Deadline::after(LONG)).unwrap());
            // Far more: between its event and its barrier a stream may be without a processor for a while.
            thread::sleep(10 * DELAY);
            flight.compose_layer(1, &inputs[1]).unwrap();
        }
        flight.compose_layer(2, &inputs[2]).unwrap();
        assert_eq!(flight.stream().num_host_syncs(), before);
        flight.finish().unwrap();
        let stats = bench.composer.stats();
        bench.composer.close().unwrap();
        stats
    });
    for (rank, stats) in all.iter().enumerate() {
        let waits = waits(stats);
        assert_eq!((waits.num_barriers, waits.num_untimed), (3, 0));
        let late = waits.late_ranks[LATE.idx()];
        assert!(late.num_last >= 1 && late.longest_wait_ns >= DELAY.as_nanos() as u64, "{waits:?}");
        let waited = Duration::from_nanos(late.waited_ns);
        assert!(rank == LATE.idx() || waited >= DELAY, "rank {rank}: {waits:?}");
        // All find the same.
        let found = |stats: &Stats| group_wide(self::waits(stats));
        assert_eq!(found(stats), found(&all[0]));
    }
}

/// What must be equal on all ranks.
fn group_wide(waits: &BarrierWaits) -> Vec<(Rank, u64, u64)> {
    waits.late_ranks.iter().map(|late| (late.rank, late.num_last, late.longest_wait_ns)).collect()
}

#[test]
fn replayed_barriers_and_those_past_the_room_are_counted_as_untimed() {
    on_threads(2, |setup| {
        let mut bench = timed_bench(&setup, 1);
        let batch = BatchMaker::new(NUM_PAGES, PAGE_SIZE).fresh(&[20]);
        for (num_composed, num_replayed, expected) in [(3, 2, (3, 2)), (1030, 0, (1024, 6))] {
            let before = waits(&bench.composer.stats()).clone();
            let Bench { composer, oracle, model, device } = &mut bench;
            let mut flight = composer.begin(&batch, StrategyChoice::Auto).unwrap();
            let inputs = layer_inputs(&flight, oracle, &**device, model, 0);
            for _ in 0..num_composed {
                flight.compose_layer(0, &inputs).unwrap();
            }
            let captured = flight.capture_layer(0, &inputs).unwrap();
            for _ in 0..num_replayed {
                flight.replay_layer(&captured).unwrap();
            }
            flight.finish().unwrap();
            let stats = bench.composer.stats();
            let (timed, untimed) = (waits(&stats).num_barriers, waits(&stats).num_untimed);
            assert_eq!((timed - before.num_barriers, untimed - before.num_untimed), expected);
            let num_last: u64 = waits(&stats).late_ranks.iter().map(|late| late.num_last).sum();
            assert_eq!(num_last, timed);
        }
        bench.composer.close().unwrap();
    });
}

#[test]
fn ranks_that_disagree_about_timing_are_refused_at_registration() {
    let errors = on_threads(3, |setup| {
        let time_barriers = setup.rank() == Rank(1);
        let options = ComposerOptions { time_barriers, ..composer_options(NUM_PAGES) };
        Bench::new(&setup, model(1, PAGE_SIZE), NUM_PAGES, group_options(LONG), options)
            .map(drop)
            .unwrap_err()
    });
    for error in errors {
        assert!(matches!(error, ComposeError::Register(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("timed barriers") && text.contains("rank 1"), "{text}");
    }
}
