//! `cpkv bench`: what a user measures on a new machine, in 2 minutes.

pub(crate) mod args;
mod barrier;
mod batches;
mod budget;
mod case_samples;
mod cases;
mod clock;
mod copies;
mod egress;
mod engines;
mod figures;
mod folder;
mod gather;
mod job;
mod lost;
mod machine;
mod notes;
mod overlap;
mod page;
#[path = "../../../../../benches/support/per_layer.rs"]
mod per_layer;
mod plans;
mod print;
mod rank;
mod report;
mod rounds;
mod sweep;
mod table;
mod tables;
mod transfer;
mod turns;
mod way;

use std::time::Instant;

use crate::devices;
use crate::error::RunError;
use crate::ranks;
use args::BenchArgs;
use budget::Shares;
use clock::SharedClock;
use folder::ReportFolder;
use job::BenchJob;
use rank::Before;

/// Runs the command.
pub(crate) fn run(args: &BenchArgs) -> Result<(), RunError> {
    let begun = Instant::now();
    let size = ranks::group_size(args.ranks)?;
    let job = BenchJob::prepare(args, size)?;
    // The others would get into each other's way; the report is rank 0's.
    let folder = args.report.as_deref().filter(|_| ranks::speaks());
    let folder = folder.map(ReportFolder::open).transpose()?;
    let platform = devices::choose(args.device)?;
    let clock = SharedClock::new(begun, job.total(), job.timeout);
    let date_utc = machine::now_utc();
    if ranks::speaks() {
        ranks::say(&format!("measuring for about {} s", job.seconds));
    }
    let share = Shares::of(job.total()).barrier / 2;
    let (barrier, left_out) = barrier::of_smaller_groups(size, &platform, job.timeout, share)?;
    let before = Before { date_utc, barrier, left_out };
    let report = ranks::run_all(size, job.timeout, &platform, |env| rank::run(&env, &job, &clock, &before))?;
    let Some(report) = report else { return Ok(()) };
    // Where one cannot be written, the other is.
    let written = folder.map_or(Ok(()), |folder| folder.write(&report));
    print::print(&report, args.json).and(written)
}
