//! The program `cpkv` from outside: what it prints where, and how it ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/program.rs"]
mod program;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use program::{Outcome, SAMPLE, cpkv, run, wait};
use serde_json::Value;

const STRATEGIES: [&str; 6] =
    ["per_span", "fused_all_reduce", "gather_compact", "symm_dense", "staging_publish", "staging_fill"];

/// The sample trace in small batches.
const SMALL: [&str; 7] = ["compose", "--trace", SAMPLE, "--model", "tiny", "--max-extend-tokens", "1500"];

/// A run of the small job with more arguments.
fn small(more: &[&str]) -> Outcome {
    run(cpkv().args(SMALL).args(more))
}

/// The run failed with `code`, said all of `words` on standard error, and nothing on standard output.
fn expect_error(outcome: &Outcome, code: i32, words: &[&str]) {
    assert_eq!((outcome.code, &*outcome.stdout), (Some(code), ""), "{outcome:?}");
    for word in words {
        assert!(outcome.stderr.contains(word), "no `{word}` in {outcome:?}");
    }
    assert!(!outcome.stderr.contains("panicked"), "{outcome:?}");
}

/// Off a terminal, standard error has a line for each part of the work, and no other.
fn expect_progress(stderr: &str, batches: u32) {
    let mut lines = vec!["registering".to_owned()];
    lines.extend((1..=batches).map(|batch| format!("batch {batch} of {batches}: proving 6 strategies")));
    lines.push("timing barriers".to_owned());
    let said: Vec<_> = stderr.lines().collect();
    assert_eq!(said.len(), lines.len(), "{stderr}");
    assert!(said.iter().zip(&lines).all(|(said, line)| said.contains(&**line)), "{stderr}");
}

/// Every key that readers of the report rely on, with its type; all six strategies exact.
fn expect_report(stdout: &str, num_ranks: u64, transport: &str, batches: u64) -> Value {
    assert_eq!(stdout.trim_end().lines().count(), 1, "one object on one line: {stdout}");
    let report: Value = serde_json::from_str(stdout).unwrap();
    assert_eq!(report["group_size"], num_ranks);
    assert_eq!(report["transport"], transport);
    assert_eq!(
        (&report["model"], &report["layers"], &report["batches"]),
        (&"tiny".into(), &4.into(), &batches.into())
    );
    for key in ["new_tokens", "prefix_tokens", "dense_bytes_per_layer"] {
        assert!(report[key].is_u64(), "{key}: {report}");
    }
    assert!(report["new_tokens"].as_u64() > Some(0) && report["ideal_ms"].as_f64() > Some(0.0));
    let strategies = report["strategies"].as_array().unwrap();
    let names: Vec<_> = strategies.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, STRATEGIES);
    for row in strategies {
        assert_eq!(row["exact"], true, "{row}");
        for key in ["ms_median", "ms_p90", "ratio_to_ideal"] {
            assert!(row[key].as_f64() > Some(0.0), "{key}: {row}");
        }
    }
    for row in report["baselines"].as_array().unwrap() {
        assert!(row["name"].is_string() && row["ms_median"].is_f64(), "{row}");
    }
    for key in ["median", "p99", "max"] {
        assert!(report["barrier_us"][key].as_f64() > Some(0.0), "{report}");
    }
    let stats = &report["stats"];
    assert_eq!(stats["egress_bytes"].as_array().map(Vec::len), Some(num_ranks as usize));
    assert!(
        stats["egress_skew"].as_f64() >= Some(1.0) && stats["lower_bound_ms"].as_f64() > Some(0.0),
        "{stats}"
    );
    let waits = &stats["barrier_waits"];
    assert_eq!(waits["late_ranks"].as_array().map(Vec::len), Some(num_ranks as usize), "{stats}");
    assert!(waits["num_barriers"].as_u64() > Some(0) && waits["num_untimed"] == 0, "{stats}");
    report
}

#[test]
fn help_names_commands_models_strategies_and_exit_codes() {
    let help = run(cpkv().arg("--help"));
    assert_eq!((help.code, &*help.stderr), (Some(0), ""));
    for word in ["compose", "plan", "doctor", "Exit status", "mpirun"] {
        assert!(help.stdout.contains(word), "{word}");
    }
    let help = run(cpkv().args(["compose", "--help"])).stdout;
    let words = ["--trace", "--pool-pages", "--json", "mla-fp8-78", "tiny", "Examples", "auto"];
    assert!(words.iter().chain(&STRATEGIES).all(|word| help.contains(word)), "{help}");
    assert_eq!(run(&mut cpkv()).code, Some(2));
}

#[test]
fn compose_as_threads_reports_every_strategy_exact() {
    let outcome = small(&["--ranks", "3", "--batches", "2", "--rounds", "1", "--json"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    expect_progress(&outcome.stderr, 2);
    let report = expect_report(&outcome.stdout, 3, "threads", 2);
    assert!(report["barrier_us"]["mpi_median"].is_null());
}

#[test]
fn without_json_there_is_a_table() {
    let outcome = small(&["--ranks", "2", "--batches", "1", "--rounds", "0"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    expect_progress(&outcome.stderr, 1);
    assert!(STRATEGIES.iter().all(|name| outcome.stdout.contains(name)), "{}", outcome.stdout);
    assert!(!outcome.stdout.contains("NO"));
    for word in ["egress: busiest rank over mean", "longest wait in a layer's barrier"] {
        assert!(outcome.stdout.contains(word), "{word}: {}", outcome.stdout);
    }
}

#[test]
fn numbers_and_names_out_of_range_are_refused_with_the_range() {
    for (more, words) in [
        (["--ranks", "0"], ["group size 0", "1..=64"]),
        (["--ranks", "65"], ["group size 65", "1..=64"]),
        (["--layers", "0"], ["0 layers", "between 1 and 4"]),
        (["--layers", "5"], ["5 layers", "between 1 and 4"]),
        (["--strategy", "fastest"], ["`fastest`", "staging_fill"]),
        (["--pool-pages", "3"], ["3 of the pool's 3", "--pool-pages"]),
        (["--pool-pages", "0"], ["a pool of 0 pages", "--pool-pages"]),
        (["--batches", "0"], ["--batches", "0"]),
        (["--timeout", "0"], ["--timeout", "0"]),
        (["--max-extend-tokens", "3"], ["max_extend_tokens 3", "4 tokens"]),
    ] {
        let mut args: Vec<_> = SMALL.to_vec();
        if more[0] == "--max-extend-tokens" {
            args.truncate(5);
        }
        expect_error(&run(cpkv().args(args).args(more)), 2, &words);
    }
    expect_error(
        &run(cpkv().args(["compose", "--trace", SAMPLE, "--model", "huge"])),
        2,
        &["`huge`", "mla-fp8-78"],
    );
}

#[test]
fn a_trace_that_cannot_be_used_is_named_with_line_and_reason() {
    expect_error(
        &run(cpkv().args(["compose", "--trace", "no/such.jsonl"])),
        2,
        &["no/such.jsonl", "No such file"],
    );
    let good = r#"{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [0]}"#;
    for (second, reason) in [
        ("not json", "not a JSON object"),
        (r#"{"timestamp": 0, "input_length": 5, "output_length": 1}"#, "hash_ids"),
        (r#"{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0]}"#, "1 hash_ids"),
        (r#"{"timestamp": 0, "input_length": -5, "output_length": 1, "hash_ids": [0]}"#, "-5"),
    ] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{good}\n{second}").unwrap();
        let path = file.path().to_str().unwrap();
        let outcome = run(cpkv().args(["compose", "--model", "tiny", "--trace", path]));
        expect_error(&outcome, 2, &[path, "line 2", reason]);
    }
    let empty = tempfile::NamedTempFile::new().unwrap();
    let path = empty.path().to_str().unwrap();
    expect_error(&run(cpkv().args(["compose", "--trace", path])), 2, &[path, "no request"]);
}

#[test]
fn a_staging_size_that_is_no_number_or_too_small_is_refused_with_the_need() {
    let with =
        |value: &str, more: &[&str]| run(cpkv().env("CPKV_SYMM_HEAP_MB", value).args(SMALL).args(more));
    for garbage in ["64MB", "", "-1", "99999999999999999999"] {
        expect_error(&with(garbage, &[]), 2, &["CPKV_SYMM_HEAP_MB", "MiB"]);
    }
    let more = ["--ranks", "2", "--batches", "1", "--rounds", "0", "--strategy", "staging_fill"];
    let outcome = with("0", &more);
    expect_error(&outcome, 1, &["pages of staging, 0 are registered", "CPKV_SYMM_HEAP_MB"]);
    assert_eq!(with("64", &more).code, Some(0));
}

#[test]
fn memory_that_the_machine_does_not_have_is_an_error_and_no_signal() {
    let with = |pages: u64| {
        let pages = pages.to_string();
        let args = ["compose", "--trace", SAMPLE, "--model", "mla-fp8-78", "--batches", "1", "--rounds", "0"];
        run(cpkv().args(args).args(["--ranks", "8", "--pool-pages", &pages]))
    };
    // Each rank's part would fit, but not all eight together.
    let available = cpkv::symm::available_bytes().unwrap();
    let page_bytes = cpkv::model::ModelSpec::preset("mla-fp8-78").unwrap().page_bytes_all_layers();
    for pages in [available * 3 / page_bytes, 1_000_000_000] {
        expect_error(&with(pages), 1, &["pool", "bytes available", "fewer pages"]);
    }
}

#[test]
fn an_output_that_nobody_reads_ends_the_program_without_a_panic() {
    let args = ["--ranks", "2", "--batches", "1", "--rounds", "0"];
    let mut child =
        cpkv().args(SMALL).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Closed before anything is written.
    drop(child.stdout.take());
    let code = wait(&mut child);
    let stderr: Vec<_> = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap).collect();
    // As a shell says of a program that the signal ends.
    assert_eq!(code, Some(141), "{stderr:?}");
    assert!(!stderr.iter().any(|line| line.contains("panicked") || line.contains("report")), "{stderr:?}");
}

#[test]
fn an_output_that_cannot_be_written_is_a_fault_that_says_so() {
    let args = ["--ranks", "2", "--batches", "1", "--rounds", "0"];
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = cpkv().args(SMALL).args(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot write the report: No space left"), "{stderr}");
}

#[test]
fn doctor_says_what_would_be_used_and_why() {
    let outcome = run(cpkv().args(["doctor", "--ranks", "3"]));
    assert_eq!((outcome.code, &*outcome.stderr), (Some(0), ""), "{outcome:?}");
    for word in ["3 as threads", "peer access    yes", "staging_fill", "CUDA"] {
        assert!(outcome.stdout.contains(word), "{word}: {}", outcome.stdout);
    }
    let outcome = run(cpkv().args(["doctor", "--json"]));
    let findings: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((&findings["ranks"], &findings["transport"]), (&8.into(), &"threads".into()));
    assert_eq!((&findings["strategy"], &findings["peer_access"]), (&"staging_fill".into(), &true.into()));
    expect_error(&run(cpkv().args(["doctor", "--ranks", "0"])), 2, &["1..=64"]);
}

#[cfg(not(feature = "mpi"))]
#[test]
fn a_build_without_mpi_says_so_under_mpirun() {
    let mut command = cpkv();
    command.env("OMPI_COMM_WORLD_SIZE", "2").env("OMPI_COMM_WORLD_RANK", "0").args(SMALL);
    expect_error(&run(&mut command), 2, &["no MPI", "--features mpi"]);
}

#[cfg(feature = "mpi")]
mod under_mpirun {
    use super::{SAMPLE, SMALL, Value, cpkv, expect_error, expect_report, run};
    use crate::program::cpkv_under_mpirun;

    #[test]
    fn compose_as_processes_prints_one_report() {
        let more = ["--batches", "2", "--rounds", "1", "--json"];
        let outcome = run(cpkv_under_mpirun(3).args(SMALL).args(more));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let report = expect_report(&outcome.stdout, 3, "processes", 2);
        let baselines = report["baselines"].as_array().unwrap();
        let names: Vec<_> = baselines.iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["memcpy", "mpi_allgatherv", "mpi_allreduce"]);
        assert!(report["barrier_us"]["mpi_median"].as_f64() > Some(0.0));
        assert!(report["mpi_copy"].is_string());
    }

    #[test]
    fn what_every_process_finds_in_its_input_is_said_once() {
        let bad_layers = ["compose", "--trace", SAMPLE, "--model", "tiny", "--layers", "9"];
        for (args, word) in [
            (&["compose", "--trace", "no/such.jsonl"][..], "no/such.jsonl"),
            (&bad_layers[..], "between 1 and 4"),
            (&["compose", "--trace", SAMPLE, "--ranks", "4"], "leave `--ranks 4` out"),
            (&["compose", "--trace", SAMPLE, "--strategy", "fastest"], "`fastest`"),
        ] {
            let outcome = run(cpkv_under_mpirun(3).args(args));
            expect_error(&outcome, 2, &[word]);
            assert_eq!(outcome.stderr.matches(word).count(), 1, "{}", outcome.stderr);
        }
    }

    #[test]
    fn doctor_speaks_once_of_processes() {
        let outcome = run(cpkv_under_mpirun(3).args(["doctor", "--json"]));
        let findings: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!((&findings["ranks"], &findings["transport"]), (&3.into(), &"processes".into()));
        assert_eq!(outcome.code, Some(0));
    }

    /// As with the `mpirun` of another MPI: every process would be a group of its own.
    #[test]
    fn a_world_of_another_size_than_the_environment_says_is_refused() {
        let mut command = cpkv();
        command.env("OMPI_COMM_WORLD_SIZE", "2").env("OMPI_COMM_WORLD_RANK", "0").args(SMALL);
        expect_error(&run(&mut command), 2, &["says 2 processes, MPI says 1"]);
    }
}
