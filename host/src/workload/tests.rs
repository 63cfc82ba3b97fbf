//! What a workload does, request by request.

use std::collections::HashSet;
use std::path::Path;

use super::*;
use crate::units::PageId;

/// The sample trace of this repository.
pub(super) fn sample_trace() -> Vec<TraceRequest> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/sample_trace.jsonl");
    read_trace(Path::new(path)).unwrap()
}

/// A request with ids `hash_ids`, of which the last stands for `last_tokens` tokens.
pub(super) fn request(hash_ids: &[u64], last_tokens: u32) -> TraceRequest {
    TraceRequest {
        line: 1 + hash_ids[0],
        timestamp_ms: 0,
        input_length: (hash_ids.len() as u32 - 1) * HASH_BLOCK_TOKENS + last_tokens,
        output_length: 1,
        hash_ids: hash_ids.to_vec(),
    }
}

fn workload(requests: Vec<TraceRequest>, max_extend_tokens: u32, max_batch_requests: u32) -> Workload {
    let config = WorkloadConfig { max_extend_tokens, max_batch_requests, ..WorkloadConfig::new(64, 1_000) };
    Workload::new(requests, config).unwrap()
}

fn next(workload: &mut Workload) -> PlannedBatch {
    workload.next_batch().unwrap().unwrap()
}

/// (prefix tokens, new tokens) of each request of the next batch.
fn next_tokens(workload: &mut Workload) -> Vec<(u32, u32)> {
    let tokens = |request: &crate::plan::RequestPages| (request.prefix_tokens, request.new_tokens);
    next(workload).batch.requests.iter().map(tokens).collect()
}

#[test]
fn only_whole_parts_hit_and_only_those_of_earlier_batches() {
    let requests = [511, 511, 512, 1].map(|last| request(&[7, 8], last)).to_vec();
    let mut workload = workload(requests, 10_000, 2);
    assert_eq!(next_tokens(&mut workload), [(0, 1_023), (0, 1_023)]);
    assert_eq!(next_tokens(&mut workload), [(512, 512), (512, 1)]);
    assert!(workload.next_batch().unwrap().is_none());
}

#[test]
fn a_prompt_that_would_hit_in_full_computes_its_last_part_again() {
    let mut workload = workload(vec![request(&[1, 2, 3], 512); 2], 10_000, 1);
    assert_eq!(next_tokens(&mut workload), [(0, 1_536)]);
    assert_eq!(workload.pool_usage().num_used, 24);
    assert_eq!(next_tokens(&mut workload), [(1_024, 512)]);
    workload.complete();
    let usage = workload.pool_usage();
    assert_eq!((usage.num_used, usage.num_pinned), (24, 0), "the second copy is freed");
}

#[test]
fn the_same_id_after_another_predecessor_is_computed_again() {
    let mut workload = workload(vec![request(&[1, 2, 9], 1), request(&[3, 2, 9], 1)], 10_000, 1);
    assert_eq!(next_tokens(&mut workload), [(0, 1_025)]);
    assert_eq!(next_tokens(&mut workload), [(0, 1_025)]);
}

#[test]
fn one_copy_of_what_two_requests_of_a_batch_computed_is_kept() {
    let mut workload = workload(vec![request(&[1, 2], 100); 3], 10_000, 2);
    let first = next(&mut workload);
    assert_eq!(workload.pool_usage().num_pinned, 20);
    workload.complete();
    let usage = workload.pool_usage();
    assert_eq!((usage.num_used, usage.num_pinned), (8, 0));
    let second = next(&mut workload);
    assert_eq!(second.batch.requests[0].prefix_pages, first.batch.requests[0].current_pages[..8]);
}

#[test]
fn a_long_request_is_cut_at_page_boundaries_with_its_own_pages_as_prefix() {
    let mut workload = workload(vec![request(&[1], 200), request(&[2], 30)], 100, 12);
    let mut pages: Vec<PageId> = Vec::new();
    for (chunk_idx, expected) in [(0, 64), (64, 64)].into_iter().enumerate() {
        let planned = next(&mut workload);
        let [chunk] = &planned.batch.requests[..] else { panic!("a batch ends with a cut") };
        assert_eq!((chunk.prefix_tokens, chunk.new_tokens), expected);
        assert_eq!(chunk.prefix_pages, pages);
        assert_eq!((planned.requests[0].chunk_idx, planned.requests[0].is_last), (chunk_idx as u32, false));
        pages.extend(&chunk.current_pages);
    }
    let planned = next(&mut workload);
    assert_eq!(planned.batch.requests[0].prefix_pages, pages);
    assert_eq!(planned.batch.requests.iter().map(|r| r.new_tokens).collect::<Vec<_>>(), [72]);
    assert_eq!((planned.requests[0].chunk_idx, planned.requests[0].is_last), (2, true));
    assert_eq!(next_tokens(&mut workload), [(0, 30)]);
}

#[test]
fn chunks_of_a_running_request_hit_for_others() {
    let mut workload = workload(vec![request(&[1, 2, 3], 400), request(&[1, 2, 3], 300)], 1_100, 12);
    assert_eq!(next_tokens(&mut workload), [(0, 1_088)]);
    assert_eq!(next_tokens(&mut workload), [(1_088, 336), (1_024, 300)]);
}

#[test]
fn a_running_request_keeps_its_own_copy_of_what_another_cached_first() {
    let requests = vec![request(&[1], 512), request(&[1, 2, 3], 100), request(&[1, 2, 3], 100)];
    let mut workload = workload(requests, 1_280, 12);
    let first = next(&mut workload);
    let cut = &first.batch.requests[1];
    assert_eq!((cut.prefix_tokens, cut.new_tokens), (0, 768));
    let second = next(&mut workload);
    assert_eq!(second.batch.requests[0].prefix_pages, cut.current_pages);
    let own = second.batch.requests[0].current_pages.len() as u32 + 12;
    assert_eq!(second.batch.requests[1].prefix_pages, first.batch.requests[0].current_pages);
    let third_request = second.batch.requests[1].current_pages.len() as u32;
    assert_eq!(workload.pool_usage().num_pinned, own + third_request + 8);
    workload.complete();
    let usage = workload.pool_usage();
    assert_eq!((usage.num_used, usage.num_pinned), (16, 0), "ids 1 and 2, once each");
}

#[test]
fn a_batch_ends_early_where_the_pool_is_full_and_the_next_one_goes_on() {
    let requests: Vec<_> = (0..4).map(|id| request(&[id, id], 100)).collect();
    let mut workload = Workload::new(requests, WorkloadConfig::new(64, 25)).unwrap();
    assert_eq!(next(&mut workload).batch.requests.len(), 2);
    assert_eq!(next(&mut workload).batch.requests.len(), 2);
    assert_eq!(workload.pool_usage().num_evicted, 16);
    assert!(workload.next_batch().unwrap().is_none());
}

#[test]
fn a_request_larger_than_the_pool_is_refused_with_the_remedy_every_time() {
    let mut workload = Workload::new(vec![request(&[4, 5], 1)], WorkloadConfig::new(64, 8)).unwrap();
    let error = workload.next_batch().unwrap_err();
    let text = error.to_string();
    for part in ["trace line 5", "9 pages are needed", "8 of the pool's 8", "--pool-pages"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(workload.next_batch().unwrap_err(), error);
}

#[test]
fn a_request_that_makes_no_sense_is_refused_with_its_line() {
    let mut wrong = request(&[1, 2], 512);
    wrong.hash_ids.pop();
    let error = Workload::new(vec![request(&[0], 1), wrong], WorkloadConfig::new(64, 8)).unwrap_err();
    assert!(error.to_string().contains("line 2") && error.to_string().contains("must be 2"), "{error}");
}

#[test]
fn a_workload_of_nothing_has_no_batch() {
    assert_eq!(workload(Vec::new(), 100, 1).next_batch(), Ok(None));
}

#[test]
fn the_sample_trace_gives_default_batches_with_hits_from_the_second_on() {
    let requests = sample_trace();
    let lengths: HashSet<u32> = requests.iter().map(|request| request.input_length).collect();
    assert!([1, 63, 64, 65, 511, 512, 513, 4_097].iter().all(|length| lengths.contains(length)));
    let mut workload = Workload::new(requests, WorkloadConfig::new(64, 10_000)).unwrap();
    let batches: Vec<_> = std::iter::from_fn(|| workload.next_batch().unwrap()).collect();
    assert!(batches.len() >= 3);
    assert_eq!(batches[0].batch.prefix_tokens(), 0);
    assert!(batches[1..].iter().all(|planned| planned.batch.prefix_tokens() > 0));
    assert!(batches.iter().all(|planned| planned.batch.new_tokens() <= 44_600));
    assert!(batches.iter().flat_map(|planned| &planned.requests).any(|request| request.chunk_idx > 0));
}

#[test]
fn the_default_pool_is_large_enough_for_hits_and_small_enough_for_evictions() {
    for (page_size, num_batches) in [(64, 3), (4, 3), (64, 100)] {
        let config = WorkloadConfig::new(page_size, 1);
        let num_pool_pages = default_pool_pages(&sample_trace(), config, num_batches).unwrap();
        let config = WorkloadConfig { num_pool_pages, ..config };
        let mut workload = Workload::new(sample_trace(), config).unwrap();
        let mut prefix_tokens = 0;
        for _ in 0..num_batches {
            prefix_tokens +=
                workload.next_batch().unwrap().map_or(0, |planned| planned.batch.prefix_tokens());
        }
        assert!(prefix_tokens > 0 && workload.pool_usage().num_evicted > 0, "{num_pool_pages} pages");
    }
}

#[test]
fn the_default_pool_of_nothing_has_a_page() {
    assert_eq!(default_pool_pages(&[], WorkloadConfig::new(64, 1), 3), Ok(1));
    assert_eq!(default_pool_pages(&sample_trace(), WorkloadConfig::new(64, 1), 0), Ok(1));
}
