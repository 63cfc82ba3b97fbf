//! The inbox memory of a decode worker: one inbox for each request that is being received.

use serde::{Deserialize, Serialize};

use super::HandshakeError;
use crate::transfer::InboxMap;
use crate::transfer::record::RECORD_BYTES;
use crate::units::GroupSize;

/// Where a decode worker's inboxes lie: `[num_inboxes]` of [`InboxMap::bytes`] each, all of the same shape. Words and
/// records of earlier transfers stay where they are, so a place must mean the same in every transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxMemory {
    /// Start, in the worker; a multiple of 64.
    pub addr: u64,
    /// Inboxes.
    pub num_inboxes: u32,
    /// Ranks of the prefill groups that they are made for.
    pub group_size: u32,
    /// Words of each rank: batches it may send this worker for one request.
    pub num_words: u32,
}

impl InboxMemory {
    /// Inbox `inbox_idx`; `None` where there is no such one.
    pub const fn inbox(&self, inbox_idx: u32) -> Option<InboxMap> {
        if inbox_idx >= self.num_inboxes {
            return None;
        }
        let (group_size, num_words) = (self.group_size, self.num_words);
        let addr = self.addr + inbox_idx as u64 * InboxMap::bytes_for(group_size, num_words);
        Some(InboxMap { addr, group_size, num_words })
    }

    /// Bytes of all inboxes; `None` where no memory can hold them.
    pub fn bytes(&self) -> Option<u64> {
        GroupSize::new(self.group_size).ok()?;
        InboxMap::bytes_for(self.group_size, self.num_words).checked_mul(u64::from(self.num_inboxes))
    }

    /// Whether worker `worker` can have this memory.
    ///
    /// # Errors
    /// [`HandshakeError::Value`].
    pub(super) fn check(&self, worker: u32) -> Result<(), HandshakeError> {
        let refuse = |field, expected, got| Err(HandshakeError::Value { worker, field, expected, got });
        if GroupSize::new(self.group_size).is_err() {
            return refuse("inboxes.group_size", "1 to 64", u64::from(self.group_size));
        }
        if self.num_inboxes == 0 {
            return refuse("inboxes.num_inboxes", "at least 1", 0);
        }
        if self.num_words == 0 {
            return refuse("inboxes.num_words", "at least 1", 0);
        }
        if !self.addr.is_multiple_of(RECORD_BYTES) {
            return refuse("inboxes.addr", "a multiple of 64", self.addr);
        }
        match self.bytes().and_then(|bytes| self.addr.checked_add(bytes)) {
            Some(_) => Ok(()),
            None => refuse("inboxes.addr", "so that all inboxes have addresses", self.addr),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: InboxMemory = InboxMemory { addr: 4096, num_inboxes: 3, group_size: 2, num_words: 5 };

    #[test]
    fn inboxes_lie_one_after_another_and_end_with_the_memory() {
        let inboxes: Vec<_> = (0..3).map(|idx| MEMORY.inbox(idx).unwrap()).collect();
        assert_eq!(inboxes[0].addr, 4096);
        for pair in inboxes.windows(2) {
            assert_eq!(pair[0].addr + pair[0].bytes(), pair[1].addr);
        }
        assert_eq!(Some(inboxes[2].addr + inboxes[2].bytes()), MEMORY.bytes().map(|bytes| 4096 + bytes));
        assert_eq!(MEMORY.inbox(3), None);
    }

    #[test]
    fn memory_that_cannot_be_is_refused_and_not_computed_with() {
        assert_eq!(MEMORY.check(0), Ok(()));
        let cases = [
            (InboxMemory { group_size: 0, ..MEMORY }, "group_size is 0"),
            (InboxMemory { group_size: u32::MAX, num_words: u32::MAX, ..MEMORY }, "group_size is 4294967295"),
            (InboxMemory { num_inboxes: 0, ..MEMORY }, "num_inboxes is 0"),
            (InboxMemory { num_words: 0, ..MEMORY }, "num_words is 0"),
            (InboxMemory { addr: 4100, ..MEMORY }, "addr is 4100"),
            (InboxMemory { addr: u64::MAX - 63, ..MEMORY }, "so that all inboxes have addresses"),
            (
                InboxMemory { num_inboxes: u32::MAX, group_size: 64, num_words: u32::MAX, ..MEMORY },
                "so that all inboxes have addresses",
            ),
        ];
        for (memory, message) in cases {
            let error = memory.check(5).unwrap_err().to_string();
            assert!(error.contains("worker 5") && error.contains(message), "{error}");
        }
    }
}
