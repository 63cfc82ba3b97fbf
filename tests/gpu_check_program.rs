//! `cpkv-gpu-check` and `scripts/gpu-check` where there is no GPU: nothing is checked, and both say so.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_cpkv-gpu-check");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/gpu-check");

/// Runs `program` on a driver that has no device, whatever the machine has.
fn run(program: &str, args: &[&str]) -> (Option<i32>, String) {
    let stub = std::env::var("CPKV_STUB_LIBCUDA").expect("scripts/setup names it in .cpkv/env");
    let output = Command::new(program).args(args).env("LD_LIBRARY_PATH", stub).output().unwrap();
    let Output { status, stdout, stderr } = output;
    (status.code(), [stdout, stderr].map(|text| String::from_utf8(text).unwrap()).concat())
}

#[test]
fn without_a_gpu_nothing_is_checked_and_that_is_no_failure_of_a_check() {
    let (code, text) = run(PROGRAM, &["--quick"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("no GPU to check") && text.contains("nvidia-smi"), "{text}");
}

#[test]
fn a_check_that_does_not_exist_is_refused_with_those_that_do() {
    let (code, text) = run(PROGRAM, &["--only", "luck"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("barrier-processes") && text.contains("kernels"), "{text}");
}

#[test]
fn help_names_every_check_and_the_exit_status() {
    let (code, text) = run(PROGRAM, &["--help"]);
    assert_eq!(code, Some(0), "{text}");
    for word in ["kernels", "strategies-gpus", "nccl", "timeout", "graph", "bench-gather", "Exit status"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn roles_of_its_own_processes_are_refused_from_outside() {
    let (code, text) = run(PROGRAM, &["check", "device"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("that the program starts itself"), "{text}");
}

#[test]
fn the_script_runs_the_program_it_is_given_and_keeps_all_output() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.txt");
    let args = ["--program", PROGRAM, "--out", out.to_str().unwrap(), "--quick"];
    let (code, text) = run(SCRIPT, &args);
    assert_eq!(code, Some(2), "{text}");
    let kept = std::fs::read_to_string(out).unwrap();
    assert!(kept.contains("no GPU to check") && kept.contains("--quick"), "{kept}");
}

#[test]
fn the_script_says_what_is_missing_before_it_runs_anything() {
    for (args, word) in [
        (&["--program", "/nonexistent"][..], "/nonexistent"),
        (&["--program", PROGRAM, "--limit", "soon"], "soon"),
        (&["--out"], "--out wants a value"),
    ] {
        let (code, text) = run(SCRIPT, args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(word), "{text}");
    }
    let (code, text) = run(SCRIPT, &["--help"]);
    assert!(code == Some(0) && text.contains("Exit status"), "{text}");
}
