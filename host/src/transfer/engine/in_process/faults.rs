//! How an endpoint misbehaves: data that a test sets at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// An endpoint's misbehaviour. The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A batch is delivered no sooner than this after its submit, by the endpoint's clock.
    pub delay: Duration,
    /// Batches are delivered only as they are released.
    pub hold: bool,
    /// Seed of another order: of the batches that may be delivered, and of the blocks in each. Where the endpoint
    /// promises [`Delivery::InOrder`](super::super::Delivery::InOrder), the blocks stay in order.
    pub reorder: Option<u64>,
    /// Submits that fail, by their number: the calls of `submit` on this endpoint are counted from 0.
    pub fail_submits: BTreeSet<u64>,
    /// Batches that fail after they were submitted: [`BatchId`](super::super::BatchId) to the number of blocks that are
    /// written before.
    pub fail_batches: BTreeMap<u64, usize>,
    /// Neither own batches nor those of peers to this endpoint go on. Thawed, they do.
    pub freeze: bool,
    /// Submits of peers to this endpoint fail, as where a connection is refused.
    pub refuse: bool,
}
