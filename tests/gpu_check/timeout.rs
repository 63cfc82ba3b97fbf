//! A rank that never comes: the others name it in time, nothing behind the barrier runs, and the late one learns it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cpkv::compose::{
    BatchInFlight, ComposeError, Composer, ComposerOptions, LayerInputs, SharedPool, StrategyChoice,
};
use cpkv::deadline::Deadline;
use cpkv::device::DeviceBuffer;
use cpkv::group::{Fault, Group, GroupError};
use cpkv::model::BufferId;
use cpkv::plan::{Batch, Strategy};
use cpkv::units::{GroupSize, Rank, RankSet};

use crate::batches::{CONVERSATION_PAGES, PageDealer, model};
use crate::context::{Context, LONG};
use crate::outcome::{Outcome, Problem};
use crate::ranks::{Seat, group_options, on_threads, thread_seats};

const NUM_RANKS: u32 = 3;
const ABSENT: Rank = Rank(2);
const TIMEOUT: Duration = Duration::from_secs(3);
const PAGE_SIZE: u32 = 8;
/// What memory holds that nothing may change.
const MARK: u8 = 0x5A;

/// Three threads on the first GPU.
pub(crate) fn run(context: &Context) -> Result<Outcome, Problem> {
    let gpu = [context.open()?];
    let waited = on_threads(thread_seats(&gpu, GroupSize::new(NUM_RANKS)?), |seat| rank(&seat))?;
    let longest = waited.into_iter().max().unwrap_or_default();
    Ok(Outcome::passed(format!(
        "rank {ABSENT} of {NUM_RANKS} was named by all {:.2} s after a timeout of {} s; no byte behind it changed",
        longest.as_secs_f64(),
        TIMEOUT.as_secs()
    )))
}

/// How long it waited for its stream.
fn rank(seat: &Seat) -> Result<Duration, Problem> {
    let (bootstrap, backend) = (Arc::clone(&seat.bootstrap), Arc::clone(&seat.backend));
    let group = Group::register(bootstrap, Arc::clone(&seat.device), backend, group_options(TIMEOUT))?;
    let pool = SharedPool::register(&group, model(1, PAGE_SIZE, 32)?, CONVERSATION_PAGES)?;
    let mut composer = Composer::register(group, pool, None, ComposerOptions::default())?;
    let mut dealer = PageDealer::new(CONVERSATION_PAGES, PAGE_SIZE);
    let batch = Batch { requests: vec![dealer.request(&[], 20 * PAGE_SIZE)?], num_pad_slots: 0 };
    let mut flight = composer.begin(&batch, StrategyChoice::Exactly(Strategy::StagingFill))?;
    let inputs = inputs(seat, &flight)?;
    // Nobody allocates any more, which might wait for the barrier of another rank.
    flight.synchronize()?;
    seat.meet("memory is ready")?;
    // A barrier that all pass.
    flight.compose_layer(0, &inputs)?;
    flight.persist_layer(0)?;
    let denses = [BufferId::TOKEN_KV, BufferId::INDEX_K].map(|buffer| flight.dense(buffer));
    let denses: Vec<DeviceBuffer> = denses.into_iter().collect::<Result<_, _>>()?;
    for dense in &denses {
        flight.stream().upload(vec![MARK; dense.bytes() as usize], dense)?;
    }
    flight.synchronize()?;
    seat.meet("marked")?;
    let is_absent = seat.rank() == ABSENT;
    if is_absent {
        seat.meet("the others have reported")?;
    }
    let started = Instant::now();
    let outcome = flight.compose_layer(0, &inputs);
    let outcome = outcome.and_then(|()| flight.persist_layer(0)).and_then(|()| flight.synchronize());
    let waited = started.elapsed();
    if !is_absent {
        seat.meet("the others have reported")?;
    }
    check_fault(outcome, is_absent, waited)?;
    if flight.compose_layer(0, &inputs).is_ok() {
        return Err("the poisoned group composes".into());
    }
    for dense in &denses {
        let mut bytes = vec![0; dense.bytes() as usize];
        seat.device.read(dense, &mut bytes)?;
        if bytes.iter().any(|&byte| byte != MARK) {
            return Err("a kernel behind the barrier wrote".into());
        }
    }
    seat.bootstrap.barrier("looked at everything", Deadline::after(LONG))?;
    Ok(waited)
}

fn inputs(seat: &Seat, flight: &BatchInFlight<'_>) -> Result<LayerInputs, Problem> {
    let num_rows = u64::from(flight.plan().rows.num_rows());
    let tokens = seat.device.alloc(num_rows * 32)?;
    let keys = seat.device.alloc(num_rows * 256)?;
    Ok(LayerInputs::default().with(BufferId::TOKEN_KV, tokens).with(BufferId::INDEX_K, keys))
}

fn check_fault(outcome: Result<(), ComposeError>, is_absent: bool, waited: Duration) -> Result<(), Problem> {
    let expected: RankSet = [ABSENT].into_iter().collect();
    match outcome {
        Err(ComposeError::Group(GroupError::Fault(Fault::Barrier { by, missing, waited_ms, .. })))
            if missing == expected && by != ABSENT && u128::from(waited_ms) >= TIMEOUT.as_millis() => {}
        Err(problem) => return Err(format!("another fault was reported: {problem}").into()),
        Ok(()) => return Err("the barrier was passed without a rank".into()),
    }
    let most = if is_absent { TIMEOUT } else { 5 * TIMEOUT };
    if waited > most {
        return Err(format!("it learned that only after {waited:?}").into());
    }
    Ok(())
}
