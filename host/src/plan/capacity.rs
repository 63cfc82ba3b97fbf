//! How many pages staging must hold, and whether a batch fits: decided from numbers all ranks share.

use serde::{Deserialize, Serialize};

use super::{PlanError, SlotPlan};

/// What the scheduler admits into one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// New tokens of a batch.
    pub max_extend_tokens: u64,
    /// Requests of a batch.
    pub max_batch_requests: u64,
}

/// Staging slots of one half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StagingCapacity {
    /// Pages.
    pub num_pages: u64,
}

impl StagingCapacity {
    /// `ceil(max_extend_tokens / page_size) + max_batch_requests` (each request can waste one partial page), and
    /// never more than the pool; without admission limits, the pool.
    pub fn for_admission(admission: Option<Admission>, page_size: u32, num_logical_pages: u32) -> Self {
        let pool = u64::from(num_logical_pages);
        let num_pages = admission.map_or(pool, |admission| {
            let whole = admission.max_extend_tokens.div_ceil(u64::from(page_size.max(1)));
            whole.saturating_add(admission.max_batch_requests).min(pool)
        });
        Self { num_pages }
    }

    /// As many pages as two halves of `heap_bytes` hold, with `layer_page_bytes` a page over all buffers.
    pub const fn for_heap(heap_bytes: u64, layer_page_bytes: u64) -> Self {
        let num_pages = match heap_bytes.checked_div(layer_page_bytes.saturating_mul(2)) {
            Some(num_pages) => num_pages,
            // Pages without bytes always fit.
            None => u64::MAX,
        };
        Self { num_pages }
    }

    /// Whether the batch's current pages fit.
    ///
    /// # Errors
    /// [`PlanError::OverCapacity`], on all ranks alike.
    pub fn check(self, slots: &SlotPlan) -> Result<(), PlanError> {
        let needed = u64::from(slots.num_current());
        if needed > self.num_pages {
            return Err(PlanError::OverCapacity { what: "staging", needed, capacity: self.num_pages });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_counts_a_partial_page_for_every_request() {
        let admission = Some(Admission { max_extend_tokens: 44_600, max_batch_requests: 12 });
        assert_eq!(StagingCapacity::for_admission(admission, 64, 100_000).num_pages, 697 + 12);
        assert_eq!(StagingCapacity::for_admission(admission, 64, 500).num_pages, 500);
        assert_eq!(StagingCapacity::for_admission(None, 64, 500).num_pages, 500);
    }

    #[test]
    fn a_heap_is_shared_by_both_halves() {
        assert_eq!(StagingCapacity::for_heap(1000, 100).num_pages, 5);
        assert_eq!(StagingCapacity::for_heap(1000, u64::MAX).num_pages, 0);
        assert_eq!(StagingCapacity::for_heap(1000, 0).num_pages, u64::MAX);
    }

    #[test]
    fn limits_at_the_end_of_their_type_leave_the_pool() {
        let admission = Some(Admission { max_extend_tokens: u64::MAX, max_batch_requests: u64::MAX });
        assert_eq!(StagingCapacity::for_admission(admission, 0, 500).num_pages, 500);
    }
}
