//! `cpkv run` over NIXL: decode workers are processes, ranks are threads or, with the feature `mpi`, processes under `mpirun`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/program.rs"]
mod program;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use program::{SAMPLE, cpkv, run, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const SMALL: [&str; 7] = ["run", "--trace", SAMPLE, "--model", "tiny", "--max-extend-tokens", "1500"];
/// Marks the processes of one run.
const MARK: &str = "CPKV_TEST_RUN";
/// Enough for a worker's end to be noticed and said.
const SOON: Duration = Duration::from_secs(60);

fn require_library() {
    assert!(
        std::env::var_os("CPKV_NIXL_LIBRARY").is_some(),
        "CPKV_NIXL_LIBRARY is not set: run scripts/setup, then `. .cpkv/env`, and test again"
    );
}

fn expect_identical(command: &mut Command, num_ranks: u64, transport: &str) {
    let outcome = run(command);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["identical"], true, "{report}");
    assert_eq!((&report["engine"], &report["group_size"]), (&"nixl".into(), &num_ranks.into()));
    assert_eq!(report["transport"], transport);
    assert_eq!(report["layer_pages_sent"], report["layer_pages_expected"], "{report}");
}

/// The processes that carry `mark`.
fn marked(mark: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let wanted = format!("{MARK}={mark}");
    let carries = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    pids.filter(carries).collect()
}

fn is_decode_worker(pid: &i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|&byte| byte == 0).any(|word| word == b"decode-worker")
}

/// A run without an end, of which one decode worker was signalled. Dropped, it and all its processes are killed.
struct Disturbed {
    child: Child,
    mark: String,
    victim: i32,
    /// What it says on standard error, line by line.
    lines: mpsc::Receiver<String>,
}

impl Drop for Disturbed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        for pid in marked(&self.mark).into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Starts a run without an end, waits until it is at work, and signals one decode worker.
fn disturb(command: &mut Command, mark: &str, signal: Signal) -> Disturbed {
    require_library();
    let mark = format!("{mark}-{}", std::process::id());
    command.env(MARK, &mark).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let errors = BufReader::new(child.stderr.take().unwrap());
    let (said, lines) = mpsc::channel();
    let mut disturbed = Disturbed { child, mark, victim: 0, lines };
    // Nobody waits for it: it ends with the last process that holds the pipe.
    thread::spawn(move || errors.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
    let begun = Instant::now();
    while !disturbed.line(begun).expect("it ended before it was at work").contains("round 2") {}
    disturbed.victim = marked(&disturbed.mark).into_iter().find(is_decode_worker).expect("a decode worker");
    kill_process(Pid::from_raw(disturbed.victim).unwrap(), signal).unwrap();
    disturbed
}

impl Disturbed {
    /// The next line; `None` at the end. A panic where that takes long, counted from `begun`.
    fn line(&self, begun: Instant) -> Option<String> {
        match self.lines.recv_timeout(SOON.saturating_sub(begun.elapsed())) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("still silent after {SOON:?}"),
        }
    }

    /// It fails, soon, says all of `words`, and leaves no process behind.
    fn expect_end(mut self, words: &[&str]) {
        let started = Instant::now();
        let code = wait(&mut self.child);
        assert!(started.elapsed() < SOON, "after {:?}", started.elapsed());
        let ended = Instant::now();
        let said = std::iter::from_fn(|| self.line(ended)).collect::<Vec<_>>().join("\n");
        assert_eq!(code, Some(1), "{said}");
        for word in words {
            // Which rank speaks first is a matter of luck, and each says it its way.
            let is_said = word.split('|').any(|way| said.contains(way));
            assert!(is_said, "no `{word}` (process {}) in {said}", self.victim);
        }
        let gone = Instant::now();
        while !marked(&self.mark).is_empty() {
            assert!(gone.elapsed() < Duration::from_secs(20), "left behind: {:?}", marked(&self.mark));
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn endless(command: &mut Command) -> &mut Command {
    command.args(SMALL).args(["--batches", "2", "--rounds", "1000", "--engine", "nixl", "--timeout", "5"])
}

#[test]
fn ranks_that_are_threads_send_to_processes_and_all_is_identical() {
    require_library();
    let mut command = cpkv();
    command.args(SMALL).args(["--ranks", "3", "--batches", "2", "--engine", "nixl", "--json"]);
    expect_identical(&mut command, 3, "threads");
}

#[test]
fn a_killed_decode_worker_is_named_and_nothing_is_left_behind() {
    let mark = "killed-threads";
    let mut command = cpkv();
    let disturbed = disturb(endless(&mut command).args(["--ranks", "2"]), mark, Signal::KILL);
    disturbed.expect_end(&["decode worker ", "SIGKILL"]);
}

#[test]
fn a_frozen_decode_worker_is_named_within_the_timeout_and_nothing_is_left_behind() {
    let mark = "frozen-threads";
    let mut command = cpkv();
    let disturbed = disturb(endless(&mut command).args(["--ranks", "2"]), mark, Signal::STOP);
    disturbed.expect_end(&["decode worker |peer decode-", "stopped?"]);
}

#[test]
fn a_missing_library_is_an_error_with_the_remedy() {
    let mut command = cpkv();
    command.args(SMALL).args(["--ranks", "2", "--engine", "nixl"]).env("CPKV_NIXL_LIBRARY", "/nowhere.so");
    let outcome = run(&mut command);
    assert_eq!((outcome.code, &*outcome.stdout), (Some(2), ""), "{outcome:?}");
    assert!(outcome.stderr.starts_with("cpkv: nixl engine, open: /nowhere.so"), "{outcome:?}");
}

#[cfg(feature = "mpi")]
mod under_mpirun {
    use super::{SMALL, Signal, disturb, endless, expect_identical, require_library};
    use crate::program::cpkv_under_mpirun;

    #[test]
    fn ranks_that_are_processes_send_to_processes_and_all_is_identical() {
        require_library();
        // NIXL is the default there.
        let mut command = cpkv_under_mpirun(3);
        expect_identical(command.args(SMALL).args(["--batches", "3", "--json"]), 3, "processes");
    }

    #[test]
    fn a_killed_decode_worker_ends_all_processes() {
        let mark = "killed-processes";
        let mut command = cpkv_under_mpirun(3);
        let disturbed = disturb(endless(&mut command), mark, Signal::KILL);
        disturbed.expect_end(&["decode worker |peer decode-"]);
    }

    #[test]
    fn one_process_engine_is_refused() {
        let mut command = cpkv_under_mpirun(2);
        let outcome = crate::run(command.args(SMALL).args(["--engine", "in-process"]));
        assert_eq!((outcome.code, &*outcome.stdout), (Some(2), ""), "{outcome:?}");
        assert_eq!(outcome.stderr.matches("--engine nixl").count(), 1, "{outcome:?}");
    }
}
