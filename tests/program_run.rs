//! `cpkv run` from outside, with threads as ranks and the in-process engine: what it reports, and how it ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/program.rs"]
mod program;

use std::collections::BTreeSet;
use std::fs;

use program::{Outcome, SAMPLE, cpkv, run};
use serde_json::Value;

/// The sample trace in small batches: chunks, and hits of earlier requests.
const SMALL: [&str; 5] = ["run", "--trace", SAMPLE, "--model", "tiny"];
/// Limits of these batches.
const LIMITS: [&str; 2] = ["--max-extend-tokens", "1500"];

fn small(more: &[&str]) -> Outcome {
    let limits = if more.contains(&LIMITS[0]) { &[][..] } else { &LIMITS };
    run(cpkv().args(SMALL).args(limits).args(more))
}

/// The report of a run that found everything identical.
fn report(more: &[&str]) -> Value {
    let outcome = small(&[more, &["--json"]].concat());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stdout.trim_end().lines().count(), 1, "one object on one line: {outcome:?}");
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(
        (&report["identical"], report.get("first_difference")),
        (&Value::Bool(true), None),
        "{report}"
    );
    assert_eq!(report["layer_pages_sent"], report["layer_pages_expected"], "{report}");
    assert!(report["layer_pages_sent"].as_u64() > Some(0), "{report}");
    report
}

fn names(report: &Value) -> Vec<&str> {
    report["modes"].as_array().unwrap().iter().map(|mode| mode["name"].as_str().unwrap()).collect()
}

/// Bytes of a page in all four layers of the model: token-KV in each, index-K in every second.
const PAGE_BYTES: u64 = 4 * (4 * 32) + 2 * (4 * 132);

#[test]
fn chunked_requests_with_hits_arrive_identical_both_ways_every_layer_and_page_once() {
    let report = report(&["--ranks", "3", "--batches", "3"]);
    assert_eq!((&report["engine"], &report["group_size"]), (&"in-process".into(), &3.into()));
    assert_eq!((&report["transport"], &report["batches"]), (&"threads".into(), &3.into()));
    assert!(report["prefix_tokens"].as_u64() > Some(0), "{report}");
    let (requests, layers) = (report["requests"].as_u64().unwrap(), report["layers"].as_u64().unwrap());
    assert!(requests < 5, "five parts of requests, so at least one request has two: {report}");
    assert_eq!(report["layers_sent"].as_u64(), Some(requests * layers));
    let num_pages = report["layer_pages_sent"].as_u64().unwrap() / layers;
    // Beside the pages, every rank sends for every request an extra buffer to one of the two workers, and records to both.
    assert_eq!(report["bytes_sent"].as_u64(), Some(num_pages * PAGE_BYTES + 3 * requests * 3 * 64));
    assert_eq!(report["checked_bytes"].as_u64(), Some(2 * num_pages * PAGE_BYTES));
    assert_eq!(names(&report), ["monolithic", "per_layer"]);
    for mode in report["modes"].as_array().unwrap() {
        for key in ["total_ms", "forward_ms", "overlap_efficiency", "goodput_to_bare", "gb_per_s"] {
            assert!(mode[key].as_f64() > Some(0.0), "{key}: {mode}");
        }
        assert!(mode["exposed_ms"].is_f64() && mode["on_layer_end_us"]["median"].is_f64(), "{mode}");
        assert!(mode["on_layer_end_us"]["p99"].as_f64() > Some(0.0), "{mode}");
    }
    for key in ["transfer_ms", "bare_ms", "forward_alone_ms", "compose_ms", "goodput_ratio"] {
        assert!(report[key].as_f64() > Some(0.0), "{key}: {report}");
    }
    assert_eq!(report["compute_us"].as_array().map(Vec::len), Some(3));
}

#[test]
fn each_mode_can_be_had_alone_and_without_a_stand_in() {
    for (mode, name) in [("per-layer", "per_layer"), ("monolithic", "monolithic")] {
        let report = report(&["--ranks", "2", "--batches", "2", "--mode", mode, "--compute-us", "0"]);
        assert_eq!(names(&report), [name]);
        assert_eq!(report["compute_us"], serde_json::json!([0, 0]));
    }
}

#[test]
fn every_round_has_other_bytes_and_one_worker_or_many_are_the_same() {
    for workers in ["1", "5"] {
        let more = [
            "--ranks",
            "2",
            "--batches",
            "2",
            "--rounds",
            "3",
            "--decode-workers",
            workers,
            "--compute-us",
            "50",
        ];
        let report = report(&more);
        assert_eq!(report["rounds"], 3);
        // Each way, in each round: stamps of its own.
        let num_pages = report["layer_pages_sent"].as_u64().unwrap() / report["layers"].as_u64().unwrap();
        assert_eq!(report["checked_bytes"].as_u64(), Some(3 * 2 * num_pages * PAGE_BYTES));
    }
}

#[test]
fn prompts_below_the_minimum_go_as_a_whole_in_every_mode() {
    report(&["--ranks", "2", "--batches", "3", "--min-prompt-tokens", "1000000", "--compute-us", "0"]);
}

#[test]
fn without_json_there_is_a_table_and_progress_on_standard_error() {
    let outcome = small(&["--ranks", "2", "--batches", "1"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for word in
        ["per_layer", "monolithic", "transfer alone", "bare loop", "exposed ms", "every page identical"]
    {
        assert!(outcome.stdout.contains(word), "{word}: {outcome:?}");
    }
    assert!(outcome.stderr.contains("batch 1 of 1"), "{outcome:?}");
}

#[test]
fn the_timeline_has_a_track_for_every_stream_worker_and_engine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timeline.json");
    let path = path.to_str().unwrap();
    report(&["--ranks", "2", "--batches", "1", "--timeline", path, "--transfer-threads", "1"]);
    let trace: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let named = |what: &str| -> BTreeSet<(u64, String)> {
        let events = events.iter().filter(|event| event["name"] == what);
        let name = |event: &Value| event["args"]["name"].as_str().unwrap().to_owned();
        events.map(|event| (event["pid"].as_u64().unwrap(), name(event))).collect()
    };
    let tracks = named("thread_name");
    for rank in 0..2 {
        assert!(named("process_name").contains(&(rank, format!("rank {rank}"))));
        for track in ["forward's thread", "stream", "transfer thread 1", "engine, in flight 0"] {
            assert!(tracks.contains(&(rank, track.to_owned())), "{track} of rank {rank}: {tracks:?}");
        }
        let of_thread = tracks.iter().filter(|(of, name)| *of == rank && name.starts_with("transfer thread"));
        assert_eq!(of_thread.count(), 1, "a batch of several requests is one span: {tracks:?}");
        let of_rank = |event: &&Value| event["ph"] == "X" && event["pid"] == rank;
        let starts: Vec<_> =
            events.iter().filter(of_rank).map(|event| event["ts"].as_f64().unwrap()).collect();
        assert!(starts.is_sorted() && starts[0] >= 0.0);
        let layers = events.iter().filter(of_rank).filter(|event| event["name"] == "compose 3").count();
        assert_eq!(layers, 2, "one for each way");
    }
}

#[test]
fn bad_input_is_refused_with_the_remedy() {
    for (more, words) in [
        (["--ranks", "65"], ["group size 65", "1..=64"]),
        (["--layers", "5"], ["5 layers", "between 1 and 4"]),
        (["--decode-workers", "0"], ["--decode-workers", "0"]),
        (["--engine", "rdma"], ["rdma", "in-process"]),
        (["--mode", "all"], ["all", "per-layer"]),
        (["--rounds", "0"], ["--rounds", "0"]),
        (["--max-extend-tokens", "3"], ["max_extend_tokens 3", "4 tokens"]),
    ] {
        let outcome = small(&more);
        assert_eq!((outcome.code, &*outcome.stdout), (Some(2), ""), "{outcome:?}");
        assert!(words.iter().all(|word| outcome.stderr.contains(word)), "{words:?} in {outcome:?}");
    }
}

#[test]
fn processes_cannot_have_the_in_process_engine() {
    let mut command = cpkv();
    command.args(SMALL).args(["--engine", "in-process"]).env("OMPI_COMM_WORLD_SIZE", "2");
    let outcome = run(&mut command);
    assert_eq!((outcome.code, &*outcome.stdout), (Some(2), ""), "{outcome:?}");
    assert!(outcome.stderr.contains("--engine nixl"), "{outcome:?}");
}

#[cfg(not(feature = "nixl"))]
#[test]
fn a_build_without_nixl_says_so() {
    let outcome = small(&["--engine", "nixl"]);
    assert_eq!((outcome.code, &*outcome.stdout), (Some(2), ""), "{outcome:?}");
    assert!(outcome.stderr.contains("--features nixl"), "{outcome:?}");
}

#[test]
fn a_timeline_that_cannot_be_written_is_an_error_with_its_path() {
    let outcome = small(&["--ranks", "1", "--batches", "1", "--timeline", "/nowhere/timeline.json"]);
    assert_eq!((outcome.code, &*outcome.stdout), (Some(2), ""), "before anything is run: {outcome:?}");
    assert!(outcome.stderr.contains("/nowhere/timeline.json"), "{outcome:?}");
}

#[test]
fn a_decode_worker_that_nobody_told_anything_ends() {
    let outcome = run(cpkv().arg("decode-worker"));
    assert_eq!((outcome.code, &*outcome.stdout), (Some(2), ""), "{outcome:?}");
    assert!(outcome.stderr.contains("cpkv run"), "{outcome:?}");
    let help = run(cpkv().arg("--help")).stdout;
    assert!(help.contains("run") && !help.contains("decode-worker"), "{help}");
}

#[test]
fn help_says_what_is_measured() {
    let help = run(cpkv().args(["run", "--help"]));
    assert_eq!((help.code, &*help.stderr), (Some(0), ""));
    for word in
        ["--compute-us", "exposed", "max(forward, transfer) / total", "Examples", "Exit status", "mla-fp8-78"]
    {
        assert!(help.stdout.contains(word), "{word}: {}", help.stdout);
    }
}
