//! Faults that must not happen, or must be told: ranks as threads.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/fixture.rs"]
mod fixture;
#[path = "support/lying_backend.rs"]
mod lying_backend;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cpkv::compose::{ComposeError, LayerInputs, StrategyChoice};
use cpkv::deadline::Deadline;
use cpkv::group::{Fault, Group, GroupError, SignalRegion};
use cpkv::model::BufferId;
use cpkv::plan::Strategy;
use cpkv::symm::{ArenaLayout, RegisterError, RegistrationRecord, SymmRegion};
use cpkv::units::{PageId, Rank, RankSet};
use fixture::{
    ALL, BatchMaker, Bench, LONG, POISON, Setup, compare, composer_options, dense_bytes, group_options,
    layer_inputs, model, on_setups, on_threads, poison, thread_setups,
};
use lying_backend::{Lie, LyingBackend};

const PAGE_SIZE: u32 = 8;

/// Long enough for threads that come, short enough to wait for one that does not.
const TIMEOUT: Duration = Duration::from_secs(3);

fn just(rank: u32) -> RankSet {
    [Rank(rank)].into_iter().collect()
}

#[test]
fn stale_halves_are_never_read() {
    for num_layers in [1, 2, 3] {
        on_threads(4, |setup| {
            let mut bench = Bench::usual(&setup, model(num_layers, PAGE_SIZE), 96);
            let mut maker = BatchMaker::new(96, PAGE_SIZE);
            for new_tokens in [[40, 13], [64, 1], [9, 70], [33, 33]] {
                let batch = maker.fresh(&new_tokens);
                let Bench { composer, oracle, model, device } = &mut bench;
                let mut flight =
                    composer.begin(&batch, StrategyChoice::Exactly(Strategy::StagingFill)).unwrap();
                poison(&flight, model, 0).unwrap();
                for layer in 0..num_layers {
                    let inputs = layer_inputs(&flight, oracle, &**device, model, layer);
                    flight.compose_layer(layer, &inputs).unwrap();
                    flight.synchronize().unwrap();
                    compare(&flight, oracle, model, layer);
                    // The half just used still has readers; the other one has none.
                    for &buffer in model.buffers_of(layer) {
                        let half = flight.next_staging(buffer).unwrap();
                        flight.stream().upload(vec![POISON; half.bytes() as usize], &half).unwrap();
                    }
                    poison(&flight, model, layer).unwrap();
                }
                flight.finish().unwrap();
                bench.persisted(&batch);
                for request in &batch.requests {
                    maker.give_back(&request.current_pages);
                }
            }
            bench.composer.close().unwrap();
        });
    }
}

#[test]
fn a_one_layer_pool_serves_the_same_page_in_successive_batches() {
    on_threads(3, |setup| {
        let mut bench = Bench::usual(&setup, model(1, PAGE_SIZE), 8);
        let mut maker = BatchMaker::new(8, PAGE_SIZE);
        let mut prefix = maker.fresh(&[4 * PAGE_SIZE]);
        bench.prove_all(&prefix, &[Strategy::StagingFill]);
        for round in 0..20 {
            let old = prefix.requests[0].current_pages.clone();
            let request = maker.request(&old, 4 * PAGE_SIZE, 4 * PAGE_SIZE);
            prefix = cpkv::plan::Batch { requests: vec![request], num_pad_slots: 0 };
            // The owner rewrites in the next batch what peers read as prefix in this one.
            let strategy = [Strategy::StagingFill, Strategy::GatherCompact, Strategy::SymmDense][round % 3];
            bench.prove_all(&prefix, &[strategy]);
            maker.give_back(&old);
        }
        bench.composer.close().unwrap();
    });
}

#[test]
fn rows_of_any_value_are_copied_as_bytes() {
    on_threads(4, |setup| {
        let mut bench = Bench::usual(&setup, model(2, PAGE_SIZE), 64);
        let batch = BatchMaker::new(64, PAGE_SIZE).fresh(&[100, 3]);
        for byte in [0x80, 0xff, 0x7f, 0x00] {
            for strategy in ALL {
                let (composer, device) = (&mut bench.composer, Arc::clone(&bench.device));
                let mut flight = composer.begin(&batch, StrategyChoice::Exactly(strategy)).unwrap();
                poison(&flight, &bench.model, 1).unwrap();
                let rows = device.alloc(u64::from(flight.plan().rows.num_rows()) * 20).unwrap();
                flight.stream().upload(vec![byte; rows.bytes() as usize], &rows).unwrap();
                flight.compose_layer(1, &LayerInputs::default().with(BufferId::TOKEN_KV, rows)).unwrap();
                let dense = dense_bytes(&flight, BufferId::TOKEN_KV);
                flight.finish().unwrap();
                for (row, bytes) in dense.chunks_exact(20).enumerate() {
                    let is_token = row < 100 || (104..107).contains(&row);
                    let expected = if is_token { byte } else { 0 };
                    assert!(bytes.iter().all(|&got| got == expected), "{strategy}: row {row} of {byte:#x}");
                }
            }
        }
        bench.composer.close().unwrap();
    });
}

#[test]
fn a_write_past_a_buffer_is_found_by_its_guards() {
    on_threads(2, |setup| {
        let mut bench = Bench::usual(&setup, model(2, PAGE_SIZE), 64);
        let batch = BatchMaker::new(64, PAGE_SIZE).fresh(&[30]);
        let flight = bench.composer.begin(&batch, StrategyChoice::Auto).unwrap();
        let half = flight.next_staging(BufferId::INDEX_K).unwrap();
        // SAFETY: guard bytes lie behind every half, inside the same region.
        let past =
            unsafe { cpkv::device::DeviceBuffer::from_raw(half.addr() + half.bytes(), 1, half.keep()) };
        flight.stream().upload(vec![0], &past).unwrap();
        let error = flight.finish().unwrap_err();
        assert!(matches!(&error, ComposeError::GuardBroken { region, .. } if region == "staging"), "{error}");
    });
}

#[test]
fn probe_failures_of_one_rank_send_all_ranks_down_the_collective_path() {
    for lie in [Lie::FailsAtExport, Lie::FailsAtOpen, Lie::ReadsOtherMemory] {
        let mut setups = thread_setups(8);
        setups[7].backend = Arc::new(LyingBackend::new(Arc::clone(&setups[7].backend), lie));
        on_setups(setups, |setup| {
            let mut bench = Bench::usual(&setup, model(3, PAGE_SIZE), 96);
            let mut maker = BatchMaker::new(96, PAGE_SIZE);
            for _ in 0..2 {
                let batch = maker.fresh(&[50, 8]);
                bench.prove(&batch, StrategyChoice::Auto).unwrap();
                bench.persisted(&batch);
            }
            let stats = bench.composer.stats();
            assert_eq!(stats.num_probes, 1);
            assert_eq!(stats.num_fallbacks, 2);
            assert_eq!(stats.last_path.unwrap().strategy, Strategy::FusedAllReduce);
            let reason = stats.unreachable.unwrap();
            assert!(reason.contains("rank 7"), "{lie:?}: {reason}");
            let batch = maker.fresh(&[9]);
            let error = bench.prove(&batch, StrategyChoice::Exactly(Strategy::StagingFill)).unwrap_err();
            assert!(error.to_string().contains("rank 7"), "{error}");
            bench.composer.close().unwrap();
        });
    }
}

#[test]
fn a_rank_with_another_batch_is_named_before_anything_is_launched() {
    on_threads(8, |setup| {
        let mut bench = Bench::usual(&setup, model(2, PAGE_SIZE), 64);
        let mut maker = BatchMaker::new(64, PAGE_SIZE);
        let pages = if setup.rank() == Rank(5) { 10 } else { 9 };
        let batch = maker.fresh(&[pages * PAGE_SIZE]);
        let error = bench.composer.begin(&batch, StrategyChoice::Auto).err().unwrap();
        assert!(matches!(error, ComposeError::PlansDiffer { odd, .. } if odd == just(5)), "{error}");
        assert_eq!(bench.composer.group().epoch().0, 0);
        // Nothing is lost: the next batch, equal on all ranks, goes through.
        let batch = BatchMaker::new(64, PAGE_SIZE).fresh(&[9]);
        bench.prove_all(&batch, &[Strategy::StagingFill]);
        // Another strategy on one rank is another plan, too.
        let strategy = if setup.rank() == Rank(2) { Strategy::StagingPublish } else { Strategy::StagingFill };
        let error = bench.composer.begin(&batch, StrategyChoice::Exactly(strategy)).err().unwrap();
        assert!(matches!(error, ComposeError::PlansDiffer { odd, .. } if odd == just(2)), "{error}");
        bench.composer.close().unwrap();
    });
}

#[test]
fn a_rank_that_cannot_plan_is_named_by_the_others() {
    on_threads(3, |setup| {
        let mut bench = Bench::usual(&setup, model(2, PAGE_SIZE), 64);
        let mut batch = BatchMaker::new(64, PAGE_SIZE).fresh(&[30]);
        if setup.rank() == Rank(1) {
            batch.requests[0].current_pages[2] = PageId(64);
        }
        let error = bench.composer.begin(&batch, StrategyChoice::Auto).err().unwrap();
        match setup.rank() {
            Rank(1) => assert!(matches!(error, ComposeError::Plan(_)), "{error}"),
            _ => assert!(matches!(error, ComposeError::PeerRefused { rank: Rank(1), .. }), "{error}"),
        }
        bench.composer.close().unwrap();
    });
}

#[test]
fn a_timeout_with_layers_queued_behind_it_changes_no_byte_and_names_the_absent_rank_everywhere() {
    on_threads(4, |setup| {
        let meet = || setup.bootstrap.barrier("the others have given up", Deadline::after(LONG)).unwrap();
        let mut bench =
            Bench::new(&setup, model(4, PAGE_SIZE), 96, group_options(TIMEOUT), composer_options(192))
                .unwrap();
        let mut maker = BatchMaker::new(96, PAGE_SIZE);
        let base = maker.fresh(&[60]);
        bench.prove_all(&base, &ALL);
        let batch = cpkv::plan::Batch {
            requests: vec![maker.request(&base.requests[0].current_pages[..7], 56, 40)],
            num_pad_slots: 0,
        };
        let Bench { composer, oracle, model, device } = &mut bench;
        let mut flight = composer.begin(&batch, StrategyChoice::Exactly(Strategy::StagingFill)).unwrap();
        poison(&flight, model, 0).unwrap();
        let absent = setup.rank() == Rank(2);
        if absent {
            meet();
        }
        let started = Instant::now();
        let mut outcome = Ok(());
        for layer in 0..4 {
            let inputs = layer_inputs(&flight, oracle, &**device, model, layer);
            outcome = outcome.and_then(|()| flight.compose_layer(layer, &inputs));
            outcome = outcome.and_then(|()| flight.persist_layer(layer));
        }
        let error = outcome.and_then(|()| flight.synchronize()).unwrap_err();
        let waited = started.elapsed();
        assert!(waited < TIMEOUT * 5 / 2, "one timeout, not one a layer: {waited:?}");
        let ComposeError::Group(GroupError::Fault(Fault::Barrier { missing, by, .. })) = &error else {
            panic!("{error}");
        };
        assert_eq!((*missing, *by == Rank(2)), (just(2), false), "{error}");
        if !absent {
            meet();
        }
        let dense = dense_bytes(&flight, BufferId::TOKEN_KV);
        assert!(dense.iter().all(|&byte| byte == POISON), "dense bytes changed after the timeout");
        // Every later call refuses at once, with the same cause.
        let again = flight.barrier(0);
        assert_eq!(again.unwrap_err(), error);
        assert_eq!(flight.finish().unwrap_err(), error);
        assert_eq!(bench.composer.begin(&batch, StrategyChoice::Auto).err().unwrap(), error);
        for &page in &batch.requests[0].current_pages {
            for layer in 0..4 {
                let bytes = bench.pool_page(layer, BufferId::TOKEN_KV, page);
                assert!(
                    bytes.is_none_or(|bytes| bytes.iter().all(|&byte| byte == 0)),
                    "page {page} was persisted"
                );
            }
        }
        assert_eq!(bench.composer.close().unwrap_err(), error);
    });
}

#[test]
fn a_second_group_on_one_signal_pad_is_refused() {
    on_threads(2, |setup| {
        let Setup { device, bootstrap, backend, .. } = setup;
        let region =
            SignalRegion::register(&*bootstrap, &*device, &backend, Deadline::after(LONG)).unwrap().unwrap();
        let register = || {
            let (bootstrap, backend) = (Arc::clone(&bootstrap), Arc::clone(&backend));
            Group::on_region(&region, bootstrap, Arc::clone(&device), backend, group_options(LONG))
        };
        let first = register().unwrap();
        assert!(matches!(register().err(), Some(RegisterError::PadTaken { .. })));
        first.close().unwrap();
    });
}

#[test]
fn a_rank_that_carves_in_another_order_is_named_at_registration() {
    on_threads(3, |setup| {
        let mut layout = ArenaLayout::default();
        let names = if setup.rank() == Rank(1) { ["a", "c", "b"] } else { ["a", "b", "c"] };
        for name in names {
            layout.carve(name, 64, 64).unwrap();
        }
        let registered = SymmRegion::register(
            "test",
            &*setup.bootstrap,
            &*setup.device,
            &*setup.backend,
            &RegistrationRecord::default(),
            layout,
            Deadline::after(LONG),
        );
        let error = registered.err().unwrap();
        let RegisterError::Mismatch { rank, field, .. } = &error else { panic!("{error}") };
        assert_eq!((*rank, field.as_str()), (Rank(1), "order of carves"));
    });
}

#[test]
fn a_rank_with_another_model_is_named_with_both_values() {
    on_threads(3, |setup| {
        let layers = if setup.rank() == Rank(2) { 3 } else { 2 };
        let bench =
            Bench::new(&setup, model(layers, PAGE_SIZE), 32, group_options(LONG), composer_options(32));
        let error = bench.err().unwrap();
        let ComposeError::Register(RegisterError::Mismatch { rank, field, expected, got, .. }) = &error
        else {
            panic!("{error}");
        };
        assert_eq!((*rank, field.as_str()), (Rank(2), "layers"));
        assert_eq!((expected.as_str(), got.as_str()), ("0+1,0", "0+1,0,0+1"));
    });
}

#[test]
fn inputs_of_the_wrong_size_or_for_the_wrong_buffer_are_refused() {
    on_threads(1, |setup| {
        let mut bench = Bench::usual(&setup, model(2, PAGE_SIZE), 32);
        let batch = BatchMaker::new(32, PAGE_SIZE).fresh(&[10]);
        let device = Arc::clone(&bench.device);
        let mut flight = bench.composer.begin(&batch, StrategyChoice::Auto).unwrap();
        let input = |bytes| device.alloc(bytes).unwrap();
        let short = LayerInputs::default().with(BufferId::TOKEN_KV, input(199));
        assert!(matches!(
            flight.compose_layer(1, &short),
            Err(ComposeError::InputSize { expected: 200, .. })
        ));
        let none = LayerInputs::default();
        let missing = flight.compose_layer(1, &none).unwrap_err();
        assert!(matches!(missing, ComposeError::InputPresence { problem: "no", .. }), "{missing}");
        let both =
            LayerInputs::default().with(BufferId::TOKEN_KV, input(200)).with(BufferId::INDEX_K, input(2560));
        let extra = flight.compose_layer(1, &both).unwrap_err();
        assert!(matches!(extra, ComposeError::InputPresence { problem: "unexpected", .. }), "{extra}");
        let dense = flight.dense(BufferId::TOKEN_KV).unwrap();
        let own = LayerInputs::default().with(BufferId::TOKEN_KV, dense.slice(0..200).unwrap());
        let overlap = flight.compose_layer(1, &own).unwrap_err();
        assert!(matches!(overlap, ComposeError::InputMemory { .. }), "{overlap}");
        let odd = LayerInputs::default().with(BufferId::TOKEN_KV, input(208).slice(4..204).unwrap());
        let unaligned = flight.compose_layer(1, &odd).unwrap_err();
        assert!(matches!(unaligned, ComposeError::InputMemory { .. }), "{unaligned}");
        assert!(matches!(flight.compose_layer(2, &none), Err(ComposeError::NoSuchLayer { .. })));
        let unpersistable = flight.persist_layer(0).unwrap_err();
        assert!(matches!(unpersistable, ComposeError::NotComposed { layer: 0, composed: None }));
        flight.compose_layer(0, &both).unwrap();
        assert!(flight.persist_layer(1).is_err());
        flight.finish().unwrap();
        bench.composer.close().unwrap();
    });
}
