//! What a run measures as it goes. All ranks hold the same values, but for the hooks' times.

use std::ops::AddAssign;

use cpkv::transfer::Sent;
use serde::{Deserialize, Serialize};

use super::job::Way;
use crate::samples::Samples;

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// (layer, page) pairs.
    pub(crate) num_pages: u64,
    /// Bytes of pages, extra buffers and completion records.
    pub(crate) bytes: u64,
    /// Blocks after merging.
    pub(crate) num_blocks: u64,
    /// Blocks as they would be without.
    pub(crate) num_unmerged: u64,
}

impl From<Sent> for Totals {
    fn from(sent: Sent) -> Self {
        let Sent { num_pages, bytes, num_blocks, num_unmerged, .. } = sent;
        Self { num_pages, bytes, num_blocks, num_unmerged }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.num_pages += other.num_pages;
        self.bytes += other.bytes;
        self.num_blocks += other.num_blocks;
        self.num_unmerged += other.num_unmerged;
    }
}

/// When one rank was where in a pass, on the machine's one clock.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PassTimes {
    pub(crate) start_ns: u64,
    /// The stream was through with the forward.
    pub(crate) forward_ns: u64,
    /// Everything was sent.
    pub(crate) end_ns: u64,
}

/// A pass of the group, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PassMs {
    pub(crate) forward: f64,
    /// What was left after the last rank's forward.
    pub(crate) exposed: f64,
    pub(crate) total: f64,
}

impl PassMs {
    /// From the first rank's start to the last rank's ends.
    pub(crate) fn of(ranks: impl IntoIterator<Item = PassTimes>) -> Self {
        let ranks: Vec<_> = ranks.into_iter().collect();
        let start = ranks.iter().map(|times| times.start_ns).min().unwrap_or(0);
        let forward = ranks.iter().map(|times| times.forward_ns).max().unwrap_or(0);
        let end = ranks.iter().map(|times| times.end_ns).max().unwrap_or(0);
        let ms = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
        Self { forward: ms(start, forward), exposed: ms(forward, end), total: ms(start, end) }
    }
}

/// Times of one batch, a sample a round (the transfer and the bare loop: several).
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchTimes {
    /// The forward without its stand-in for attention.
    pub(crate) compose: Samples,
    /// The forward.
    pub(crate) forward: Samples,
    pub(crate) transfer: Samples,
    pub(crate) bare: Samples,
    /// What the stand-in sleeps a layer; decided in the first round.
    pub(crate) compute_us: Option<u64>,
    /// By way.
    pub(crate) ways: Vec<WayTimes>,
}

/// Times of one batch sent one way.
#[derive(Clone, Debug, Default)]
pub(crate) struct WayTimes {
    pub(crate) forward: Samples,
    pub(crate) exposed: Samples,
    pub(crate) total: Samples,
}

/// One way, all batches.
#[derive(Clone, Debug)]
pub(crate) struct WayMeasured {
    pub(crate) way: Way,
    /// Of a round.
    pub(crate) totals: Totals,
    /// `on_layer_end`: time that passed, in microseconds.
    pub(crate) hooks_us: Samples,
    /// The same, time of the thread on a processor.
    pub(crate) hooks_cpu_us: Samples,
}

/// Everything.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) batches: Vec<BatchTimes>,
    pub(crate) ways: Vec<WayMeasured>,
    /// Layers of requests that were sent whole, in a round.
    pub(crate) layers_sent: u64,
    /// Bytes that decode workers compared with their oracles.
    pub(crate) checked_bytes: u64,
    /// What was not as it should be.
    pub(crate) differences: Vec<String>,
}

impl Measured {
    /// Room for `num_batches` and `ways`.
    pub(crate) fn new(num_batches: usize, ways: &[Way]) -> Self {
        let batch = BatchTimes { ways: vec![WayTimes::default(); ways.len()], ..BatchTimes::default() };
        let way = |&way: &Way| WayMeasured {
            way,
            totals: Totals::default(),
            hooks_us: Samples::default(),
            hooks_cpu_us: Samples::default(),
        };
        Self { batches: vec![batch; num_batches], ways: ways.iter().map(way).collect(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_from_the_first_start_to_the_last_end_and_exposed_is_what_follows_the_last_forward() {
        let times = |start_ms: u64, forward_ms: u64, end_ms: u64| PassTimes {
            start_ns: start_ms * 1_000_000,
            forward_ns: forward_ms * 1_000_000,
            end_ns: end_ms * 1_000_000,
        };
        let pass = PassMs::of([times(10, 50, 55), times(12, 40, 62)]);
        assert_eq!(pass, PassMs { forward: 40.0, exposed: 12.0, total: 52.0 });
    }
}
