//! One request's inbox at one worker: where its prefill ranks leave words and records.

use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::arrival::{Arrival, ArrivalError, Expected, judge};
use crate::device::{Device, DeviceBuffer, DeviceError, MemoryKind};
use crate::transfer::Clock;
use crate::transfer::clock::Until;
use crate::transfer::record::{RECORD_BYTES, WORD_BYTES};
use crate::units::Rank;

/// How often a waiting worker looks.
const WAIT_POLL: Duration = Duration::from_micros(50);

/// One request's inbox at one worker. What its words are, who writes them and when: see [`crate::transfer::record`]. It
/// only reads.
pub struct Inbox {
    device: Arc<dyn Device>,
    memory: DeviceBuffer,
    worker: Rank,
    expected: Expected,
}

impl Inbox {
    /// The inbox in `memory`, as large as `expected` says and aligned to 8 bytes, on `device`.
    pub(super) const fn new(
        device: Arc<dyn Device>,
        memory: DeviceBuffer,
        worker: Rank,
        expected: Expected,
    ) -> Self {
        Self { device, memory, worker, expected }
    }

    /// What must arrive.
    pub const fn expected(&self) -> &Expected {
        &self.expected
    }

    /// What has arrived so far. Where that is complete, all pages may be read from now on.
    ///
    /// # Errors
    /// [`ArrivalError::Device`].
    pub fn look(&self) -> Result<Arrival, ArrivalError> {
        let num_ranks = u64::from(self.expected.group_size.get());
        let words_at = num_ranks * RECORD_BYTES;
        let end = words_at + num_ranks * u64::from(self.expected.num_words) * WORD_BYTES;
        // In this order: words that a record counts are then at least as new as the record.
        let records = self.load(0..words_at)?;
        let words = self.load(words_at..end)?;
        Ok(judge(&self.expected, &records, &words))
    }

    /// Waits, `timeout` at most, until everything has arrived. All pages may be read then.
    ///
    /// # Errors
    /// [`ArrivalError::Deadline`] with the ranks that are missing or late; at once [`ArrivalError::Contradiction`] where
    /// something arrived that cannot be right; [`ArrivalError::Device`]. The pages may still be written then: abort the
    /// request.
    pub fn wait(&self, clock: &dyn Clock, timeout: Duration) -> Result<(), ArrivalError> {
        let until = Until::after(clock, timeout);
        let (request, worker) = (self.expected.request, self.worker);
        loop {
            // Before the look, so that what arrives in time is seen in time.
            let expired = until.has_passed(clock);
            let arrival = self.look()?;
            if let Some(problem) = arrival.problem {
                return Err(ArrivalError::Contradiction { request, worker, problem });
            }
            if arrival.is_complete() {
                return Ok(());
            }
            if expired {
                let Arrival { missing, late, .. } = arrival;
                let waited_ms = until.waited_ms(clock);
                return Err(ArrivalError::Deadline { request, worker, missing, late, waited_ms });
            }
            clock.pause(WAIT_POLL);
        }
    }

    /// The bytes of a part of the inbox: whole words, read in order.
    fn load(&self, range: Range<u64>) -> Result<Vec<u8>, ArrivalError> {
        let (request, worker) = (self.expected.request, self.worker);
        self.try_load(range).map_err(|problem| ArrivalError::Device { request, worker, problem })
    }

    fn try_load(&self, range: Range<u64>) -> Result<Vec<u8>, DeviceError> {
        let part = self.memory.slice(range)?;
        let mut bytes = vec![0; part.bytes() as usize];
        match self.device.memory() {
            MemoryKind::Host => load_words(&part, &mut bytes),
            // The copy has ended when this returns, so what is read afterwards is newer.
            MemoryKind::Cuda => self.device.read(&part, &mut bytes)?,
        }
        Ok(bytes)
    }
}

/// Copies the words of `part`, host memory aligned to 8 bytes, to `bytes`.
fn load_words(part: &DeviceBuffer, bytes: &mut [u8]) {
    let addrs = (part.addr()..).step_by(WORD_BYTES as usize);
    for (word, addr) in bytes.chunks_exact_mut(WORD_BYTES as usize).zip(addrs) {
        // SAFETY: an aligned word inside the inbox, which `part` keeps alive.
        let place = unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(addr as usize)) };
        // Acquire: pairs with the engine's release of an epoch word or of a record's last word, behind all that its batch
        // wrote before; who sees the word sees the pages.
        word.copy_from_slice(&place.load(Ordering::Acquire).to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::CpuDevice;
    use crate::transfer::record::InboxMap;
    use crate::transfer::{CompletionRecord, ManualClock, RequestId, SystemClock, TransferEpoch};
    use crate::units::{GroupSize, RankSet};

    const EPOCH: TransferEpoch = TransferEpoch(40);
    const LONG: Duration = Duration::from_secs(60);

    /// An inbox of two ranks that may send three batches each.
    fn inbox() -> (Inbox, InboxMap) {
        let memory = CpuDevice.alloc(InboxMap::bytes_for(2, 3)).unwrap();
        let map = InboxMap { addr: memory.addr(), group_size: 2, num_words: 3 };
        let expected = Expected {
            request: RequestId(7),
            epoch: EPOCH,
            group_size: GroupSize::new(2).unwrap(),
            num_layers: 4,
            num_words: 3,
            num_pages: 8,
        };
        (Inbox::new(Arc::new(CpuDevice), memory, Rank(1), expected), map)
    }

    fn write(inbox: &Inbox, addr: u64, bytes: &[u8]) {
        let start = addr - inbox.memory.addr();
        let place = inbox.memory.slice(start..start + bytes.len() as u64).unwrap();
        CpuDevice.write(bytes, &place).unwrap();
    }

    /// Writes what `rank` sends at the end, for half of the pages.
    fn send(inbox: &Inbox, map: &InboxMap, rank: u32, num_words: u32) {
        for i in 0..num_words {
            write(inbox, map.word_addr(rank, i), &EPOCH.0.to_le_bytes());
        }
        let record = CompletionRecord::complete(RequestId(7), EPOCH, (rank, 2), 4, 4, 2);
        write(inbox, map.record_addr(rank), &record.to_bytes());
    }

    fn only(rank: u32) -> RankSet {
        [Rank(rank)].into_iter().collect()
    }

    #[test]
    fn an_inbox_is_complete_when_the_last_rank_has_sent_all() {
        let (inbox, map) = inbox();
        send(&inbox, &map, 1, 2);
        assert_eq!(inbox.look().unwrap(), Arrival { missing: only(0), ..Arrival::default() });
        send(&inbox, &map, 0, 2);
        assert!(inbox.look().unwrap().is_complete());
        assert_eq!(inbox.wait(&SystemClock, Duration::ZERO), Ok(()));
    }

    #[test]
    fn a_wait_ends_when_another_thread_delivers_the_rest() {
        let (inbox, map) = inbox();
        send(&inbox, &map, 0, 2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| inbox.wait(&SystemClock, LONG));
            send(&inbox, &map, 1, 2);
            assert_eq!(waiting.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn a_rank_that_never_sends_is_named_at_the_deadline_and_not_before() {
        let (inbox, map) = inbox();
        send(&inbox, &map, 0, 2);
        let clock = ManualClock::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| inbox.wait(&clock, Duration::from_secs(30)));
            clock.advance(Duration::from_secs(29));
            while !waiting.is_finished() {
                clock.advance(Duration::from_secs(1));
                std::thread::yield_now();
            }
            let error = waiting.join().unwrap().unwrap_err();
            let ArrivalError::Deadline { missing, late, waited_ms, .. } = error else { panic!("{error}") };
            assert_eq!((missing, late), (only(1), RankSet::default()));
            assert!(waited_ms >= 30_000, "{waited_ms}");
        });
    }

    #[test]
    fn payload_that_never_follows_its_record_is_named_at_the_deadline() {
        let (inbox, map) = inbox();
        send(&inbox, &map, 0, 2);
        send(&inbox, &map, 1, 1);
        let error = inbox.wait(&ManualClock::default(), Duration::ZERO).unwrap_err();
        let (request, worker) = (RequestId(7), Rank(1));
        let (missing, late, waited_ms) = (RankSet::default(), only(1), 0);
        assert_eq!(error, ArrivalError::Deadline { request, worker, missing, late, waited_ms });
    }

    #[test]
    fn a_contradiction_ends_the_wait_at_once() {
        let (inbox, map) = inbox();
        let record = CompletionRecord::complete(RequestId(7), EPOCH, (1, 3), 4, 4, 2);
        write(&inbox, map.record_addr(1), &record.to_bytes());
        // The clock stands still: only the contradiction can end it.
        let error = inbox.wait(&ManualClock::default(), LONG).unwrap_err();
        assert!(error.to_string().contains("rank 1 says group_size 3, here it is 2"), "{error}");
    }
}
