//! What a decode worker is told.

use super::WorkerError;
use super::placement::{MAX_PAGES, Placement};
use crate::units::{GroupSize, Rank};

/// What a decode worker is told. All but `worker` is the same in all workers of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeOptions {
    /// This worker: `0 <= worker < num_workers`.
    pub worker: Rank,
    /// Workers of the decode group.
    pub num_workers: GroupSize,
    /// Pages of the whole group, at least one; rounded up to equally many a worker. Page `q` lies in worker `q mod W`, at
    /// place `q div W`.
    pub num_pages: u32,
    /// Ranks of the prefill groups that it receives from.
    pub prefill_group_size: GroupSize,
    /// Requests that may be received, or drain, at the same time.
    pub num_inboxes: u32,
    /// Batches that one prefill rank may send one worker for one request, at most: one for each layer of each part (the cached
    /// prefix, and every chunk), and one for aux blocks. `num_layers * (num_chunks + 1) + 1` is always enough.
    pub num_words: u32,
}

impl DecodeOptions {
    pub(super) const fn placement(&self) -> Placement {
        Placement::new(self.num_workers, self.num_pages)
    }

    pub(super) fn check(&self) -> Result<(), WorkerError> {
        let worker = self.worker;
        let refuse = |field, expected, got| Err(WorkerError::Options { worker, field, expected, got });
        if worker.0 >= self.num_workers.get() {
            return refuse("worker", "below num_workers", worker.0);
        }
        if self.num_pages == 0 || self.num_pages > MAX_PAGES {
            return refuse("num_pages", "1 to 2^31 - 65", self.num_pages);
        }
        if self.num_inboxes == 0 {
            return refuse("num_inboxes", "at least 1", 0);
        }
        if self.num_words == 0 {
            return refuse("num_words", "at least 1", 0);
        }
        Ok(())
    }
}
