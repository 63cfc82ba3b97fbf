//! The command-line program.

#[cfg(feature = "mpi")]
mod agreement;
mod args;
mod barriers;
mod baselines;
mod compose;
mod devices;
mod doctor;
mod error;
mod job;
mod progress;
mod ranks;
mod report;
mod samples;
mod timing;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Parser;

use args::{Cli, Command};
use error::BAD_INPUT;

/// How long a process under `mpirun` leaves it to another one to say what all found: `mpirun` ends the job when
/// the first process fails.
const SILENCE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    devices::prepare_driver();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && !ranks::speaks() => return leave_it_to_rank_0(),
        Err(error) => error.exit(),
    };
    let outcome = match cli.command {
        Command::Compose(args) => compose::run(args),
        Command::Doctor(args) => doctor::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Every process finds the same in its input: one of them says it.
        Err(error) if error.exit_code() == BAD_INPUT && !ranks::speaks() => {
            thread::sleep(SILENCE);
            // Still here: rank 0 found nothing wrong.
            ranks::say(&error.to_string());
            ExitCode::from(BAD_INPUT)
        }
        Err(error) => {
            ranks::say(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}

fn leave_it_to_rank_0() -> ExitCode {
    thread::sleep(SILENCE);
    ExitCode::from(BAD_INPUT)
}
