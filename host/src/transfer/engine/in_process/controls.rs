//! What a test does to an endpoint, and sees of it.

use super::super::{BatchId, EngineError, EngineProblem};
use super::endpoint::TICK;
use super::{Counters, Faults, InProcessEngine, NAME, SubmitRecord};
use crate::deadline::Deadline;

impl InProcessEngine {
    /// How it misbehaves.
    pub fn faults(&self) -> Faults {
        self.endpoint.presence.faults()
    }

    /// Replaces its misbehaviour. What was released ahead stays released.
    pub fn set_faults(&self, faults: Faults) {
        self.inject(|before| *before = faults);
    }

    /// Changes its misbehaviour: `engine.inject(|faults| faults.refuse = true)`.
    pub fn inject(&self, change: impl FnOnce(&mut Faults)) {
        self.endpoint.presence.change_faults(change);
        // Under the lock, so that the thread is not between its look and its wait.
        drop(self.endpoint.lock());
        self.endpoint.changed.notify_all();
    }

    /// From now on batches are delivered only as they are released.
    pub fn hold(&self) {
        self.endpoint.lock().queue.hold();
        self.inject(|faults| faults.hold = true);
    }

    /// Lets the next `num_batches` batches through: those that wait, the oldest first, then those to come.
    pub fn release(&self, num_batches: usize) {
        self.endpoint.lock().queue.release(num_batches);
        self.endpoint.changed.notify_all();
    }

    /// Lets one batch through, before those that were submitted earlier. Whether it was there.
    pub fn release_batch(&self, batch: BatchId) -> bool {
        self.release_blocks(batch, usize::MAX)
    }

    /// Lets `num_blocks` more blocks of one batch through, but not its completion. Whether it was there.
    pub fn release_blocks(&self, batch: BatchId, num_blocks: usize) -> bool {
        let was_there = self.endpoint.lock().queue.release_blocks(batch, num_blocks);
        self.endpoint.changed.notify_all();
        was_there
    }

    /// Ends [`InProcessEngine::hold`]: everything goes on.
    pub fn release_all(&self) {
        self.endpoint.lock().queue.hold();
        self.inject(|faults| faults.hold = false);
    }

    /// Stops its batches, and those of peers to it: they stay in flight.
    pub fn freeze(&self) {
        self.inject(|faults| faults.freeze = true);
    }

    /// Ends [`InProcessEngine::freeze`]. What was in flight is written now, given up or not.
    pub fn thaw(&self) {
        self.inject(|faults| faults.freeze = false);
    }

    /// Kills it, as where its process ends: its calls fail, and so does what peers send it.
    pub fn die(&self) {
        self.endpoint.die();
    }

    /// Waits until it delivers nothing, and may not: what is left is held, delayed or frozen.
    ///
    /// # Errors
    /// [`EngineProblem::Deadline`].
    pub fn settle(&self, deadline: Deadline) -> Result<(), EngineError> {
        let mut inner = self.endpoint.lock();
        while inner.queue.is_busy(self.endpoint.around()) {
            if deadline.expired() {
                let waited_ms = deadline.waited_ms();
                return Err(EngineError::new(NAME, "settle", EngineProblem::Deadline { waited_ms }));
            }
            inner = self.endpoint.pause(inner, TICK.min(deadline.remaining()));
        }
        Ok(())
    }

    /// The batches that are not wholly delivered, in order of submission: those given up and those reported as done
    /// included.
    pub fn undelivered(&self) -> Vec<BatchId> {
        self.endpoint.lock().queue.undelivered().collect()
    }

    /// Every call of `submit` so far, by [`SubmitRecord::tick`]. Empty where
    /// [`EndpointOptions::log_submits`](super::EndpointOptions::log_submits) is off.
    pub fn submits(&self) -> Vec<SubmitRecord> {
        let mut log = self.endpoint.lock().log.clone();
        log.sort_by_key(|record| record.tick);
        log
    }

    /// Its counts so far.
    pub fn counters(&self) -> Counters {
        let inner = self.endpoint.lock();
        let (num_submits, num_refused, num_polls) = (inner.num_submits, inner.num_refused, inner.num_polls);
        Counters { num_submits, num_refused, num_polls, ..inner.queue.counters() }
    }
}
