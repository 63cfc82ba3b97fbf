//! `cpkv run`: the whole system. Prefill ranks compose batches of a trace and hand their pages to decode workers, layer by
//! layer and as a whole; every byte is compared where it arrived.
//!
//! Rank 0 holds the decode side: it starts the workers and keeps the directory of their pages. The other ranks hear from it
//! over the bootstrap.

mod alone;
pub(crate) mod args;
mod aux;
mod bare;
mod calibrate;
mod child;
mod engines;
mod exchange;
mod forward;
mod front;
mod job;
mod link;
mod measured;
mod message;
mod pass;
mod rank;
mod report;
mod roster;
mod sender;
mod serve;
mod service;
pub(crate) mod timeline;
mod verify;

use crate::devices::Platform;
use crate::error::RunError;
use crate::output_file::OutputFile;
use crate::ranks;
use args::RunArgs;
use engines::Engines;
use job::RunJob;
use rank::RankRun;
use report::RunReport;

pub(crate) use engines::{leave, prepare_engine};
pub(crate) use serve::serve;

/// Runs the command.
pub(crate) fn run(args: RunArgs) -> Result<(), RunError> {
    let size = ranks::group_size(args.trace.ranks)?;
    let json = args.json;
    let job = RunJob::prepare(args, size)?;
    let engines = Engines::new(job.engine);
    engines.check()?;
    // Before anything is run: a run whose timeline has no place is one for nothing.
    let path = job.args.timeline.as_ref().filter(|_| ranks::speaks());
    let failed = |error| RunError::Timeline { path: path.cloned().unwrap_or_default(), error };
    let timeline = path.map(|path| OutputFile::open(path, Some(&job.args.trace.trace)));
    let timeline = timeline.transpose().map_err(failed)?;
    let platform = Platform::Cpu { reason: String::new() };
    let outcome = ranks::run_all(size, job.base.timeout, &platform, |env| {
        let outcome = RankRun::start(&env, &job, &engines)?.run()?;
        Ok((env.rank().0 == 0).then_some((env.bootstrap.transport(), outcome)))
    })?;
    let Some((transport, outcome)) = outcome else { return Ok(()) };
    // One that cannot be written keeps nothing else from the user.
    let printed = RunReport::new(&job, transport, &outcome).print(json);
    let written = timeline.map_or(Ok(()), |file| file.write(|out| timeline::write(out, &outcome.spans)));
    match outcome.measured.differences.is_empty() {
        true => written.map_err(failed).and(printed),
        false => Err(RunError::NotExact(outcome.measured.differences)),
    }
}
