//! What an endpoint's callers, its delivery thread and its peers share.
//!
//! | state | written by | read by | lock |
//! |---|---|---|---|
//! | [`Inner`]: peers, queue, log | callers; the delivery thread between turns | the same | `inner`, taken first |
//! | registrations | the endpoint's callers | peers' submits | `registry`, taken last |
//! | dead, faults | whoever injects; a successor of the same name | the endpoint, peers, their threads | `presence`, taken last |
//! | bytes of a batch in flight | the delivery thread, between two turns' looks under `inner` | nobody, but for words (`copy`) | none |
//!
//! A batch becomes done under `inner` after its last byte was copied, and is found done under `inner`: so who polled it
//! sees the bytes.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::super::registry::Registry;
use super::super::{BatchId, Delivery, EngineError, EngineProblem, PeerId};
use super::card::Card;
use super::payload::{Around, Payload, shuffled};
use super::peers::Peers;
use super::presence::Presence;
use super::queue::{Abandoned, Queue};
use super::{EndpointOptions, NAME, SubmitRecord, codes, fabric, snapshot};
use crate::deadline::Deadline;
use crate::transfer::Block;
use crate::transfer::clock::nanos;

/// How often a thread looks at what nobody wakes it for: a peer's state, the clock.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// How long a batch that is given up may take to stop: a turn takes well under a millisecond.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// An endpoint.
#[derive(Debug)]
pub(super) struct Endpoint {
    fabric: Arc<fabric::Shared>,
    name: Box<str>,
    instance: u64,
    pub(super) options: EndpointOptions,
    pub(super) presence: Arc<Presence>,
    pub(super) registry: Mutex<Registry>,
    inner: Mutex<Inner>,
    /// Something in `inner` or in the faults changed.
    pub(super) changed: Condvar,
}

/// What the endpoint's own lock guards.
#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) peers: Peers,
    pub(super) queue: Queue,
    pub(super) log: Vec<SubmitRecord>,
    pub(super) num_submits: u64,
    pub(super) num_polls: u64,
    pub(super) num_refused: u64,
    /// The delivery thread ends.
    pub(super) closed: bool,
}

impl Endpoint {
    pub(super) fn new(
        fabric: Arc<fabric::Shared>,
        name: Box<str>,
        instance: u64,
        options: EndpointOptions,
    ) -> Self {
        let presence = Arc::new(Presence::new(options.faults.clone()));
        let (registry, inner, changed) = (Mutex::default(), Mutex::default(), Condvar::new());
        Self { fabric, name, instance, options, presence, registry, inner, changed }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) const fn instance(&self) -> u64 {
        self.instance
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn around(&self) -> Around {
        let faults = self.presence.faults();
        let now_ns = self.options.clock.now_ns();
        Around { frozen: faults.freeze, hold: faults.hold, reorder: faults.reorder, now_ns }
    }

    /// From now on it does nothing, and peers lose it.
    pub(super) fn die(&self) {
        self.presence.die();
        self.lock().queue.clear();
        self.changed.notify_all();
    }

    /// Refuses `call` on an endpoint that is dead.
    pub(super) fn check_alive(&self, call: &'static str) -> Result<(), EngineError> {
        if !self.presence.is_dead() {
            return Ok(());
        }
        let reason = format!("endpoint {} is dead: it was killed, or its name given away", self.name);
        Err(EngineError::new(NAME, call, EngineProblem::Unavailable { reason: reason.into() }))
    }

    /// What it tells its peers.
    pub(super) fn card(&self) -> Card {
        let num_registered = self.registry().num_registered();
        Card { fabric: self.fabric.id(), name: self.name.clone(), instance: self.instance, num_registered }
    }

    /// Takes up the peer whose card this is; `None` for a card of another fabric.
    pub(super) fn add_peer(&self, card: Card) -> Option<PeerId> {
        if card.fabric != self.fabric.id() {
            return None;
        }
        let target = self.fabric.find(&card.name, card.instance);
        let mut inner = self.lock();
        let (peer, before) = inner.peers.add(card.name, target, card.num_registered);
        if let Some(before) = before {
            inner.queue.forget(before);
        }
        Some(peer)
    }

    /// Submits a batch, and logs it.
    pub(super) fn submit(&self, peer: PeerId, blocks: &[Block]) -> Result<BatchId, EngineError> {
        let tick = self.fabric.tick();
        self.check_alive("submit")?;
        let mut inner = self.lock();
        let outcome = self.prepare(&inner, peer, blocks).map(|payload| {
            let id = payload.id;
            inner.queue.push(payload);
            id
        });
        inner.num_submits += 1;
        inner.num_refused += u64::from(outcome.is_err());
        let name: Box<str> = inner.peers.name(peer).unwrap_or_default().into();
        if self.options.log_submits {
            let (peer, blocks, outcome) = (name.clone(), blocks.to_vec(), outcome.clone());
            inner.log.push(SubmitRecord { tick, peer, blocks, outcome });
        }
        drop(inner);
        self.changed.notify_all();
        outcome.map_err(|problem| EngineError::new(NAME, "submit", problem).of(&name))
    }

    /// Checks every block, and makes the payload of them: all or nothing.
    fn prepare(&self, inner: &Inner, peer: PeerId, blocks: &[Block]) -> Result<Payload, EngineProblem> {
        let known = inner.peers.get(peer).ok_or(EngineProblem::UnknownPeer)?;
        let faults = self.presence.faults();
        if faults.fail_submits.contains(&inner.num_submits) {
            let reason = "it was told to fail this submit".into();
            return Err(EngineProblem::Foreign { code: codes::IO, reason });
        }
        let sources = blocks.iter().map(|block| (block.src, block.bytes));
        let mut keep = self
            .registry()
            .cover(sources, u64::MAX)
            .map_err(|gap| EngineProblem::NotRegistered { addr: gap.addr, bytes: gap.bytes })?;
        let target = known.target.upgrade().filter(|target| !target.presence.is_dead());
        let target = target.ok_or(EngineProblem::PeerLost { code: codes::RESET })?;
        if target.presence.refuses() {
            return Err(EngineProblem::PeerLost { code: codes::REFUSED });
        }
        let destinations = blocks.iter().map(|block| (block.dst, block.bytes));
        let refused = || EngineProblem::Refused {
            addr: blocks.first().map_or(0, |block| block.dst),
            bytes: blocks.iter().fold(0, |sum, block| sum.saturating_add(block.bytes)),
            code: codes::FAULT,
        };
        keep.extend(target.registry().cover(destinations, known.num_known).map_err(|_| refused())?);
        let id = inner.queue.next_id();
        let fails_after = faults.fail_batches.get(&id.0).copied();
        let in_order = self.options.delivery == Delivery::InOrder;
        let blocks = if in_order {
            // SAFETY: the sources lie in registered host memory, which `keep` holds; the caller leaves them alone until the
            // batch is done.
            let (blocks, memory) = unsafe { snapshot::of(blocks) };
            keep.push(memory);
            blocks
        } else {
            faults.reorder.map_or_else(|| blocks.to_vec(), |seed| shuffled(blocks, id, seed))
        };
        Ok(Payload {
            id,
            peer,
            target: Arc::clone(&target.presence),
            blocks,
            keep: keep.into(),
            due_ns: self.options.clock.now_ns().saturating_add(nanos(faults.delay)),
            num_released: 0,
            fails_after,
            reported: in_order && fails_after.is_none(),
            forgotten: false,
            cancelled: false,
            next_block: 0,
            next_byte: 0,
        })
    }

    /// Gives up a batch; whether it is quiet.
    pub(super) fn abandon(&self, batch: BatchId) -> bool {
        let deadline = Deadline::after(CANCEL_TIMEOUT);
        let mut inner = self.lock();
        match inner.queue.abandon(batch, self.around()) {
            Abandoned::Quiet => true,
            Abandoned::Loose => false,
            Abandoned::EndsWithTurn => {
                while !inner.queue.is_quiet(batch) && !deadline.expired() {
                    inner = self.pause(inner, deadline.remaining());
                }
                inner.queue.is_quiet(batch)
            }
        }
    }

    /// Waits until something changed, `time` at most.
    pub(super) fn pause<'a>(&self, inner: MutexGuard<'a, Inner>, time: Duration) -> MutexGuard<'a, Inner> {
        self.changed.wait_timeout(inner, time).unwrap_or_else(PoisonError::into_inner).0
    }
}
