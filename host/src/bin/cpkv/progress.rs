//! Progress on rank 0: a bar where standard error is a terminal, else a line for each part of the work.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use cpkv::units::Rank;
use indicatif::{ProgressBar, ProgressStyle};

use crate::ranks;

/// A bar, lines, or nothing.
pub(crate) struct Progress {
    bar: ProgressBar,
    lines: bool,
}

impl Progress {
    /// A bar of `num_steps` steps.
    pub(crate) fn start(rank: Rank, num_steps: u64) -> Self {
        if rank.0 != 0 || !stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden(), lines: rank.0 == 0 };
        }
        let bar = ProgressBar::new(num_steps);
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, lines: false }
    }

    /// One step is done; `next` is what comes.
    pub(crate) fn step(&self, next: &str) {
        self.bar.inc(1);
        self.bar.set_message(next.to_owned());
    }

    /// What is done now, where it is no step and no part: off a terminal it is not said.
    pub(crate) fn now(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// A part of the work begins.
    pub(crate) fn part(&self, what: &str) {
        if self.lines {
            ranks::say(what);
        }
        self.bar.set_message(what.to_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
