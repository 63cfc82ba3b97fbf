//! A layer launch by launch, and as a graph: what it takes of the host, and from layer to layer.

use std::sync::Arc;
use std::time::Instant;

use cpkv::compose::{BatchInFlight, Composer, ComposerOptions, LayerInputs, SharedPool, StrategyChoice};
use cpkv::group::Group;
use cpkv::model::BufferId;
use cpkv::plan::{Batch, Strategy};
use cpkv::units::GroupSize;

use super::samples::Samples;
use crate::batches::{PageDealer, model};
use crate::context::{Context, LONG};
use crate::outcome::{Cell, Figures, Outcome, Problem};
use crate::ranks::{Seat, group_options, on_threads, thread_seats};

const PAGE_SIZE: u32 = 64;
const ROW_BYTES: u32 = 656;
const NUM_PAGES: u32 = 64;

/// Microseconds of one layer, by round.
#[derive(Default)]
struct Times {
    host: Samples,
    device: Samples,
}

/// All group sizes.
pub(crate) fn run(context: &Context) -> Result<Outcome, Problem> {
    let gpu = [context.open()?];
    let (rounds, num_layers) = context.pick((7, 50), (2, 2));
    let num_pages = context.pick(16, 1);
    let mut figures = Figures::new(
        "A small layer of staging_fill, ranks as threads of one GPU: microseconds a layer on rank 0",
        &["ranks", "launches: host", "launches: device", "graph: host", "graph: device"],
    );
    for &num_ranks in &context.ranks {
        let seats = thread_seats(&gpu, GroupSize::new(num_ranks)?);
        let ranks = on_threads(seats, |seat| rank(&seat, num_pages, rounds, num_layers))?;
        if let Some([launches, graph]) = ranks.first() {
            let numbers = [&launches.host, &launches.device, &graph.host, &graph.device];
            let cells = numbers.map(|samples| Cell::from(samples.median()));
            figures.row([Cell::from(u64::from(num_ranks))].into_iter().chain(cells));
        }
    }
    figures.notes.push(format!(
        "medians of {rounds} rounds of {num_layers} layers, queued without a wait; {num_pages} pages of {} bytes and of index-K; \
         host: time of the queueing calls; device: from the first launch to the end",
        PAGE_SIZE * ROW_BYTES
    ));
    let detail = format!("{} group sizes measured", figures.rows.len());
    Ok(Outcome::Passed { detail, tables: vec![figures] })
}

/// Launch by launch, and as a graph.
fn rank(seat: &Seat, num_pages: u32, rounds: usize, num_layers: usize) -> Result<[Times; 2], Problem> {
    let (bootstrap, backend) = (Arc::clone(&seat.bootstrap), Arc::clone(&seat.backend));
    let group = Group::register(bootstrap, Arc::clone(&seat.device), backend, group_options(LONG))?;
    let pool = SharedPool::register(&group, model(1, PAGE_SIZE, ROW_BYTES)?, NUM_PAGES)?;
    let mut composer = Composer::register(group, pool, None, ComposerOptions::default())?;
    let request = PageDealer::new(NUM_PAGES, PAGE_SIZE).request(&[], num_pages * PAGE_SIZE)?;
    let batch = Batch { requests: vec![request], num_pad_slots: 0 };
    let mut flight = composer.begin(&batch, StrategyChoice::Exactly(Strategy::StagingFill))?;
    let num_rows = u64::from(flight.plan().rows.num_rows());
    let tokens = seat.device.alloc(num_rows * u64::from(ROW_BYTES))?;
    let keys = seat.device.alloc(num_rows * 256)?;
    let inputs = LayerInputs::default().with(BufferId::TOKEN_KV, tokens).with(BufferId::INDEX_K, keys);
    let captured = flight.capture_layer(0, &inputs)?;
    flight.synchronize()?;
    let mut times: [Times; 2] = Default::default();
    for round in 0..=rounds {
        for (kind, times) in times.iter_mut().enumerate() {
            seat.meet("a round begins")?;
            let (host_us, device_us) = time(&mut flight, num_layers, |flight| match kind {
                0 => flight.compose_layer(0, &inputs),
                _ => flight.replay_layer(&captured),
            })?;
            // The first round warms up.
            if round > 0 {
                times.host.push(host_us);
                times.device.push(device_us);
            }
        }
    }
    flight.finish()?;
    composer.close()?;
    Ok(times)
}

/// Microseconds of a layer: of the host, of the device.
fn time(
    flight: &mut BatchInFlight<'_>,
    num_layers: usize,
    mut queue: impl FnMut(&mut BatchInFlight<'_>) -> Result<(), cpkv::compose::ComposeError>,
) -> Result<(f64, f64), Problem> {
    let before = flight.stream().record()?;
    let started = Instant::now();
    for _ in 0..num_layers {
        queue(flight)?;
    }
    let host_us = started.elapsed().as_secs_f64() * 1e6 / num_layers as f64;
    let after = flight.stream().record()?;
    flight.synchronize()?;
    let ns = match (before.fired_at_ns(), after.fired_at_ns()) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => return Err("an event has no time though its stream is idle".into()),
    };
    Ok((host_us, ns as f64 / 1e3 / num_layers as f64))
}
