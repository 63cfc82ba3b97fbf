//! What a prefill rank leaves in a decode worker's memory beside the pages: an epoch word behind every batch of writes, and
//! one completion record behind the last. Both sides share these definitions.
//!
//! | word | writer | reader | at rest |
//! |---|---|---|---|
//! | `words[rank][i]` | that rank, as the last block of its batch `i` to this worker | the worker | the epoch of an earlier transfer, or 0 |
//! | `records[rank]` | that rank, when all its batches are done | the worker | the record of an earlier transfer, or zeros |
//!
//! Nobody resets them: an epoch is never used twice. A worker reads pages once all ranks' records are whole and of this
//! epoch, and every word that a record counts is of this epoch. Where an engine may deliver payload after it reported
//! completion, but keeps a batch in order ([`Delivery::InOrder`](super::Delivery::InOrder)), the words catch that.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::{RequestId, TransferEpoch};

/// Version of everything that the two sides exchange.
pub const WIRE_VERSION: u32 = 1;

/// First word of a completion record.
const MAGIC: u64 = u64::from_le_bytes(*b"cpkvdone");
/// [`CompletionRecord::status`] of a complete transfer; there is no record of another.
pub const STATUS_COMPLETE: u32 = 1;

/// One rank's statement to one decode worker that all its writes for a request are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CompletionRecord {
    /// Marks a record.
    pub magic: u64,
    /// The request.
    pub request: u64,
    /// The transfer: [`TransferEpoch`].
    pub epoch: u64,
    /// (layer, page) pairs that this rank wrote to this worker.
    pub num_pages: u64,
    /// The prefill rank.
    pub rank: u32,
    /// Prefill ranks.
    pub group_size: u32,
    /// Layers of the model, draft layers included.
    pub num_layers: u32,
    /// Epoch words that this rank wrote to this worker: one a batch.
    pub num_words: u32,
    /// [`STATUS_COMPLETE`].
    pub status: u32,
    /// [`WIRE_VERSION`].
    pub version: u32,
    /// Hash of everything above: a record that is half there is none.
    pub check: u64,
}

/// Bytes of a [`CompletionRecord`].
pub const RECORD_BYTES: u64 = size_of::<CompletionRecord>() as u64;
/// Bytes of an epoch word.
pub const WORD_BYTES: u64 = size_of::<u64>() as u64;
const _: () = assert!(RECORD_BYTES == 64);
const _: () = assert!(std::mem::offset_of!(CompletionRecord, check) == 56);

impl CompletionRecord {
    /// A complete transfer's record; magic, status, version and check are filled in.
    pub fn complete(
        request: RequestId,
        epoch: TransferEpoch,
        (rank, group_size): (u32, u32),
        num_layers: u32,
        num_pages: u64,
        num_words: u32,
    ) -> Self {
        let record = Self {
            magic: MAGIC,
            request: request.0,
            epoch: epoch.0,
            num_pages,
            rank,
            group_size,
            num_layers,
            num_words,
            status: STATUS_COMPLETE,
            version: WIRE_VERSION,
            check: 0,
        };
        Self { check: record.hash(), ..record }
    }

    /// Its bytes, as they are written: little-endian, in the order of the fields.
    pub fn to_bytes(self) -> [u8; RECORD_BYTES as usize] {
        let mut bytes = [0; RECORD_BYTES as usize];
        let (words, check) = bytes.split_at_mut(56);
        let (longs, shorts) = words.split_at_mut(32);
        let values = [self.magic, self.request, self.epoch, self.num_pages];
        for (out, value) in longs.chunks_exact_mut(8).zip(values) {
            out.copy_from_slice(&value.to_le_bytes());
        }
        let values = [self.rank, self.group_size, self.num_layers, self.num_words, self.status, self.version];
        for (out, value) in shorts.chunks_exact_mut(4).zip(values) {
            out.copy_from_slice(&value.to_le_bytes());
        }
        check.copy_from_slice(&self.check.to_le_bytes());
        bytes
    }

    /// The record that `bytes` hold, if they hold a whole one.
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES as usize]) -> Option<Self> {
        let long = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let short = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let record = Self {
            magic: long(0),
            request: long(8),
            epoch: long(16),
            num_pages: long(24),
            rank: short(32),
            group_size: short(36),
            num_layers: short(40),
            num_words: short(44),
            status: short(48),
            version: short(52),
            check: long(56),
        };
        (record.magic == MAGIC && record.check == record.hash()).then_some(record)
    }

    fn hash(&self) -> u64 {
        let bytes = Self { check: 0, ..*self }.to_bytes();
        xxh3_64(&bytes[..56])
    }
}

/// Where one request's words and records lie in a decode worker's memory: `[group_size]` records, then
/// `[group_size][num_words]` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxMap {
    /// Start, in the worker; a multiple of 64.
    pub addr: u64,
    /// Prefill ranks.
    pub group_size: u32,
    /// Words of each rank: batches it may send this worker for the request.
    pub num_words: u32,
}

impl InboxMap {
    /// Bytes of an inbox.
    pub const fn bytes_for(group_size: u32, num_words: u32) -> u64 {
        let bytes = group_size as u64 * (RECORD_BYTES + num_words as u64 * WORD_BYTES);
        bytes.next_multiple_of(RECORD_BYTES)
    }

    /// Its bytes.
    pub const fn bytes(&self) -> u64 {
        Self::bytes_for(self.group_size, self.num_words)
    }

    /// Address of `rank`'s record. `rank < group_size`.
    pub const fn record_addr(&self, rank: u32) -> u64 {
        self.addr + rank as u64 * RECORD_BYTES
    }

    /// Address of `rank`'s word `i`. `rank < group_size`, `i < num_words`.
    pub const fn word_addr(&self, rank: u32, i: u32) -> u64 {
        let words = self.addr + self.group_size as u64 * RECORD_BYTES;
        words + (rank as u64 * self.num_words as u64 + i as u64) * WORD_BYTES
    }
}

/// Where a page goes on the decode side: what that side's own map says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Destination {
    /// The worker of the decode group.
    pub worker: u32,
    /// The page's place in that worker's shard.
    pub page_idx: u32,
}

/// What the decode side answers a request with: where its pages go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The request.
    pub request: RequestId,
    /// This transfer of it.
    pub epoch: TransferEpoch,
    /// `[ceil(tokens / page_size)]` by position in the request: where the page goes; `None` where the decode side has it
    /// already.
    pub destinations: Vec<Option<Destination>>,
    /// `[workers]` by decode worker.
    pub inboxes: Vec<InboxMap>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_whole_and_no_damaged_one_does() {
        let record = CompletionRecord::complete(RequestId(7), TransferEpoch(9), (3, 8), 79, 1234, 80);
        let bytes = record.to_bytes();
        assert_eq!(CompletionRecord::from_bytes(&bytes), Some(record));
        for byte in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[byte] ^= 0x10;
            assert_eq!(CompletionRecord::from_bytes(&damaged), None, "byte {byte}");
        }
        assert_eq!(CompletionRecord::from_bytes(&[0; 64]), None);
    }

    #[test]
    fn records_and_words_of_an_inbox_do_not_overlap_and_fill_it() {
        let inbox = InboxMap { addr: 4096, group_size: 3, num_words: 5 };
        let records = (0..3).map(|rank| (inbox.record_addr(rank), RECORD_BYTES));
        let words = (0..3).flat_map(|rank| (0..5).map(move |i| (inbox.word_addr(rank, i), WORD_BYTES)));
        let mut end = inbox.addr;
        for (addr, bytes) in records.chain(words) {
            assert_eq!(addr, end);
            end += bytes;
        }
        assert_eq!(inbox.bytes(), (end - inbox.addr).next_multiple_of(64));
    }
}
