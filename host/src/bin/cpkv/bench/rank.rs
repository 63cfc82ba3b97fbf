//! One rank of a bench. What one rank measures alone, rank 0 does, while the others wait for it without work.

use std::time::Duration;

use cpkv::compose::ComposerOptions;
use cpkv::deadline::Deadline;
use cpkv::device::MemoryKind;
use cpkv::plan::Admission;

use super::budget::Shares;
use super::cases::{Case, Footprint, fit_memory};
use super::clock::{SharedClock, least};
use super::job::BenchJob;
use super::machine::{Machine, ModelFacts};
use super::report::{BarrierRow, BenchReport, CopyRow, LeftOut, Overlap, PlanRow};
use super::sweep::{Sweep, default_strategy};
use super::{barrier, gather, lost, overlap, plans, transfer};
use crate::error::RunError;
use crate::progress::Progress;
use crate::ranks::RankEnv;
use crate::rig;

/// What was measured before the ranks started.
pub(crate) struct Before {
    pub(crate) date_utc: String,
    pub(crate) barrier: Vec<BarrierRow>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// What rank 0 measures alone.
#[derive(Default)]
struct Alone {
    gather: Vec<CopyRow>,
    transfer: Vec<CopyRow>,
    overlap: Option<Overlap>,
    plans: Vec<PlanRow>,
    left_out: Vec<LeftOut>,
}

/// Measures everything; the report on rank 0. Collective.
pub(crate) fn run(
    env: &RankEnv,
    job: &BenchJob,
    clock: &SharedClock,
    before: &Before,
) -> Result<Option<BenchReport>, RunError> {
    let progress = Progress::start(env.rank(), NUM_STEPS);
    let shares = Shares::of(job.total());
    let machine = Machine::of(env);
    let mut left_out = before.left_out.clone();
    let alone = while_the_others_wait(env, job, || measure_alone(env, job, shares, &progress))?;
    let cases = choose_cases(env, job, &mut left_out)?;
    if env.library.is_some() {
        progress.part("timing barriers of fewer ranks");
    }
    let (smaller, missing) = barrier::of_first_ranks(env, job.timeout, shares.barrier / 2)?;
    left_out.extend(missing);
    begin(&progress, "registering");
    let needs = Footprint::of(&cases, job.model.page_size);
    let options = ComposerOptions {
        admission: Some(Admission {
            max_extend_tokens: u64::from(needs.max_new_tokens),
            max_batch_requests: u64::from(needs.max_requests),
        }),
        symm_heap_bytes: None,
        symm_dense_slots: Some(needs.max_slots),
        dense_arena: false,
        time_barriers: false,
    };
    let mut composer = rig::composer(env, &job.model, needs.pool_pages.max(1), options, job.timeout)?;
    begin(&progress, &format!("timing barriers of {} ranks", job.group_size.get()));
    let (mut barrier, missing) = barrier::of_group(env, composer.group_mut(), shares.barrier / 2)?;
    barrier.splice(0..0, before.barrier.iter().cloned().chain(smaller));
    left_out.extend(missing);
    let default_strategy = default_strategy(&composer).name();
    progress.step("composing");
    let mut sweep = Sweep { env, composer: &mut composer, clock, progress: &progress, seed: job.seed };
    let swept = sweep.run(&cases)?;
    left_out.extend(swept.left_out);
    composer.close()?;
    let Some(alone) = alone else { return Ok(None) };
    left_out.extend(alone.left_out);
    if env.library.is_none() {
        left_out.push(LeftOut::new("MPI's collectives", "not started by mpirun, so ranks are threads"));
    }
    let mut lost = lost::barriers(&barrier);
    lost.extend(lost::copies("gather", &alone.gather));
    lost.extend(lost::copies("transfer", &alone.transfer));
    lost.extend(lost::composes(&swept.cases, default_strategy));
    lost.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    Ok(Some(BenchReport {
        version: env!("CARGO_PKG_VERSION"),
        date_utc: before.date_utc.clone(),
        seconds_asked: job.seconds,
        seconds_taken: clock.elapsed().as_secs_f64(),
        seed: job.seed,
        machine,
        model: ModelFacts::of(&job.model),
        default_strategy,
        barrier,
        gather: alone.gather,
        transfer: alone.transfer,
        overlap: alone.overlap,
        plans: alone.plans,
        compose: swept.cases,
        lost,
        left_out,
    }))
}

/// Parts that follow another: transfer, overlap, plans, registering, barriers, sweep, its rounds.
const NUM_STEPS: u64 = 7;

/// The part before is done, `what` begins.
fn begin(progress: &Progress, what: &str) {
    progress.step(what);
    progress.part(what);
}

/// Runs `work` on rank 0; the others wait. Collective.
fn while_the_others_wait<T>(
    env: &RankEnv,
    job: &BenchJob,
    work: impl FnOnce() -> Result<T, RunError>,
) -> Result<Option<T>, RunError> {
    let outcome = (env.rank().0 == 0).then(work).transpose();
    let deadline = Deadline::after(job.total() + 2 * job.timeout);
    match outcome {
        Ok(value) => {
            env.bootstrap.barrier("rank 0 has measured alone", deadline)?;
            Ok(value)
        }
        Err(error) => Err(error),
    }
}

fn measure_alone(
    env: &RankEnv,
    job: &BenchJob,
    shares: Shares,
    progress: &Progress,
) -> Result<Alone, RunError> {
    let mut alone = Alone::default();
    progress.part("timing gather and memcpy");
    alone.gather = gather::measure(&*env.device, &job.model, job.sample_bytes, shares.gather)?;
    if env.device.memory() == MemoryKind::Host {
        begin(progress, "timing transfer");
        (alone.transfer, alone.left_out) = transfer::measure(job.sample_bytes, shares.transfer)?;
        begin(progress, "timing a forward with its transfer");
        alone.overlap = Some(overlap::measure(overlap_page_bytes(job))?);
    } else {
        let why = "the in-process engine copies host memory, and ranks run on GPUs";
        alone.left_out.push(LeftOut::new("transfer, and its overlap with a forward", why));
    }
    begin(progress, "timing plans");
    let largest = if job.total() < LONG { QUICK_PLAN_TOKENS } else { u32::MAX };
    let (rows, missing) = plans::measure(job.group_size, job.model.page_size, largest, shares.plans)?;
    alone.plans = rows;
    alone.left_out.extend(missing);
    Ok(alone)
}

/// From here on the largest batches are planned, too.
const LONG: Duration = Duration::from_secs(30);
const QUICK_PLAN_TOKENS: u32 = 32 << 10;

/// A page of the model's first buffer.
fn overlap_page_bytes(job: &BenchJob) -> u64 {
    job.model.buffers.first().map_or(4096, |buffer| buffer.spec.page_bytes())
}

/// The grid's cases that memory has room for. Collective.
fn choose_cases(env: &RankEnv, job: &BenchJob, left_out: &mut Vec<LeftOut>) -> Result<Vec<Case>, RunError> {
    if let Some((num_cases, why)) = job.grid.thinned() {
        left_out.push(LeftOut::new(format!("{num_cases} batches of the grid"), why));
    }
    let available = cpkv::symm::available_bytes().unwrap_or(u64::MAX);
    let budget_bytes = least(env, available as f64, job.timeout)? as u64 / 2;
    let (cases, gone) = fit_memory(job.grid.cases(), &job.model, job.group_size, budget_bytes);
    let why = "its memory on all ranks would be over half of what is available";
    left_out.extend(gone.iter().map(|case| LeftOut::new(format!("composing {case}"), why)));
    Ok(cases)
}
