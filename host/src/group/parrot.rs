//! A bootstrap for tests: its peer says the same whatever this rank says.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Bootstrap, BootstrapError, Transport};
use crate::deadline::Deadline;
use crate::units::{GroupSize, Rank};

/// Rank 0 of two. Counts exchanges.
pub(crate) struct Parrot {
    says: Vec<u8>,
    num_exchanges: AtomicUsize,
}

impl Parrot {
    /// A peer that gives `says` in every exchange.
    pub(crate) const fn new(says: Vec<u8>) -> Self {
        Self { says, num_exchanges: AtomicUsize::new(0) }
    }

    /// Exchanges so far.
    pub(crate) fn num_exchanges(&self) -> usize {
        self.num_exchanges.load(Ordering::Relaxed)
    }
}

impl Bootstrap for Parrot {
    fn rank(&self) -> Rank {
        Rank(0)
    }

    fn group_size(&self) -> GroupSize {
        GroupSize::new(2).unwrap()
    }

    fn transport(&self) -> Transport {
        Transport::Threads
    }

    fn all_gather(&self, _: &'static str, blob: &[u8], _: Deadline) -> Result<Vec<Vec<u8>>, BootstrapError> {
        self.num_exchanges.fetch_add(1, Ordering::Relaxed);
        Ok(vec![blob.to_vec(), self.says.clone()])
    }
}
