//! Benchmarks. Their figures do not decide the exit status; a wrong byte does.

pub(crate) mod barrier;
pub(crate) mod fills;
pub(crate) mod gather;
pub(crate) mod layer;
pub(crate) mod plan;
mod samples;

use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::device::{DeviceError, Stream};

use crate::outcome::Problem;

/// Work that is measured is done by then.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Nanoseconds of the device between the start and the end of what `queue` queues on `stream`, which was idle.
fn time_ns(stream: &dyn Stream, queue: impl FnOnce() -> Result<(), DeviceError>) -> Result<f64, Problem> {
    let before = stream.record()?;
    queue()?;
    let after = stream.record()?;
    stream.synchronize(Deadline::after(TIMEOUT))?;
    match (before.fired_at_ns(), after.fired_at_ns()) {
        (Some(before), Some(after)) => Ok(after.saturating_sub(before).max(1) as f64),
        _ => Err("an event has no time though its stream is idle".into()),
    }
}

/// Gigabytes a second.
fn gb_per_s(bytes: u64, ns: f64) -> f64 {
    bytes as f64 / ns
}
