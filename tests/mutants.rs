//! Mutation tests of the GPU kernels: each planted fault is compiled from a changed copy of the sources, run on the
//! virtual GPU, and must be caught. Prints which detector caught which fault.
//!
//! `CPKV_MUTANTS=all` plants every fault, otherwise the quick subset; arguments choose faults by parts of their names.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "mutants/cases/mod.rs"]
mod cases;
#[path = "mutants/child.rs"]
mod child;
#[path = "mutants/compiler.rs"]
mod compiler;
#[path = "mutants/detector.rs"]
mod detector;
#[path = "mutants/detectors/mod.rs"]
mod detectors;
#[path = "mutants/fault.rs"]
mod fault;
#[path = "mutants/faults/mod.rs"]
mod faults;
#[path = "support/fixture.rs"]
mod fixture;
#[path = "../build/nvptx.rs"]
#[allow(dead_code, unused_imports, reason = "the build script uses the rest")]
mod nvptx;
#[path = "mutants/report.rs"]
mod report;
#[path = "mutants/run.rs"]
mod run;
#[path = "mutants/sass.rs"]
mod sass;
#[path = "support/scenario.rs"]
mod scenario;
#[path = "mutants/vgpu.rs"]
mod vgpu;

use std::process::ExitCode;

/// `all` plants every fault.
const MUTANTS_VARIABLE: &str = "CPKV_MUTANTS";

fn main() -> ExitCode {
    if let Some(role) = child::role() {
        return child::serve(&role);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let all = std::env::var(MUTANTS_VARIABLE).is_ok_and(|value| value == "all");
    // Options of the usual harness, and their numbers, mean nothing here.
    let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_alphabetic());
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(is_word).collect();
    let chosen = faults::chosen(all, &words);
    if chosen.is_empty() {
        println!("mutants: no fault is called {}", words.join(", or "));
        return ExitCode::SUCCESS;
    }
    match run::run(&chosen) {
        Ok(report) => report.print(),
        Err(problem) => {
            eprintln!("mutants: {problem}");
            ExitCode::FAILURE
        }
    }
}
