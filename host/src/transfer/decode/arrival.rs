//! What has arrived for one request at one worker: a judgement of the bytes in its inbox. Pure.

use thiserror::Error;

use crate::device::DeviceError;
use crate::transfer::record::{RECORD_BYTES, STATUS_COMPLETE, WIRE_VERSION, WORD_BYTES};
use crate::transfer::{CompletionRecord, Offer, RequestId, TransferEpoch, WorkerHello};
use crate::units::{GroupSize, Rank, RankSet};

/// What must arrive for one request at one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The request.
    pub request: RequestId,
    /// This transfer of it.
    pub epoch: TransferEpoch,
    /// Prefill ranks.
    pub group_size: GroupSize,
    /// Layers of the model, draft layers included.
    pub num_layers: u32,
    /// Words of each rank in the inbox.
    pub num_words: u32,
    /// (layer, page) pairs that all ranks together write to this worker: a layer without buffers has none.
    pub num_pages: u64,
}

impl Expected {
    /// What must arrive for `offer` at the worker whose hello this is, from `group_size` ranks.
    pub(super) fn of(offer: &Offer, hello: &WorkerHello, group_size: GroupSize) -> Self {
        let here = offer.destinations.iter().flatten().filter(|place| place.worker == hello.worker);
        let layers = &hello.pool.layers;
        let num_page_layers = layers.iter().filter(|buffers| !buffers.is_empty()).count();
        Self {
            request: offer.request,
            epoch: offer.epoch,
            group_size,
            num_layers: layers.len() as u32,
            num_words: hello.inboxes.num_words,
            num_pages: here.count() as u64 * num_page_layers as u64,
        }
    }
}

/// What has arrived for one request at one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Ranks without a whole record of this transfer.
    pub missing: RankSet,
    /// Ranks with a record, some of whose payload has not arrived.
    pub late: RankSet,
    /// What cannot be right, and will not become so.
    pub problem: Option<ArrivalProblem>,
}

impl Arrival {
    /// Whether everything is there, so that the pages may be read.
    pub const fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.late.is_empty() && self.problem.is_none()
    }
}

/// What cannot be right in an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ArrivalProblem {
    /// A record that is whole and of this transfer, but says something else than this side expects.
    #[error("the record of rank {rank} says {field} {got}, here it is {expected}")]
    Record {
        /// At whose place it is.
        rank: Rank,
        /// The field.
        field: &'static str,
        /// What this side expects, or the limit.
        expected: u64,
        /// What the record says.
        got: u64,
    },
    /// All records are there, but not all pages were sent.
    #[error("all ranks together sent {got} pages of layers, offered were {expected}")]
    NumPages {
        /// (layer, page) pairs that were offered.
        expected: u64,
        /// The sum of the records.
        got: u64,
    },
}

/// Why a request's pages at a worker may not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ArrivalError {
    /// The deadline passed first.
    #[error(
        "request {request}, decode worker {worker}: after {waited_ms} ms {}: see why these ranks stopped, or raise the timeout",
        waiting_for(*missing, *late)
    )]
    Deadline {
        /// The request.
        request: RequestId,
        /// The worker.
        worker: Rank,
        /// Prefill ranks whose completion record has not arrived.
        missing: RankSet,
        /// Prefill ranks whose record has arrived, but not all payload.
        late: RankSet,
        /// How long the worker waited, in milliseconds.
        waited_ms: u64,
    },
    /// What arrived contradicts what was offered.
    #[error(
        "request {request}, decode worker {worker}: {problem}: do not read its pages, and compare the two sides' \
         configuration"
    )]
    Contradiction {
        /// The request.
        request: RequestId,
        /// The worker.
        worker: Rank,
        /// How.
        problem: ArrivalProblem,
    },
    /// The offer names no inbox of this worker.
    #[error(
        "request {request}: the offer names no inbox of decode worker {worker}: its directory was made from another \
         hello of this worker"
    )]
    ForeignInbox {
        /// The request.
        request: RequestId,
        /// The worker.
        worker: Rank,
    },
    /// The inbox cannot be read.
    #[error("request {request}, decode worker {worker}: its inbox cannot be read: {problem}")]
    Device {
        /// The request.
        request: RequestId,
        /// The worker.
        worker: Rank,
        /// Why.
        problem: DeviceError,
    },
}

fn waiting_for(missing: RankSet, late: RankSet) -> String {
    let records = format!("no completion record of ranks {missing}");
    let payload = format!("payload of ranks {late} is missing though their records are here");
    match (missing.is_empty(), late.is_empty()) {
        (true, _) => payload,
        (false, true) => records,
        (false, false) => format!("{records}; {payload}"),
    }
}

/// What `records` (`[group_size]` of [`RECORD_BYTES`]) and `words` (`[group_size, num_words]`) of an inbox say. Words must
/// be read after, or together with, the records.
///
/// | record at a rank's place | the rank |
/// |---|---|
/// | not whole, or of another epoch: what an earlier transfer left, or zeros | missing |
/// | of this epoch, but says something else than expected | contradicts |
/// | as expected; a word that it counts is of another epoch | late |
/// | as expected; all words that it counts are of this epoch | done |
pub fn judge(expected: &Expected, records: &[u8], words: &[u8]) -> Arrival {
    let mut arrival = Arrival::default();
    let mut num_pages = 0_u64;
    let row_bytes = expected.num_words as usize * WORD_BYTES as usize;
    for rank in expected.group_size.ranks() {
        let Some(record) = record_at(records, rank).filter(|record| record.epoch == expected.epoch.0) else {
            arrival.missing.insert(rank);
            continue;
        };
        if let Some(problem) = contradiction(expected, rank, &record) {
            arrival.problem = arrival.problem.or(Some(problem));
            continue;
        }
        num_pages = num_pages.saturating_add(record.num_pages);
        let row = words.get(rank.idx() * row_bytes..).unwrap_or_default();
        if !has_all_words(row, record.num_words, expected.epoch) {
            arrival.late.insert(rank);
        }
    }
    if arrival.missing.is_empty() && arrival.problem.is_none() && num_pages != expected.num_pages {
        arrival.problem = Some(ArrivalProblem::NumPages { expected: expected.num_pages, got: num_pages });
    }
    arrival
}

/// The record at `rank`'s place, where a whole one is there.
fn record_at(records: &[u8], rank: Rank) -> Option<CompletionRecord> {
    let bytes = records.get(rank.idx() * RECORD_BYTES as usize..)?;
    CompletionRecord::from_bytes(bytes.first_chunk()?)
}

/// The first field of a record of this epoch that is not as expected.
fn contradiction(expected: &Expected, rank: Rank, record: &CompletionRecord) -> Option<ArrivalProblem> {
    // Every batch ends with a word, so who wrote a page wrote a word.
    let min_words = u64::from(record.num_pages > 0);
    let max_words = u64::from(expected.num_words);
    let exact = |field, expected, got| (field, expected, expected, got);
    let fields = [
        exact("version", u64::from(WIRE_VERSION), u64::from(record.version)),
        exact("request", expected.request.0, record.request),
        exact("rank", u64::from(rank.0), u64::from(record.rank)),
        exact("group_size", u64::from(expected.group_size.get()), u64::from(record.group_size)),
        exact("num_layers", u64::from(expected.num_layers), u64::from(record.num_layers)),
        exact("status", u64::from(STATUS_COMPLETE), u64::from(record.status)),
        ("num_words", min_words, max_words, u64::from(record.num_words)),
    ];
    let odd = fields.into_iter().find(|(_, min, max, got)| got < min || got > max);
    odd.map(|(field, min, max, got)| {
        let expected = if got < min { min } else { max };
        ArrivalProblem::Record { rank, field, expected, got }
    })
}

/// Whether the first `num_words` words of `row` are of `epoch`.
fn has_all_words(row: &[u8], num_words: u32, epoch: TransferEpoch) -> bool {
    let arrived = row.chunks_exact(WORD_BYTES as usize).take(num_words as usize);
    arrived.filter(|word| *word == epoch.0.to_le_bytes()).count() == num_words as usize
}

#[cfg(test)]
#[path = "arrival_tests.rs"]
mod tests;
