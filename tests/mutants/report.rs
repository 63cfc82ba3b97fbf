//! The list of faults, and who caught each.

use std::process::ExitCode;
use std::time::Duration;

use crate::detector::Detector;
use crate::fault::Fault;

/// What came of a fault.
pub(crate) enum Outcome {
    Caught {
        by: Detector,
        message: String,
    },
    /// Nobody caught it, as its reason says.
    Unseen(&'static str),
    /// It should have been caught, or it could not be planted.
    Failed(String),
}

/// What came of all faults.
pub(crate) struct Report {
    pub(crate) outcomes: Vec<(&'static Fault, Outcome)>,
    pub(crate) num_all: usize,
    pub(crate) took: Duration,
}

/// The longest message that is printed.
const MESSAGE_CHARS: usize = 200;

impl Report {
    /// Prints the table; fails where a fault was not caught.
    pub(crate) fn print(&self) -> ExitCode {
        println!("\nplanted fault | file | caught by | message");
        println!("---|---|---|---");
        let mut num_failed = 0;
        for (fault, outcome) in &self.outcomes {
            let (by, message) = match outcome {
                Outcome::Caught { by, message } => (by.name(), message.as_str()),
                Outcome::Unseen(reason) => ("not caught here", *reason),
                Outcome::Failed(problem) => {
                    num_failed += 1;
                    ("FAILED", problem.as_str())
                }
            };
            // A failure is told in full.
            let room = if by == "FAILED" { usize::MAX } else { MESSAGE_CHARS };
            let short: String = message.chars().take(room).collect();
            println!("{} | {} | {by} | {short}", fault.name, fault.file);
        }
        let count =
            |is: fn(&Outcome) -> bool| self.outcomes.iter().filter(|(_, outcome)| is(outcome)).count();
        println!(
            "\nmutants: {} of {} faults planted: {} caught, {} not caught here (see their reasons), {num_failed} failed; {} s",
            self.outcomes.len(),
            self.num_all,
            count(|outcome| matches!(outcome, Outcome::Caught { .. })),
            count(|outcome| matches!(outcome, Outcome::Unseen(_))),
            self.took.as_secs(),
        );
        if num_failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
