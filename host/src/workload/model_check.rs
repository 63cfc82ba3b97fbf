//! Random traces against a plain model: which tokens every page of the pool holds.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::tests::request;
use super::*;
use crate::units::PageId;

/// What a page holds: the hash ids up to and including its own part, and its place in that part.
type Content = (Vec<u64>, usize);

/// Follows a workload, checks each batch, and remembers what it wrote.
struct Model {
    requests: Vec<TraceRequest>,
    config: WorkloadConfig,
    pool: HashMap<PageId, Content>,
    /// Per request, the pages of its chunks so far (its hits too), and how many tokens are done.
    progress: Vec<(Vec<PageId>, u32)>,
    /// What earlier batches computed.
    computed: HashSet<Vec<u64>>,
}

impl Model {
    fn new(requests: Vec<TraceRequest>, config: WorkloadConfig) -> Self {
        let progress = vec![(Vec::new(), 0); requests.len()];
        Self { requests, config, pool: HashMap::new(), progress, computed: HashSet::new() }
    }

    /// What page `page_idx` of request `request_idx` has to hold.
    fn content(&self, request_idx: usize, page_idx: usize) -> Content {
        let pages_per_id = self.config.pages_per_hash_block();
        let ids = &self.requests[request_idx].hash_ids[..=page_idx / pages_per_id];
        (ids.to_vec(), page_idx % pages_per_id)
    }

    /// Tokens of a request that earlier batches computed, the last part given back where that is all.
    fn longest_hit(&self, request_idx: usize) -> u32 {
        let request = &self.requests[request_idx];
        let ids = request.full_hash_ids();
        let num_hits = (1..=ids.len()).take_while(|&num| self.computed.contains(&ids[..num])).count() as u32;
        num_hits.min((request.input_length - 1) / HASH_BLOCK_TOKENS) * HASH_BLOCK_TOKENS
    }

    /// Checks a batch against everything before it, then writes its pages.
    fn follow(&mut self, planned: &PlannedBatch, usage: PoolUsage) {
        let page_size = self.config.page_size;
        let requests = || planned.batch.requests.iter().zip(&planned.requests);
        assert_eq!(planned.batch.requests.len(), planned.requests.len());
        assert!((1..=self.config.max_batch_requests as usize).contains(&planned.requests.len()));
        assert!(planned.batch.new_tokens() <= u64::from(self.config.max_extend_tokens));
        assert!(planned.requests.is_sorted_by(|a, b| a.request_idx < b.request_idx), "first in, first out");

        let prefix: HashSet<PageId> = requests().flat_map(|(pages, _)| pages.prefix_pages.clone()).collect();
        let mut current = HashSet::new();
        for (pages, of) in requests() {
            let (done_pages, done_tokens) = &self.progress[of.request_idx];
            let end = pages.prefix_tokens + pages.new_tokens;
            assert!(pages.new_tokens >= 1 && pages.prefix_tokens.is_multiple_of(page_size));
            assert_eq!(pages.prefix_pages.len() as u32, pages.prefix_tokens / page_size);
            assert_eq!(pages.current_pages.len() as u32, pages.new_tokens.div_ceil(page_size));
            assert_eq!(of.is_last, end == of.input_length);
            assert!(of.is_last || end.is_multiple_of(page_size), "a chunk ends on a page boundary");
            if of.chunk_idx == 0 {
                assert_eq!(*done_tokens, 0, "computed once");
                assert!(pages.prefix_tokens.is_multiple_of(HASH_BLOCK_TOKENS), "parts hit as a whole");
                assert!(pages.prefix_tokens <= self.longest_hit(of.request_idx));
            } else {
                assert_eq!(pages.prefix_tokens, *done_tokens, "no token left out, none computed twice");
                assert_eq!(pages.prefix_pages, *done_pages, "pinned between chunks");
            }
            for (page_idx, page) in pages.prefix_pages.iter().enumerate() {
                assert_eq!(self.pool.get(page), Some(&self.content(of.request_idx, page_idx)));
            }
            for &page in &pages.current_pages {
                assert!((0..self.config.num_pool_pages as i32).contains(&page.0));
                assert!(current.insert(page), "page {page} is current twice");
                assert!(!prefix.contains(&page), "page {page} is current and prefix");
            }
        }
        let cuts = planned.requests.iter().rev().skip(1).filter(|of| !of.is_last).count();
        assert_eq!(cuts, 0, "only the last request of a batch is cut");
        assert_eq!(usage.num_pinned as usize, prefix.len() + current.len());

        for (pages, of) in requests() {
            for (page_idx, &page) in (pages.prefix_pages.len()..).zip(&pages.current_pages) {
                self.pool.insert(page, self.content(of.request_idx, page_idx));
            }
            let end = pages.prefix_tokens + pages.new_tokens;
            for num_ids in 1..=(end / HASH_BLOCK_TOKENS) as usize {
                self.computed.insert(self.requests[of.request_idx].hash_ids[..num_ids].to_vec());
            }
            let all_pages = [&pages.prefix_pages[..], &pages.current_pages[..]].concat();
            self.progress[of.request_idx] = (all_pages, end);
        }
    }

    /// Every request is computed from its first token to its last.
    fn check_all_done(&self) {
        for (request, (_, done)) in self.requests.iter().zip(&self.progress) {
            assert_eq!(*done, request.input_length);
        }
    }
}

/// Up to 30 prompts over few ids, so that chains meet, part, and name the same id after different ones.
fn traces() -> impl Strategy<Value = Vec<TraceRequest>> {
    let last_tokens = prop_oneof![1u32..=512, Just(512), Just(511), Just(64), Just(1)];
    let one = (prop::collection::vec(0u64..3, 1..6), last_tokens);
    prop::collection::vec(one.prop_map(|(ids, last)| request(&ids, last)), 1..30)
}

fn page_sizes() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![4u32, 16, 64, 512])
}

/// Pages of the largest request.
fn num_pages_of_largest(requests: &[TraceRequest], page_size: u32) -> u32 {
    requests.iter().map(|request| request.input_length.div_ceil(page_size)).max().unwrap()
}

fn run(workload: &mut Workload, model: &mut Model) {
    while let Some(planned) = workload.next_batch().unwrap() {
        model.follow(&planned, workload.pool_usage());
    }
    model.check_all_done();
    let usage = workload.pool_usage();
    assert_eq!(usage.num_pinned, 0, "finished requests release their pins");
    let num_whole = u32::try_from(model.computed.len() * model.config.pages_per_hash_block()).unwrap();
    assert!(usage.num_used <= num_whole, "one copy of what is cached, and nothing else, stays");
}

proptest! {
    #[test]
    fn any_trace_runs_through_any_pool_that_holds_its_largest_request(
        requests in traces(),
        page_size in page_sizes(),
        extra_tokens in 0u32..4_000,
        max_batch_requests in 1u32..6,
        extra_pool_tokens in 0u32..6_000,
    ) {
        let config = WorkloadConfig {
            page_size,
            num_pool_pages: num_pages_of_largest(&requests, page_size) + extra_pool_tokens / page_size,
            max_extend_tokens: page_size + extra_tokens,
            max_batch_requests,
        };
        let mut workload = Workload::new(requests.clone(), config).unwrap();
        run(&mut workload, &mut Model::new(requests, config));
    }

    #[test]
    fn with_room_for_everything_hits_are_the_longest_chains_computed_before(
        requests in traces(),
        page_size in page_sizes(),
        max_batch_requests in 1u32..6,
    ) {
        let config = WorkloadConfig {
            page_size,
            num_pool_pages: MAX_POOL_PAGES,
            max_extend_tokens: u32::MAX,
            max_batch_requests,
        };
        let mut workload = Workload::new(requests.clone(), config).unwrap();
        let mut model = Model::new(requests, config);
        while let Some(planned) = workload.next_batch().unwrap() {
            for (pages, of) in planned.batch.requests.iter().zip(&planned.requests) {
                prop_assert_eq!(pages.prefix_tokens, model.longest_hit(of.request_idx));
            }
            model.follow(&planned, workload.pool_usage());
        }
        model.check_all_done();
        let usage = workload.pool_usage();
        prop_assert_eq!(usage.num_used as usize, model.computed.len() * config.pages_per_hash_block());
        prop_assert_eq!(usage.num_evicted, 0);
    }

    #[test]
    fn every_rank_plans_the_same_batches(requests in traces(), extra_tokens in 0u32..2_000) {
        let num_pool_pages = num_pages_of_largest(&requests, 64) + 7;
        let max_extend_tokens = 64 + extra_tokens;
        let config = WorkloadConfig { max_extend_tokens, ..WorkloadConfig::new(64, num_pool_pages) };
        let mut ranks = [0, 1].map(|_| Workload::new(requests.clone(), config).unwrap());
        loop {
            let [first, second] = ranks.each_mut().map(|rank| rank.next_batch().unwrap());
            prop_assert_eq!(&first, &second);
            if first.is_none() {
                break;
            }
            ranks[0].complete();
        }
    }

    #[test]
    fn the_default_pool_fits_the_batches_it_was_chosen_for(
        requests in traces(),
        page_size in page_sizes(),
        extra_tokens in 0u32..4_000,
        num_batches in 1usize..8,
    ) {
        let max_extend_tokens = page_size + extra_tokens;
        let config = WorkloadConfig { max_extend_tokens, ..WorkloadConfig::new(page_size, 1) };
        let num_pool_pages = default_pool_pages(&requests, config, num_batches).unwrap();
        let mut workload = Workload::new(requests, WorkloadConfig { num_pool_pages, ..config }).unwrap();
        for _ in 0..num_batches {
            prop_assert!(workload.next_batch().is_ok());
        }
    }
}

#[test]
fn the_sample_trace_runs_through_its_default_pool() {
    let requests = super::tests::sample_trace();
    let config = WorkloadConfig::new(64, 1);
    let num_pool_pages = default_pool_pages(&requests, config, usize::MAX).unwrap();
    let config = WorkloadConfig { num_pool_pages, ..config };
    let mut workload = Workload::new(requests.clone(), config).unwrap();
    run(&mut workload, &mut Model::new(requests, config));
}
