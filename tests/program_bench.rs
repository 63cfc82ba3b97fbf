//! The program `cpkv bench` from outside: figures as JSON, tables and page, and how it ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/program.rs"]
mod program;

use std::fs;
use std::path::Path;
use std::process::Command;

use program::{Outcome, cpkv, run};
use serde_json::Value;

const STRATEGIES: [&str; 6] =
    ["per_span", "fused_all_reduce", "gather_compact", "symm_dense", "staging_publish", "staging_fill"];
/// Batches of the thinned grid of `--quick`.
const NUM_QUICK: usize = 5;
const PARTS: [&str; 7] = ["barrier", "gather", "transfer", "plans", "compose", "lost", "left_out"];

/// A bench of two ranks in as little time as there is.
fn small(more: &[&str]) -> Outcome {
    run(cpkv().args(["bench", "--quick", "--model", "tiny", "--ranks", "2"]).args(more))
}

/// What `command` reports with `--json`, and with `more`: a bench in as little time as there is, and in four times as much on
/// a machine too busy to compose anything in that. Its figures are all there.
fn figures(
    command: impl Fn() -> Command,
    more: &[&str],
    num_ranks: u64,
    transport: &str,
) -> (Outcome, Value) {
    for (time, seconds) in [(&["--quick"][..], 15), (&["--seconds", "60"], 60)] {
        let mut command = command();
        let outcome = run(command.args(["bench", "--model", "tiny", "--json"]).args(time).args(more));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(outcome.stdout.trim_end().lines().count(), 1, "one object on one line");
        let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
        if seconds > 15 || report["compose"].as_array().is_none_or(|cases| !cases.is_empty()) {
            assert_eq!(report["seconds_asked"], seconds);
            expect_figures(&report, num_ranks, transport);
            return (outcome, report);
        }
        expect_no_time(&report);
    }
    unreachable!("the last one counts");
}

/// Nothing was composed, because the time did not suffice.
fn expect_no_time(report: &Value) {
    let left_out = report["left_out"].as_array().unwrap();
    let of_time = left_out.iter().filter(|left| {
        left["what"].as_str().unwrap().starts_with("composing")
            && left["why"].as_str().unwrap().contains("time")
    });
    assert_eq!(of_time.count(), NUM_QUICK, "{report}");
}

/// The run failed with `code`, said all of `words` on standard error, and nothing on standard output.
fn expect_error(outcome: &Outcome, code: i32, words: &[&str]) {
    assert_eq!((outcome.code, &*outcome.stdout), (Some(code), ""), "{outcome:?}");
    for word in words {
        assert!(outcome.stderr.contains(word), "no `{word}` in {outcome:?}");
    }
    assert!(!outcome.stderr.contains("panicked"), "{outcome:?}");
}

/// Every key that readers of the figures rely on.
fn expect_figures(report: &Value, num_ranks: u64, transport: &str) {
    for key in ["version", "date_utc", "default_strategy"] {
        assert!(report[key].is_string(), "{key}: {report}");
    }
    assert_eq!(report["seed"], 1);
    assert!(report["seconds_taken"].as_f64() > Some(0.0));
    let machine = &report["machine"];
    assert_eq!((&machine["ranks"], &machine["transport"]), (&num_ranks.into(), &transport.into()));
    assert!(machine["cpu"].is_string() && machine["cores"].as_u64() > Some(0));
    assert_eq!((&report["model"]["name"], &report["model"]["layers"]), (&"tiny".into(), &2.into()));
    let rows = |part: &str| report[part].as_array().unwrap_or_else(|| panic!("{part}: {report}"));
    assert!(PARTS.iter().all(|part| *part == "lost" || !rows(part).is_empty()), "{report}");
    for row in rows("barrier") {
        assert!(
            row["us_median"].as_f64() > Some(0.0) && row["us_p99"].as_f64() >= row["us_median"].as_f64(),
            "{row}"
        );
        let quantiles = row["quantiles_us"].as_array().unwrap();
        assert!(quantiles.len() > 10 && quantiles[0][0] == 0.0, "{row}");
    }
    for row in rows("gather").iter().chain(rows("transfer")) {
        for key in ["unit_bytes", "bytes", "samples"] {
            assert!(row[key].as_u64() > Some(0), "{key}: {row}");
        }
        for key in ["ms_median", "ms_p99", "gb_per_s", "memcpy_gb_per_s", "ratio_to_memcpy"] {
            assert!(row[key].as_f64() > Some(0.0), "{key}: {row}");
        }
    }
    for row in rows("plans") {
        for key in
            ["plan_us_median", "plan_us_p99", "ragged_us_median", "rebuild_us_median", "access_ns_median"]
        {
            assert!(row[key].as_f64() > Some(0.0), "{key}: {row}");
        }
    }
    for case in rows("compose") {
        assert!(case["rounds"].as_u64() >= Some(3), "{case}");
        assert_eq!(case["egress"].as_array().unwrap().len() as u64, num_ranks);
        let names: Vec<_> =
            case["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!((&names[..6], names[6]), (&STRATEGIES[..], "ideal"));
        for row in case["rows"].as_array().unwrap() {
            for key in ["ms_median", "ms_p99", "ratio_to_ideal"] {
                assert!(row[key].as_f64() > Some(0.0), "{key}: {row}");
            }
            let samples = row["samples"].as_u64();
            assert!(samples >= Some(3) && samples <= case["rounds"].as_u64(), "{row}");
            assert!(row["kind"] != "yardstick" || samples == case["rounds"].as_u64(), "{row}");
        }
    }
    for lost in rows("lost") {
        assert!(lost["ratio"].as_f64() >= Some(1.0), "{lost}");
    }
    assert!(rows("left_out").iter().all(|left| left["what"].is_string() && left["why"].is_string()));
    assert!(report["overlap"]["lanes"].as_array().unwrap().len() >= 3);
}

/// The text between `begin` and the `end` after it.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let start = text.find(begin).unwrap_or_else(|| panic!("no {begin}")) + begin.len();
    let len = text[start..].find(end).unwrap_or_else(|| panic!("no {end} after {begin}"));
    &text[start..start + len]
}

/// The page needs nothing else, holds the very JSON, and every number in its tables and plots is one of that.
fn expect_page(page: &str, report: &Value) {
    for word in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(word), "{word}");
    }
    let json = between(page, "<script type=\"application/json\" id=\"figures\">", "</script>");
    assert_eq!(serde_json::from_str::<Value>(json).unwrap(), *report);
    for part in ["compose", "egress", "barrier", "gather", "transfer", "overlap", "plans", "left_out"] {
        let section = between(page, &format!("<section id=\"{part}\">"), "</section>");
        assert!(part == "left_out" || (section.contains("<svg ") && section.contains("<table>")), "{part}");
    }
    let figures = page.match_indices(" data-path=\"").map(|(at, _)| {
        let element = &page[at..];
        let value = between(element, "data-value=\"", "\"").parse::<f64>().unwrap();
        (between(element, "data-path=\"", "\""), value)
    });
    let figures: Vec<_> = figures.collect();
    for (path, value) in &figures {
        let figure = report.pointer(path).and_then(Value::as_f64);
        assert_eq!(figure, Some(*value), "{path}");
    }
    // Every median of a strategy is in a table and in two plots at least.
    let num_rows: usize =
        report["compose"].as_array().unwrap().iter().map(|case| case["rows"].as_array().unwrap().len()).sum();
    let num_medians =
        figures.iter().filter(|(path, _)| path.ends_with("/ms_median") && path.starts_with("/compose"));
    assert!(num_medians.count() >= 2 * num_rows);
}

#[test]
fn json_and_page_hold_the_same_figures() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/report");
    let args = ["--ranks", "2", "--report", out.to_str().unwrap()];
    let (outcome, report) = figures(cpkv, &args, 2, "threads");
    let files: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["index.html"]);
    expect_page(&fs::read_to_string(out.join("index.html")).unwrap(), &report);
    assert!(outcome.stderr.contains("composing"), "{}", outcome.stderr);
}

#[test]
fn without_json_there_are_tables_and_what_was_not_measured() {
    let outcome = small(&[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let words = ["Barrier", "memcpy", "ms, median", "times ideal", "Not measured", "batches of the grid"];
    for word in words.iter().chain(&STRATEGIES) {
        assert!(outcome.stdout.contains(word), "{word}: {}", outcome.stdout);
    }
}

#[test]
fn time_that_does_not_suffice_leaves_batches_out_and_says_so() {
    let args = ["bench", "--seconds", "2", "--layers", "1", "--ranks", "2", "--json"];
    let outcome = run(cpkv().args(args));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let left_out = report["left_out"].as_array().unwrap();
    let of_time = left_out.iter().filter(|left| {
        left["what"].as_str().unwrap().starts_with("composing")
            && left["why"].as_str().unwrap().contains("time")
    });
    assert_eq!(of_time.count() + report["compose"].as_array().unwrap().len(), 10, "{report}");
    assert!(report["compose"].as_array().unwrap().len() < 10, "{report}");
}

#[test]
fn bad_arguments_are_refused_with_status_2() {
    for (args, words) in [
        (&["--ranks", "0"][..], &["group size 0", "1..=64"][..]),
        (&["--seconds", "1"], &["--seconds", "2..=86400"]),
        (&["--quick", "--seconds", "9"], &["--quick", "--seconds"]),
        (&["--model", "huge"], &["`huge`", "mla-fp8-78"]),
        (&["--layers", "0"], &["0 layers", "between 1 and 79"]),
        (&["--timeout", "0"], &["--timeout"]),
        (&["--report"], &["--report"]),
    ] {
        expect_error(&run(cpkv().arg("bench").args(args)), 2, words);
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_before_anything_is_measured() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("index.html")).unwrap();
    for path in [file.path(), folder.path(), Path::new("/proc/no")] {
        let outcome = small(&["--report", path.to_str().unwrap()]);
        expect_error(&outcome, 2, &["cannot write", path.to_str().unwrap(), "--report"]);
        assert!(!outcome.stderr.contains("measuring"), "{}", outcome.stderr);
    }
}

#[test]
fn help_says_what_is_measured() {
    let help = run(cpkv().args(["bench", "--help"]));
    assert_eq!((help.code, &*help.stderr), (Some(0), ""));
    for word in
        ["--seconds", "--quick", "--report", "--json", "ideal", "MPI_Allgatherv", "Exit status", "Examples"]
    {
        assert!(help.stdout.contains(word), "{word}: {}", help.stdout);
    }
}

#[cfg(feature = "mpi")]
mod under_mpirun {
    use super::{expect_page, figures, fs};
    use crate::program::cpkv_under_mpirun;

    #[test]
    fn mpis_barrier_and_collectives_stand_beside_ours() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().to_str().unwrap();
        let (_, report) = figures(|| cpkv_under_mpirun(3), &["--report", out], 3, "processes");
        let barriers = report["barrier"].as_array().unwrap().iter();
        let barriers: Vec<_> =
            barriers.map(|row| (row["name"].as_str().unwrap(), row["ranks"].as_u64().unwrap())).collect();
        assert_eq!(barriers, [("cpkv", 2), ("MPI_Barrier", 2), ("cpkv", 3), ("MPI_Barrier", 3)]);
        for case in report["compose"].as_array().unwrap() {
            let rows = case["rows"].as_array().unwrap();
            let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
            assert_eq!(names[6..], ["ideal", "memcpy", "mpi_allgatherv", "mpi_allreduce"]);
        }
        expect_page(&fs::read_to_string(folder.path().join("index.html")).unwrap(), &report);
    }
}
