//! Processes that this program starts: itself again, with a role, a deadline, and one line of JSON as the answer.
//!
//! A child dies with its parent, so whatever is killed leaves nothing behind.

use std::io::{Read, Write, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cpkv::deadline::Deadline;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::args::Args;
use crate::checks::Check;
use crate::context::Context;
use crate::outcome::{Gone, Outcome, Problem};

/// Stands before a child's answer.
const MARK: &str = "cpkv-gpu-check-answer ";
/// Tells a child whose it is.
const PARENT_VARIABLE: &str = "CPKV_GPU_CHECK_PARENT";
/// How long a killed process may take to end: the driver may hold it for a while.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// A running child.
pub(crate) struct Running {
    child: Child,
    output: JoinHandle<String>,
}

impl Running {
    /// Starts this program as `role` says; `stdin` is what it reads.
    pub(crate) fn start(role: &[String], context: &Context, stdin: Stdio) -> Result<Self, Problem> {
        let mut command = Command::new(std::env::current_exe()?);
        if context.quick {
            command.arg("--quick");
        }
        let ranks: Vec<_> = context.ranks.iter().map(ToString::to_string).collect();
        command.arg("--ranks").arg(ranks.join(",")).args(role);
        command.env(PARENT_VARIABLE, std::process::id().to_string());
        let mut child = command.stdin(stdin).stdout(Stdio::piped()).spawn()?;
        let pipe = child.stdout.take();
        let output = thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Ok(Self { child, output })
    }

    /// Its answer; killed at the deadline.
    pub(crate) fn finish(mut self, deadline: Deadline) -> Outcome {
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if deadline.expired() => {
                    let left = if self.kill() { "" } else { "; the driver holds it, it is left behind" };
                    let seconds = deadline.waited_ms() / 1000;
                    return Outcome::failed(format!("not over after {seconds} s, so it was killed{left}"));
                }
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                Err(problem) => {
                    return Outcome::failed(format!("its process cannot be waited for: {problem}"));
                }
            }
        };
        let output = self.output.join().unwrap_or_default();
        let answer = output.lines().rev().find_map(|line| line.strip_prefix(MARK));
        match answer.map(serde_json::from_str) {
            Some(Ok(outcome)) => outcome,
            Some(Err(problem)) => {
                Outcome::failed(format!("its process ({status}) gave a bad answer: {problem}"))
            }
            None => Outcome::failed(format!("its process ended without an answer ({status})")),
        }
    }

    /// Kills it; whether it has ended.
    fn kill(&mut self) -> bool {
        let _ = self.child.kill();
        let deadline = Deadline::after(KILL_TIMEOUT);
        while matches!(self.child.try_wait(), Ok(None)) {
            if deadline.expired() {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

/// Runs `check` in a process of its own; its answer, and how long it took in seconds.
pub(crate) fn run_check(check: &Check, args: &Args, context: &Context) -> (Outcome, f64) {
    let left = context.deadline.remaining();
    if left.is_zero() {
        return (Outcome::failed(format!("not run: {} s are over (--limit)", args.limit)), 0.0);
    }
    let started = Instant::now();
    let role = ["check".to_owned(), check.name.to_owned()];
    let outcome = match Running::start(&role, context, Stdio::null()) {
        Ok(running) => running.finish(Deadline::after(check.timeout.min(left))),
        Err(problem) => Outcome::failed(format!("its process does not start: {problem}")),
    };
    (outcome, started.elapsed().as_secs_f64())
}

/// Runs `body` as a child, and answers.
pub(crate) fn serve(body: impl FnOnce() -> Result<Outcome, Problem>) -> ExitCode {
    if let Err(problem) = die_with_parent() {
        eprintln!("cpkv-gpu-check: {problem}");
        return ExitCode::FAILURE;
    }
    let outcome = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(problem)) => match problem.downcast_ref::<Gone>() {
            Some(Gone(reason)) => Outcome::DeviceGone { reason: reason.clone() },
            None => Outcome::failed(problem.to_string()),
        },
        Err(_) => Outcome::failed("it panicked: see its message in the output"),
    };
    let answer = serde_json::to_string(&outcome).unwrap_or_default();
    let written = writeln!(stdout(), "\n{MARK}{answer}").and_then(|()| stdout().flush());
    // At once: after a fault, what is dropped would wait for ranks that are gone.
    let code = i32::from(written.is_err());
    std::process::exit(code)
}

/// From now on this process is killed when its parent ends.
fn die_with_parent() -> Result<(), Problem> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = std::env::var(PARENT_VARIABLE).ok().and_then(|parent| parent.parse().ok());
    // It may have ended before the line above.
    if parent != getppid().map(|pid| pid.as_raw_nonzero().get()) {
        return Err("this role is for processes that the program starts itself".into());
    }
    Ok(())
}
