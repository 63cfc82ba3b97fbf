//! The command-line program.

#[cfg(feature = "mpi")]
mod agreement;
mod args;
mod barriers;
mod baselines;
mod batches;
mod bench;
mod compose;
mod devices;
mod doctor;
mod error;
mod job;
mod output_file;
mod plan;
mod progress;
mod ranks;
mod report;
mod rig;
mod run;
mod samples;
mod stopwatch;
mod timing;
mod traffic;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Parser;

use args::{Cli, Command};
use error::{BAD_INPUT, RunError};

/// How long a process under `mpirun` leaves it to another one to say what all found: `mpirun` ends the job when
/// the first process fails.
const SILENCE: Duration = Duration::from_secs(5);

/// The exit status where nobody reads the output any more: a shell's for a program that SIGPIPE ends.
const CLOSED_PIPE: u8 = 141;

fn main() -> ExitCode {
    devices::prepare_driver();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && !ranks::speaks() => return leave_it_to_rank_0(),
        Err(error) => error.exit(),
    };
    let has_engines = matches!(cli.command, Command::Bench(_) | Command::Run(_) | Command::DecodeWorker);
    if has_engines {
        run::prepare_engine();
    }
    let outcome = match cli.command {
        Command::Compose(args) => compose::run(args),
        Command::Bench(args) => bench::run(&args),
        Command::Run(args) => run::run(args),
        Command::DecodeWorker => run::serve(),
        Command::Plan(args) => plan::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    };
    let code = outcome.map_or_else(|error| tell(&error), |()| 0);
    if has_engines {
        run::leave(code);
    }
    ExitCode::from(code)
}

/// Says what went wrong; the exit status.
fn tell(error: &RunError) -> u8 {
    if error.is_closed_pipe() {
        return CLOSED_PIPE;
    }
    if error.exit_code() == BAD_INPUT && !ranks::speaks() {
        // Every process finds the same in its input: one of them says it. Still here: rank 0 found nothing wrong.
        thread::sleep(SILENCE);
    }
    ranks::say(&error.to_string());
    error.exit_code()
}

fn leave_it_to_rank_0() -> ExitCode {
    thread::sleep(SILENCE);
    ExitCode::from(BAD_INPUT)
}
