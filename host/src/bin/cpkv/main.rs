//! The command-line program.

mod args;
mod barriers;
mod baselines;
mod compose;
mod doctor;
mod error;
mod job;
mod progress;
mod ranks;
mod report;
mod samples;
mod timing;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Compose(args) => compose::run(args),
        Command::Doctor(args) => doctor::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cpkv: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
