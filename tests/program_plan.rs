//! `cpkv plan` from outside: a batch as text, as JSON and as a picture.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/program.rs"]
mod program;

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

use program::{Outcome, SAMPLE, cpkv, run};
use serde_json::Value;
use svg::node::element::tag::Type;
use svg::parser::Event;

const RANKS: u64 = 4;

/// The second batch of the sample trace: its first request is a later chunk, on the pages of the batch before.
const SECOND: [&str; 11] = [
    "plan",
    "--trace",
    SAMPLE,
    "--model",
    "tiny",
    "--ranks",
    "4",
    "--max-extend-tokens",
    "1500",
    "--batch",
    "1",
];

fn second(more: &[&str]) -> Outcome {
    let outcome = run(cpkv().args(SECOND).args(more));
    assert_eq!((outcome.code, &*outcome.stderr), (Some(0), ""), "{outcome:?}");
    outcome
}

fn json(more: &[&str]) -> Value {
    let outcome = second(&[&["--json"], more].concat());
    assert_eq!(outcome.stdout.trim_end().lines().count(), 1, "one object on one line");
    serde_json::from_str(&outcome.stdout).unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value}"))
}

fn sum(values: &[Value], key: &str) -> u64 {
    values.iter().map(|value| number(value, key)).sum()
}

#[test]
fn json_tells_every_page_its_owner_and_its_writer() {
    let plan = json(&[]);
    assert_eq!(
        (number(&plan, "batch"), number(&plan, "group_size"), number(&plan, "page_size")),
        (1, RANKS, 4)
    );
    assert_eq!(plan["strategy"], "staging_fill");
    let (requests, ranks) = (list(&plan, "requests"), list(&plan, "ranks"));
    let (mut next_slot, mut next_staging) = (0, 0);
    let mut computed = BTreeMap::new();
    for request in requests {
        let (dense, staging) = (&request["dense_slots"], &request["staging_slots"]);
        assert_eq!((number(dense, "start"), number(staging, "start")), (next_slot, next_staging));
        (next_slot, next_staging) = (number(dense, "end"), number(staging, "end"));
        let pages = list(request, "pages");
        assert_eq!(pages.len() as u64, next_slot - number(dense, "start"));
        let (prefix, current) = pages.split_at(number(request, "prefix_pages") as usize);
        assert!(prefix.iter().all(|page| page["writer"].is_null()));
        assert_eq!(prefix.len() as u64, number(request, "prefix_tokens") / 4);
        for page in current {
            *computed.entry(number(page, "writer")).or_insert(0) += 1;
        }
        assert!(pages.iter().all(|page| number(page, "owner") == number(page, "page") % RANKS));
    }
    assert_eq!((next_slot, next_staging), (number(&plan, "dense_slots"), number(&plan, "staging_slots")));
    assert!(number(&plan, "staging_capacity") >= next_staging);
    assert!(requests.iter().any(|request| number(request, "chunk") > 0), "a later chunk");
    // The last request is cut at a page: two tokens are left over.
    assert_eq!((sum(requests, "new_tokens"), sum(ranks, "rows")), (1498, 1498));
    assert_eq!(ranks.len() as u64, RANKS);
    for rank in ranks {
        assert_eq!(Some(&number(rank, "computed_pages")), computed.get(&number(rank, "rank")));
        let filled: u64 =
            list(rank, "staging_slots").iter().map(|run| number(run, "end") - number(run, "start")).sum();
        assert_eq!(filled, number(rank, "computed_pages"));
        // Each of three peers reads what it owns of the prefix and what it computes.
        let served = number(rank, "owned_prefix_pages") + number(rank, "computed_pages");
        assert_eq!(number(rank, "egress_pages"), 3 * served);
        let sections = list(rank, "sections");
        assert_eq!(sum(sections, "q_len"), number(rank, "rows"));
        assert!(sections.iter().all(|section| {
            number(section, "kv_len") == number(section, "q_start") + number(section, "q_len")
        }));
    }
    let owned = sum(ranks, "owned_prefix_pages") + sum(ranks, "owned_current_pages");
    assert_eq!(owned, next_slot);
    assert!(plan["egress_skew"].as_f64() >= Some(1.0));
}

#[test]
fn text_shows_requests_ranks_and_each_page_as_a_digit() {
    let (text, plan) = (second(&[]).stdout, json(&[]));
    let words =
        ["batch 1", "1498 new", "4 ranks", "model tiny", "staging_fill", "cpkv doctor", "egress", "segments"];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    let (_, strips) = text.split_once("pages by dense slot").unwrap();
    let digits = |strips: &str| strips.chars().filter(|digit| ('0'..='3').contains(digit)).count() as u64;
    // Before the strips stand numbers of requests.
    let pages: String = strips.lines().skip(1).filter_map(|line| line.get(20..)).collect();
    // Current pages are shown by writer and by owner.
    assert_eq!(digits(&pages), number(&plan, "dense_slots") + number(&plan, "staging_slots"));
    assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
}

/// Counts the elements of `document` by class, after a look at its structure.
fn classes(document: &str) -> BTreeMap<String, u64> {
    let mut open = Vec::new();
    let mut classes = BTreeMap::new();
    for event in svg::read(document).unwrap() {
        let (name, kind, attributes) = match event {
            Event::Tag(name, kind, attributes) => (name, kind, attributes),
            Event::Error(error) => panic!("{error}"),
            _ => continue,
        };
        match kind {
            Type::Start => open.push(name),
            Type::End => assert_eq!(open.pop(), Some(name)),
            Type::Empty => {}
        }
        if !matches!(kind, Type::End)
            && let Some(class) = attributes.get("class")
        {
            let first = class.split(' ').next().unwrap();
            *classes.entry(first.to_owned()).or_insert(0) += 1;
        }
    }
    assert_eq!(open, Vec::<&str>::new());
    classes
}

fn picture(more: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch.svg");
    second(&[&["--svg", path.to_str().unwrap()], more].concat());
    fs::read_to_string(path).unwrap()
}

#[test]
fn the_picture_has_a_cell_for_every_page() {
    let (picture, plan) = (picture(&[]), json(&[]));
    let classes = classes(&picture);
    assert_eq!(classes["cell"], number(&plan, "dense_slots"));
    assert_eq!(classes["staging"], number(&plan, "staging_slots"));
    for word in ["prefers-color-scheme", "Dense slots", "Staging slots", "rank 3: computes", "owned by rank"]
    {
        assert!(picture.contains(word), "{word}");
    }
    // Self-contained: the name space is the only address.
    assert_eq!(picture.matches("http").count(), 1);
}

#[test]
fn of_thousands_of_pages_runs_are_drawn() {
    // All requests but a few in one batch.
    let more = ["--max-extend-tokens", "100000", "--max-batch-requests", "64", "--batch", "0"];
    let args: Vec<_> = SECOND[..7].iter().copied().chain(more).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch.svg");
    let outcome = run(cpkv().args(args).args(["--json", "--svg"]).arg(&path));
    let plan: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{outcome:?}"));
    assert!(number(&plan, "dense_slots") > 4000, "{}", plan["dense_slots"]);
    let runs: u64 = list(&plan, "requests")
        .iter()
        .map(|request| {
            u64::from(number(request, "prefix_pages") > 0) + list(request, "segments").len() as u64
        })
        .sum();
    let classes = classes(&fs::read_to_string(path).unwrap());
    assert_eq!(classes["cell"], runs);
}

#[test]
fn a_batch_that_the_trace_does_not_have_is_refused_with_their_number() {
    let mut args = SECOND;
    args[10] = "1000";
    let outcome = run(cpkv().args(args));
    assert_eq!((outcome.code, &*outcome.stdout), (Some(2), ""), "{outcome:?}");
    let num_batches: u32 = outcome
        .stderr
        .split_once("the trace has ")
        .and_then(|(_, rest)| rest.split(',').next()?.parse().ok())
        .unwrap_or_else(|| panic!("{outcome:?}"));
    // In a pool for fewer batches a cached page may be gone, so these need not be the same: but there they are.
    for (batch, code) in [(num_batches - 1, 0), (num_batches, 2)] {
        let outcome = run(cpkv().args(&args[..10]).arg(batch.to_string()));
        assert_eq!(outcome.code, Some(code), "batch {batch} of {num_batches}");
    }
}

#[test]
fn what_cannot_be_planned_or_written_is_refused() {
    for (more, words) in [
        (["--ranks", "65"], ["group size 65", "1..=64"]),
        (["--model", "huge"], ["`huge`", "tiny"]),
        (["--pool-pages", "3"], ["3 of the pool's 3", "--pool-pages"]),
        (["--svg", "/no/such/folder/batch.svg"], ["/no/such/folder/batch.svg", "No such file"]),
    ] {
        // An option may be given once.
        let kept = SECOND[1..].chunks(2).filter(|pair| pair[0] != more[0]).flatten();
        let outcome = run(cpkv().arg("plan").args(kept).args(more));
        assert_eq!((outcome.code, &*outcome.stdout), (Some(2), ""), "{outcome:?}");
        assert!(words.iter().all(|word| outcome.stderr.contains(word)), "{outcome:?}");
    }
}

#[test]
fn a_staging_that_is_too_small_is_shown_and_not_hidden() {
    let outcome = run(cpkv().env("CPKV_SYMM_HEAP_MB", "0").args(SECOND));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome.stdout.contains("of 0 staging slots") && outcome.stdout.contains("DOES NOT FIT"),
        "{outcome:?}"
    );
    let outcome = run(cpkv().env("CPKV_SYMM_HEAP_MB", "64MB").args(SECOND));
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
}

#[test]
fn a_reader_that_has_gone_is_no_fault() {
    let mut command = cpkv();
    command.args(["plan", "--trace", SAMPLE, "--model", "tiny", "--ranks", "4", "--batch", "0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(141), ""));
}

#[test]
fn a_picture_does_not_go_where_the_trace_is() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    fs::copy(SAMPLE, &trace).unwrap();
    let path = trace.to_str().unwrap();
    let outcome =
        run(cpkv().args(["plan", "--trace", path, "--model", "tiny", "--batch", "0", "--svg", path]));
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert_eq!(fs::read(&trace).unwrap(), fs::read(SAMPLE).unwrap());
}
