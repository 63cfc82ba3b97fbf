//! One request's transfer on one rank: what was sent, what is in flight, and the first failure.
//!
//! | phase | a layer may be sent | leaves by |
//! |---|---|---|
//! | *running* | by workers, and by `finish` | a failure: failed; all sent and the record complete: finished; drop: dropped |
//! | *failed* | no | drop: dropped. The first cause stays |
//! | *finished* | there is none left | drop: dropped |
//! | *dropped* | no | never; the pages are quiet once nothing is in flight and nothing was lost |
//!
//! All state is under the context's own lock, which is not held while the engine is asked: an engine that blocks holds up
//! the worker that asked it, and no caller of `finish` or drop past his deadline. Hooks touch the [board](super::board) only.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::nanos;
use super::failure::{Cause, Counts, Payload, TransferError};
use super::flight::Flight;
use super::ids::RequestId;
use super::ledger::{Ledger, LedgerError, PageState, PartIdx};
use super::outbox::Outbox;
use super::record::Offer;
use super::request::Quiet;
use super::route::{DecodeGroup, Part, RequestRun, plan_part};
use super::shared::Shared;

/// Between two questions about what a request left behind.
const LEFT_BEHIND: Duration = Duration::from_millis(50);

/// What a request sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// (layer, page) pairs.
    pub num_pages: u64,
    /// Layers, counted once for each part of the request that had pages here.
    pub num_layers: u64,
    /// Bytes of payload.
    pub bytes: u64,
    /// Its portions of batches: of a batch that several requests share, each has one.
    pub num_batches: u64,
    /// Blocks after merging.
    pub num_blocks: u64,
    /// Blocks as they would be without.
    pub num_unmerged: u64,
}

pub(super) struct State {
    pub(super) ledger: Ledger,
    pub(super) parts: Vec<Arc<Part>>,
    /// Positions of all parts, those of other ranks' pages included.
    covered: Vec<Range<u32>>,
    pub(super) flights: Vec<Flight>,
    /// Batches so far.
    pub(super) num_flights: u64,
    /// Threads that write records into the outbox, which is the request's until they have posted them.
    pub(super) num_writers: u32,
    /// Aux blocks and records that workers are through with.
    pub(super) num_extras: u32,
    /// By worker: epoch words used.
    pub(super) words: Vec<u32>,
    /// By worker: (layer, page) pairs given to the engine.
    pub(super) pages: Vec<u64>,
    pub(super) counts: Counts,
    failure: Option<Box<Cause>>,
    pub(super) num_lost: u32,
    is_dropped: bool,
    /// Bytes may come after their batch is done.
    delivers_late: bool,
    /// The caller said that nothing of it touches memory any more.
    is_confirmed: bool,
    pub(super) outcome: Option<Result<Sent, TransferError>>,
    pub(super) sent: Sent,
    /// Callers that wait for it to become quiet.
    pub(super) num_waiting: u32,
    /// When the engine was asked last about what it has of the request, once it failed or was dropped.
    asked_ns: Option<u64>,
}

/// A request being transferred.
pub(super) struct Context {
    pub(super) shared: Arc<Shared>,
    pub(super) decode: Arc<DecodeGroup>,
    pub(super) offer: Offer,
    pub(super) outbox: Outbox,
    /// Whether hooks hand in its layers; else all goes at `finish`.
    pub(super) is_per_layer: bool,
    enqueued: AtomicU32,
    state: Mutex<State>,
}

impl Context {
    pub(super) fn new(
        shared: Arc<Shared>,
        decode: Arc<DecodeGroup>,
        offer: Offer,
        outbox: Outbox,
        is_per_layer: bool,
    ) -> Arc<Self> {
        let num_workers = decode.workers().len();
        let state = State {
            ledger: Ledger::new(shared.source.pool.num_layers()),
            parts: Vec::new(),
            covered: Vec::new(),
            flights: Vec::new(),
            num_flights: 0,
            num_writers: 0,
            num_extras: 0,
            words: vec![0; num_workers],
            pages: vec![0; num_workers],
            counts: Counts::default(),
            failure: None,
            num_lost: 0,
            is_dropped: false,
            delivers_late: shared.delivers_late,
            is_confirmed: false,
            outcome: None,
            sent: Sent::default(),
            num_waiting: 0,
            asked_ns: None,
        };
        Arc::new(Self {
            shared,
            decode,
            offer,
            outbox,
            is_per_layer,
            enqueued: AtomicU32::new(0),
            state: Mutex::new(state),
        })
    }

    pub(super) const fn id(&self) -> RequestId {
        self.offer.request
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this rank sends of pages, which are not the request's yet.
    pub(super) fn plan(&self, run: &RequestRun) -> Result<Part, Cause> {
        plan_part(&self.shared.source, &self.decode, &self.offer, run)
    }

    /// Adds pages, of which this rank sends `part`; returns its place, and whether that is any.
    pub(super) fn add(&self, run: &RequestRun, part: Part) -> Result<(PartIdx, bool), Cause> {
        let positions = run.first..run.first + run.pages.len() as u32;
        let mut state = self.lock();
        let overlap = |other: &Range<u32>| positions.start.max(other.start)..positions.end.min(other.end);
        if let Some(twice) = state.covered.iter().map(overlap).find(|range| !range.is_empty()) {
            return Err(LedgerError::Repeated { position: twice.start }.into());
        }
        let idx = state.ledger.add(part.positions.clone())?;
        state.covered.push(positions);
        let has_pages = !part.shares.is_empty();
        state.parts.push(Arc::new(part));
        Ok((idx, has_pages))
    }

    /// The request failed for `cause`, unless it had already.
    pub(super) fn fail(&self, cause: Cause) {
        self.lock().fail(cause);
    }

    /// Nothing is sent from now on; whether anything was until now.
    pub(super) fn stop(&self) -> bool {
        let mut state = self.lock();
        let was_dropped = std::mem::replace(&mut state.is_dropped, true);
        if !was_dropped {
            state.fail(Cause::Dropped);
        }
        !was_dropped
    }

    /// The caller knows that what was lost or is in flight touches no memory any more.
    pub(super) fn confirm_quiet(&self) -> Result<(), Cause> {
        let mut state = self.lock();
        if state.may_send() {
            return Err(Cause::Unconfirmable { reason: "it still runs: drop it first" });
        }
        if state.num_writers > 0 || state.flights.iter().any(|flight| flight.engine_batch.is_none()) {
            return Err(Cause::Unconfirmable { reason: "the engine is taking a batch of it: ask again" });
        }
        let flights = std::mem::take(&mut state.flights);
        state.num_lost = 0;
        state.is_confirmed = true;
        state.ledger.forgive();
        drop(state);
        for engine_batch in flights.into_iter().filter_map(|flight| flight.engine_batch) {
            engine_batch.give_up(&*self.shared.engine);
        }
        Ok(())
    }

    /// What of a dropped request may touch memory yet.
    pub(super) fn unquiet(&self) -> Quiet {
        let state = self.lock();
        if state.is_quiet() {
            return Quiet::Confirmed;
        }
        let positions = state.ledger.unsettled(state.is_loose());
        let page = |position: &u32| {
            state.parts.iter().find_map(|part| {
                let idx = part.positions.iter().position(|at| at == position)?;
                part.pages.get(idx).copied()
            })
        };
        let pages = positions.iter().filter_map(page).collect();
        let num_batches = match state.is_loose() {
            true => state.sent.num_batches,
            false => state.flights.len() as u64 + u64::from(state.num_lost + state.num_writers),
        };
        Quiet::Quarantined { pages, num_batches }
    }

    /// The answer as it stands, unless there is one already.
    pub(super) fn keep_outcome(&self) {
        self.keep(&mut self.lock());
    }

    pub(super) fn keep(&self, state: &mut State) {
        if state.outcome.is_none() {
            state.outcome = Some(self.error(state).map_or(Ok(state.sent), Err));
        }
    }

    /// The request's error, once it failed.
    pub(super) fn error(&self, state: &State) -> Option<TransferError> {
        let cause = state.failure.clone()?;
        Some(TransferError { request: self.id(), cause, counts: self.counts(state) })
    }

    /// How far it is.
    pub(super) fn counts(&self, state: &State) -> Counts {
        Counts { enqueued: self.num_enqueued(), ..state.counts }
    }

    /// Layers handed to the workers so far.
    pub(super) fn num_enqueued(&self) -> u32 {
        // Relaxed: counted under the board's lock, and read behind it where it decides.
        self.enqueued.load(Ordering::Relaxed)
    }

    /// One more layer is handed to the workers.
    pub(super) fn count_enqueued(&self) {
        self.enqueued.fetch_add(1, Ordering::Relaxed);
    }
}

impl State {
    /// Whether the request is still running.
    pub(super) const fn may_send(&self) -> bool {
        self.failure.is_none() && !self.is_dropped
    }

    /// Whether the engine is to be asked about it in the look that begins at `now_ns`; who hears so is the one to ask. What a request
    /// left behind that failed or was dropped may never end: unless somebody waits for it, it is asked about rarely.
    pub(super) fn claim_look(&mut self, now_ns: u64) -> bool {
        let is_due = self.may_send()
            || self.num_waiting > 0
            || self.asked_ns.is_none_or(|asked_ns| now_ns >= asked_ns.saturating_add(nanos(LEFT_BEHIND)));
        if is_due {
            self.asked_ns = Some(now_ns);
        }
        is_due
    }

    pub(super) fn fail(&mut self, cause: Cause) {
        self.failure.get_or_insert_with(|| Box::new(cause));
    }

    pub(super) const fn failure(&self) -> Option<&Cause> {
        match &self.failure {
            Some(cause) => Some(cause),
            None => None,
        }
    }

    /// What a wait for the request waits for: the first that is in flight, and to whom; else the first layer with pages that are not
    /// sent, else the record.
    pub(super) fn awaited(&self) -> (Payload, Option<u32>) {
        let in_flight = self.flights.iter().map(|flight| (flight.span.payload, flight.span.worker)).min();
        let unsent = || self.ledger.first_unsent().map(Payload::Layer);
        match in_flight {
            Some((payload, worker)) => (payload, Some(worker)),
            None => (unsent().unwrap_or(Payload::Record), None),
        }
    }

    /// Whether nothing of the request touches memory on either side any more.
    pub(super) const fn is_quiet(&self) -> bool {
        self.is_idle() && self.num_lost == 0 && !self.is_loose()
    }

    /// Whether bytes may come although every batch is done: where they may come late, only a request that was finished, or that
    /// the caller confirmed, tells that they did not.
    const fn is_loose(&self) -> bool {
        let is_complete = matches!(self.outcome, Some(Ok(_)));
        self.delivers_late && self.sent.num_batches > 0 && !is_complete && !self.is_confirmed
    }

    /// Whether it was dropped.
    pub(super) const fn is_dropped(&self) -> bool {
        self.is_dropped
    }

    /// Whether the engine has nothing of the request, and nobody is about to give it anything.
    pub(super) const fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.num_writers == 0
    }

    /// (layer, page) pairs in `state`.
    pub(super) const fn num(&self, state: PageState) -> u64 {
        self.ledger.num(state)
    }
}
