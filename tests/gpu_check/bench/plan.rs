//! Planning a large batch, and uploading its tables.

use std::sync::Arc;
use std::time::Instant;

use cpkv::compose::{Composer, ComposerOptions, SharedPool, StrategyChoice};
use cpkv::group::Group;
use cpkv::plan::{Admission, Batch, Strategy};
use cpkv::units::{GroupSize, PageId};

use super::samples::Samples;
use crate::batches::{PageDealer, model};
use crate::context::{Context, LONG};
use crate::outcome::{Cell, Figures, Outcome, Problem};
use crate::ranks::{group_options, thread_seats};

const PAGE_SIZE: u32 = 64;

/// One rank, so that all pages are its own.
pub(crate) fn run(context: &Context) -> Result<Outcome, Problem> {
    let gpu = [context.open()?];
    let seat = thread_seats(&gpu, GroupSize::new(1)?).remove(0);
    let (num_prefix, num_current, rounds) = context.pick((8192, 700, 15), (40, 12, 3));
    let num_pages = num_prefix + num_current;
    let (bootstrap, backend) = (Arc::clone(&seat.bootstrap), Arc::clone(&seat.backend));
    let group = Group::register(bootstrap, Arc::clone(&seat.device), backend, group_options(LONG))?;
    // Rows are short: the tables do not depend on them.
    let pool = SharedPool::register(&group, model(1, PAGE_SIZE, 16)?, num_pages)?;
    let admission =
        Admission { max_extend_tokens: u64::from(num_current * PAGE_SIZE), max_batch_requests: 12 };
    let options = ComposerOptions { admission: Some(admission), ..ComposerOptions::default() };
    let mut composer = Composer::register(group, pool, None, options)?;
    let batch = batch(num_pages, num_prefix, num_current)?;
    let (mut planned, mut begun, mut uploaded) = (Samples::default(), Samples::default(), Samples::default());
    for round in 0..=rounds {
        let started = Instant::now();
        let plan = composer.plan(&batch)?;
        let plan_us = us(started);
        drop(plan);
        let started = Instant::now();
        let mut flight = composer.begin(&batch, StrategyChoice::Exactly(Strategy::StagingFill))?;
        let begin_us = us(started);
        flight.synchronize()?;
        let upload_us = us(started);
        flight.finish()?;
        // The first round warms up.
        if round > 0 {
            planned.push(plan_us);
            begun.push(begin_us);
            uploaded.push(upload_us);
        }
    }
    composer.close()?;
    let mut figures = Figures::new(
        "Plan of a batch, and its tables on the GPU: microseconds on one rank",
        &["slots", "new tokens", "plan", "begin", "begin, tables there"],
    );
    let numbers = [planned, begun, uploaded].map(|samples| Cell::from(samples.median()));
    let counts = [u64::from(num_pages), u64::from(num_current * PAGE_SIZE)].map(Cell::from);
    figures.row(counts.into_iter().chain(numbers));
    figures.notes.push(format!(
        "medians of {rounds}; plan: pure, on one core; begin: plan, agreement with nobody, packing, queueing of one upload"
    ));
    let detail = format!("{num_pages} slots");
    Ok(Outcome::Passed { detail, tables: vec![figures] })
}

/// Twelve requests, or as many as there are pages for.
fn batch(num_pages: u32, num_prefix: u32, num_current: u32) -> Result<Batch, Problem> {
    const NUM_REQUESTS: u32 = 12;
    let mut dealer = PageDealer::new(num_pages, PAGE_SIZE);
    let prefix = dealer.request(&[], num_prefix * PAGE_SIZE)?.current_pages;
    let mut requests = Vec::new();
    for request in 0..NUM_REQUESTS {
        let share = |total: u32| (total * request / NUM_REQUESTS)..(total * (request + 1) / NUM_REQUESTS);
        let of_prefix = share(num_prefix);
        let pages: Vec<PageId> = prefix[of_prefix.start as usize..of_prefix.end as usize].to_vec();
        requests.push(dealer.request(&pages, share(num_current).len() as u32 * PAGE_SIZE)?);
    }
    Ok(Batch { requests, num_pad_slots: 0 })
}

fn us(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e6
}
