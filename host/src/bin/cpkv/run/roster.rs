//! The requests of a run: in which batches they are computed, and the room their transfers need. Pure.

use std::collections::BTreeMap;

use cpkv::plan::RequestPages;
use cpkv::transfer::{RequestId, RequestRun};
use cpkv::units::PageId;
use cpkv::workload::PlannedBatch;

/// A request of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RosterRequest {
    /// Tokens of the whole prompt, computed in this run or not.
    pub(crate) prompt_tokens: u32,
    /// The batch of its first chunk.
    pub(crate) first_batch: usize,
    /// The batch of its last chunk in this run.
    pub(crate) last_batch: usize,
    /// Chunks in this run.
    pub(crate) num_chunks: u32,
    /// Pages of the pool that it hit before its first chunk.
    pub(crate) num_prefix: u32,
    /// By position: all pages that this run has of it in the end.
    pub(crate) pages: Vec<PageId>,
}

/// All requests of the run, and which of them each batch computes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    requests: Vec<RosterRequest>,
    /// By batch, by place in the batch: the request's number.
    batches: Vec<Vec<usize>>,
}

/// A request of a batch, as it is sent.
pub(crate) struct Member<'a> {
    pub(crate) request: &'a RosterRequest,
    /// What the batch has and computes of it.
    pub(crate) pages: &'a RequestPages,
    pub(crate) id: RequestId,
    pub(crate) page_size: u32,
}

impl Member<'_> {
    /// The pages that it had before the batch.
    pub(crate) fn prefix(&self) -> RequestRun {
        RequestRun::of_prefix(self.pages, self.page_size)
    }

    /// The pages that the batch computes.
    pub(crate) fn current(&self) -> RequestRun {
        RequestRun::of_current(self.pages, self.page_size)
    }
}

impl Roster {
    /// The roster of `batches`, in their order.
    pub(crate) fn of(batches: &[PlannedBatch]) -> Self {
        let mut roster = Self::default();
        let mut numbers = BTreeMap::new();
        for (batch_idx, planned) in batches.iter().enumerate() {
            let mut members = Vec::new();
            for (request, pages) in planned.requests.iter().zip(&planned.batch.requests) {
                let number = *numbers.entry(request.request_idx).or_insert_with(|| {
                    roster.requests.push(RosterRequest {
                        prompt_tokens: request.input_length,
                        first_batch: batch_idx,
                        last_batch: batch_idx,
                        num_chunks: 0,
                        num_prefix: pages.prefix_pages.len() as u32,
                        pages: Vec::new(),
                    });
                    roster.requests.len() - 1
                });
                members.push(number);
                if let Some(known) = roster.requests.get_mut(number) {
                    known.last_batch = batch_idx;
                    known.num_chunks += 1;
                    known.pages = [&pages.prefix_pages[..], &pages.current_pages].concat();
                }
            }
            roster.batches.push(members);
        }
        roster
    }

    /// All requests, by number.
    pub(crate) fn requests(&self) -> &[RosterRequest] {
        &self.requests
    }

    /// The requests of a batch, in its order, with their numbers.
    pub(crate) fn of_batch(&self, batch_idx: usize) -> impl Iterator<Item = (usize, &RosterRequest)> {
        let members = self.batches.get(batch_idx).map_or(&[][..], Vec::as_slice);
        members.iter().filter_map(|&number| Some((number, self.requests.get(number)?)))
    }

    /// Requests and pages that are being transferred at the same time, at most: those of `num_modes` ways, and beside the
    /// requests that go on from earlier batches those of a measurement of one batch.
    pub(crate) fn peak(&self, num_modes: usize) -> Peak {
        let of = |batch_idx: usize, wanted: &dyn Fn(&RosterRequest) -> bool| {
            let alive = self
                .requests
                .iter()
                .filter(|request| request.first_batch <= batch_idx && batch_idx <= request.last_batch);
            let mut peak = Peak::default();
            for request in alive.filter(|request| wanted(request)) {
                peak.num_requests += 1;
                peak.num_pages += request.pages.len();
            }
            peak
        };
        let at = |batch_idx: usize| {
            let all = of(batch_idx, &|_| true);
            let carried = of(batch_idx, &|request| request.first_batch < batch_idx);
            Peak {
                num_requests: (num_modes * all.num_requests)
                    .max(num_modes * carried.num_requests + all.num_requests),
                num_pages: (num_modes * all.num_pages).max(num_modes * carried.num_pages + all.num_pages),
            }
        };
        let peaks = (0..self.batches.len()).map(at);
        peaks.fold(Peak::default(), |peak, at| Peak {
            num_requests: peak.num_requests.max(at.num_requests),
            num_pages: peak.num_pages.max(at.num_pages),
        })
    }

    /// Batches of writes that a rank sends a worker for one request, at most: a layer once for each part of the request, and
    /// the small extra buffers.
    pub(crate) fn num_words(&self, num_layers: usize) -> u32 {
        let parts = self.requests.iter().map(|request| request.num_chunks + 1).max().unwrap_or(1);
        parts * num_layers as u32 + 1
    }
}

/// What is needed at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peak {
    pub(crate) num_requests: usize,
    pub(crate) num_pages: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpkv::plan::Batch;
    use cpkv::workload::BatchRequest;

    fn batch(batch_idx: u64, requests: &[(usize, &[i32], &[i32])]) -> PlannedBatch {
        let pages = |pages: &[i32]| pages.iter().copied().map(PageId).collect();
        PlannedBatch {
            batch_idx,
            batch: Batch {
                requests: requests
                    .iter()
                    .map(|(_, prefix, current)| RequestPages {
                        prefix_pages: pages(prefix),
                        current_pages: pages(current),
                        ..RequestPages::default()
                    })
                    .collect(),
                num_pad_slots: 0,
            },
            requests: requests
                .iter()
                .map(|&(request_idx, ..)| BatchRequest {
                    request_idx,
                    line: 1,
                    input_length: 100,
                    chunk_idx: 0,
                    is_last: true,
                })
                .collect(),
        }
    }

    /// Request 7 hits two pages and ends at once; request 9 is computed in three batches.
    fn roster() -> Roster {
        Roster::of(&[
            batch(0, &[(7, &[0, 1], &[2]), (9, &[], &[3, 4])]),
            batch(1, &[(9, &[3, 4], &[5])]),
            batch(2, &[(9, &[3, 4, 5], &[6]), (8, &[], &[7])]),
        ])
    }

    #[test]
    fn a_request_of_several_batches_is_one_with_all_its_pages() {
        let roster = roster();
        let [hit, chunked, last] = roster.requests() else { panic!("three requests") };
        assert_eq!((hit.num_prefix, hit.first_batch, hit.last_batch, hit.pages.len()), (2, 0, 0, 3));
        assert_eq!((chunked.num_prefix, chunked.first_batch, chunked.last_batch), (0, 0, 2));
        assert_eq!(chunked.pages, [3, 4, 5, 6].map(PageId));
        assert_eq!((last.first_batch, last.num_chunks), (2, 1));
        let of_last: Vec<_> = roster.of_batch(2).map(|(number, _)| number).collect();
        assert_eq!(of_last, [1, 2]);
    }

    #[test]
    fn there_is_room_for_all_ways_and_for_a_measurement_beside_what_goes_on() {
        let roster = roster();
        assert_eq!(roster.peak(2), Peak { num_requests: 4, num_pages: 14 });
        // In batch 2 the measurement has request 9 a second time.
        assert_eq!(roster.peak(1), Peak { num_requests: 3, num_pages: 9 });
        assert_eq!(roster.num_words(10), 4 * 10 + 1);
    }
}
