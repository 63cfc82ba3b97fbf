//! The progress bar: on rank 0, where standard error is a terminal.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use cpkv::units::Rank;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar, or nothing.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar of `num_steps` steps.
    pub(crate) fn start(rank: Rank, num_steps: u64) -> Self {
        if rank.0 != 0 || !stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(num_steps);
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// One step is done; `next` is what comes.
    pub(crate) fn step(&self, next: &str) {
        self.0.inc(1);
        self.0.set_message(next.to_owned());
    }

    /// Says what comes first.
    pub(crate) fn say(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
