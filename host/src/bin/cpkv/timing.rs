//! Time windows of a group: from the first rank's start to the last rank's end, on the machine's one clock.

use std::sync::Arc;

use cpkv::deadline::Deadline;
use cpkv::device::Event;
use cpkv::group::Bootstrap;

use crate::error::RunError;

/// A stretch of one rank's stream.
pub(crate) struct Window {
    pub(crate) start: Arc<dyn Event>,
    pub(crate) end: Arc<dyn Event>,
}

/// How the ranks' windows are summed up.
#[derive(Clone, Copy)]
pub(crate) enum Span {
    /// First start to last end: the cost of the whole.
    Makespan,
    /// Last start to last end: the cost of a collective, without waiting for the last rank to come.
    SinceLastStart,
}

/// The group's windows in milliseconds, one for each of `windows`; the same on every rank. Collective.
pub(crate) fn group_ms(
    bootstrap: &dyn Bootstrap,
    windows: &[Window],
    span: Span,
    deadline: Deadline,
) -> Result<Vec<f64>, RunError> {
    let mine: Vec<u8> = windows
        .iter()
        .flat_map(|window| [&window.start, &window.end])
        .flat_map(|event| event.fired_at_ns().unwrap_or(0).to_le_bytes())
        .collect();
    let all = bootstrap.all_gather("time windows", &mine, deadline)?;
    let read = |blob: &Vec<u8>, at: usize| -> u64 {
        let bytes = blob.get(8 * at..8 * at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    let times = (0..windows.len()).map(|i| {
        let starts = all.iter().map(|blob| read(blob, 2 * i));
        let end = all.iter().map(|blob| read(blob, 2 * i + 1)).max().unwrap_or(0);
        let start = match span {
            Span::Makespan => starts.min(),
            Span::SinceLastStart => starts.max(),
        };
        end.saturating_sub(start.unwrap_or(0)) as f64 / 1e6
    });
    Ok(times.collect())
}
