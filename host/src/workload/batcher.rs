//! Turns requests into batches, first in, first out, under the admission limits.

use std::sync::Arc;

use super::config::WorkloadConfig;
use super::error::WorkloadError;
use super::page_pool::PagePool;
use super::prefix_cache::PrefixCache;
use super::running::RunningRequest;
use super::trace::TraceRequest;
use crate::plan::Batch;

/// What a request of a batch is, beside its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRequest {
    /// Position in the list the workload was made of.
    pub request_idx: usize,
    /// Line in the trace, from 1.
    pub line: u64,
    /// Tokens of the whole prompt.
    pub input_length: u32,
    /// Which chunk of the request this is, from 0.
    pub chunk_idx: u32,
    /// Whether this is the request's last chunk, or its only one.
    pub is_last: bool,
}

/// A batch and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedBatch {
    /// The batch's number, from 0.
    pub batch_idx: u64,
    /// Pages and token counts, by request. Every prefix ends on a page boundary; no padding slots.
    pub batch: Batch,
    /// `[batch.requests.len()]` the requests, in the same order.
    pub requests: Vec<BatchRequest>,
}

/// How full the pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// Pages of the pool.
    pub num_pages: u32,
    /// Pages that hold something: cached, or of a running request.
    pub num_used: u32,
    /// Of these, pages that running requests pin.
    pub num_pinned: u32,
    /// Pages that were evicted from the cache, from the beginning.
    pub num_evicted: u64,
}

/// Requests on their way through a pool. Deterministic: ranks that make the same calls get the same batches.
#[derive(Clone, Debug)]
pub struct Workload {
    config: WorkloadConfig,
    requests: Arc<[TraceRequest]>,
    /// The first request that has not started.
    next_request: usize,
    /// The request that was cut: first of the next batch.
    carried: Option<RunningRequest>,
    /// The requests of the batch that is being computed.
    in_flight: Vec<RunningRequest>,
    num_batches: u64,
    cache: PrefixCache,
    pool: PagePool,
}

impl Workload {
    /// A workload of `requests`, in their order, over an empty pool.
    ///
    /// # Errors
    /// [`WorkloadError::Request`] for a request that [`TraceRequest::check`] refuses; otherwise as
    /// [`WorkloadConfig::check`].
    pub fn new(
        requests: impl Into<Arc<[TraceRequest]>>,
        config: WorkloadConfig,
    ) -> Result<Self, WorkloadError> {
        config.check()?;
        let requests = requests.into();
        for request in requests.iter() {
            let refused = |problem| WorkloadError::Request { line: request.line, problem };
            request.check().map_err(refused)?;
        }
        Ok(Self {
            config,
            requests,
            next_request: 0,
            carried: None,
            in_flight: Vec::new(),
            num_batches: 0,
            cache: PrefixCache::default(),
            pool: PagePool::new(config.num_pool_pages),
        })
    }

    /// The limits and the pool's size.
    pub const fn config(&self) -> &WorkloadConfig {
        &self.config
    }

    /// The next batch; none once every request is computed. Calls [`Workload::complete`] first, so the batch
    /// before must be persisted.
    ///
    /// A request that does not fit what is left of `max_extend_tokens` is cut at a page boundary and goes on
    /// in the next batch, with its earlier chunks as prefix; a batch ends with a cut. A batch ends early
    /// where the pool has no room for another request.
    ///
    /// # Errors
    /// [`WorkloadError::Pool`] where a request does not fit the pool even alone. Nothing is lost or
    /// planned, so another call gives the same error.
    pub fn next_batch(&mut self) -> Result<Option<PlannedBatch>, WorkloadError> {
        self.complete();
        let mut left = self.config.max_extend_tokens;
        while self.in_flight.len() < self.config.max_batch_requests as usize {
            let Some(request) = self.next_waiting() else { break };
            let Some(request) = self.admit(request, left)? else { break };
            left -= request.new_tokens;
            let cut = !request.is_last();
            self.in_flight.push(request);
            if cut {
                break;
            }
        }
        if self.in_flight.is_empty() {
            return Ok(None);
        }
        let page_size = self.config.page_size;
        let requests = self.in_flight.iter().map(|request| request.request_pages(page_size)).collect();
        let planned = PlannedBatch {
            batch_idx: self.num_batches,
            batch: Batch { requests, num_pad_slots: 0 },
            requests: self.in_flight.iter().map(BatchRequest::of).collect(),
        };
        self.num_batches += 1;
        Ok(Some(planned))
    }

    /// The last batch is computed and persisted, and nothing reads the pages of its finished requests any
    /// more. Its whole 512-token parts become hits, its finished requests free their other pages and drop
    /// their pins. Does nothing where no batch is being computed.
    pub fn complete(&mut self) {
        let batch_idx = self.num_batches;
        for request in std::mem::take(&mut self.in_flight) {
            let unfinished = request.settle(&self.config, &mut self.cache, &mut self.pool, batch_idx);
            debug_assert!(unfinished.is_none() || self.carried.is_none(), "one request is cut at a time");
            self.carried = unfinished.or(self.carried.take());
        }
    }

    /// How full the pool is now; pages of a batch that is not complete count as pinned.
    pub fn pool_usage(&self) -> PoolUsage {
        let num_used = self.pool.num_used();
        PoolUsage {
            num_pages: self.pool.num_pages(),
            num_used,
            num_pinned: num_used - self.cache.num_evictable_pages(),
            num_evicted: self.pool.num_evicted(),
        }
    }

    /// The request whose turn it is, pinned.
    fn next_waiting(&mut self) -> Option<RunningRequest> {
        if let Some(carried) = self.carried.take() {
            return Some(carried);
        }
        let request = self.requests.get(self.next_request)?;
        let started = RunningRequest::start(self.next_request, request, &mut self.cache, self.num_batches);
        self.next_request += 1;
        Some(started)
    }

    /// Gives `request` a chunk of at most `max_tokens`. None where the batch is to end before it.
    fn admit(
        &mut self,
        mut request: RunningRequest,
        max_tokens: u32,
    ) -> Result<Option<RunningRequest>, WorkloadError> {
        let page_size = self.config.page_size;
        let new_tokens = request.next_chunk_tokens(max_tokens, page_size);
        if new_tokens == 0 {
            self.put_back(request);
            return Ok(None);
        }
        match self.pool.allocate(new_tokens.div_ceil(page_size), &mut self.cache) {
            Ok(pages) => {
                request.extend(new_tokens, pages);
                Ok(Some(request))
            }
            Err(_) if !self.in_flight.is_empty() => {
                self.put_back(request);
                Ok(None)
            }
            Err(problem) => {
                let refused = WorkloadError::Pool {
                    batch_idx: self.num_batches,
                    line: request.line,
                    num_request_pages: request.input_length.div_ceil(page_size),
                    problem,
                };
                self.put_back(request);
                Err(refused)
            }
        }
    }

    /// The request's turn comes again in the next batch. One that has no chunk yet gives up its hits, to
    /// find longer ones then.
    fn put_back(&mut self, request: RunningRequest) {
        if request.chunk_idx > 0 {
            self.carried = Some(request);
        } else {
            self.next_request = request.request_idx;
            request.cancel(&mut self.cache, self.num_batches);
        }
    }
}

impl BatchRequest {
    const fn of(request: &RunningRequest) -> Self {
        Self {
            request_idx: request.request_idx,
            line: request.line,
            input_length: request.input_length,
            chunk_idx: request.chunk_idx,
            is_last: request.is_last(),
        }
    }
}
