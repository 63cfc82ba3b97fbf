//! Sending: a layer's pages are claimed, the engine is asked, and what it took is in flight. The engine is asked outside of
//! the request's lock.

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;

use super::blocks::{Block, build_layer_blocks};
use super::clock::Until;
use super::context::Context;
use super::engine::guarded::{self, Submitted};
use super::engine::{EngineError, EngineProblem, PeerId, TransferEngine};
use super::engine_batch::EngineBatch;
use super::failure::{Cause, Payload};
use super::flight::{Flight, Pages};
use super::ledger::{Ledger, PartIdx};
use super::log::BatchSpan;
use super::record::WORD_BYTES;
use super::route::Share;

/// What one request has to go in a batch, to be posted.
pub(super) struct Portion {
    pub(super) payload: Payload,
    pub(super) worker: u32,
    /// Who posts it, for the log.
    pub(super) thread: u32,
    /// The pages, claimed, where it is a layer's.
    pub(super) pages: Option<Pages>,
    pub(super) blocks: Vec<Block>,
    pub(super) num_unmerged: u64,
    /// Whether an epoch word goes behind it.
    pub(super) has_word: bool,
}

/// A layer of a part of a request.
pub(super) struct LayerOf<'a> {
    pub(super) context: &'a Arc<Context>,
    pub(super) part: PartIdx,
    pub(super) layer: usize,
}

/// Sends layers to every worker that gets pages of them: what goes to one worker goes as one batch. Does nothing for a request
/// that failed or was dropped. `thread` is who asks, for the log.
pub(super) fn send(layers: &[LayerOf<'_>], thread: u32) {
    let mut together: BTreeMap<PeerId, Vec<Addressed<'_>>> = BTreeMap::new();
    let mut apart = Vec::new();
    for (idx, &LayerOf { context, part: part_idx, layer }) in layers.iter().enumerate() {
        let Some(part) = context.lock().parts.get(part_idx.0).map(Arc::clone) else { continue };
        for share in &part.shares {
            let Some(route) = context.decode.workers().get(share.worker as usize) else { continue };
            match context.portion(part_idx, layer, share, thread) {
                // Where bytes arrive behind their completion, only the last block of a batch tells that they have: each
                // portion's word is that.
                Ok(Some(portion)) if context.shared.delivers_late => {
                    apart.push((route.peer, vec![Addressed { idx, context, portion }]));
                }
                Ok(Some(portion)) => {
                    together.entry(route.peer).or_default().push(Addressed { idx, context, portion });
                }
                Ok(None) => {}
                Err(cause) => context.fail(cause),
            }
        }
    }
    let mut sent = vec![false; layers.len()];
    for (peer, bundle) in together.into_iter().chain(apart) {
        post_together(peer, bundle).into_iter().for_each(|idx| sent[idx] = true);
    }
    for (LayerOf { context, .. }, has_sent) in iter::zip(layers, sent) {
        context.lock().sent.num_layers += u64::from(has_sent);
    }
}

/// Gives the engine one portion.
pub(super) fn post(context: &Arc<Context>, portion: Portion) {
    if let Some(route) = context.decode.workers().get(portion.worker as usize) {
        post_together(route.peer, vec![Addressed { idx: 0, context, portion }]);
    }
}

/// A portion, and of which of the layers it is.
struct Addressed<'a> {
    idx: usize,
    context: &'a Arc<Context>,
    portion: Portion,
}

/// A portion that is among the request's batches in flight, by its number there.
struct Posted<'a> {
    addressed: Addressed<'a>,
    number: u64,
}

/// Gives the engine portions to one worker as one batch: the blocks of each, and behind them its epoch word. Returns which went;
/// the requests of the others have failed, or had already.
fn post_together(peer: PeerId, bundle: Vec<Addressed<'_>>) -> Vec<usize> {
    let mut posted = Vec::with_capacity(bundle.len());
    for mut addressed in bundle {
        match addressed.context.prepare(&mut addressed.portion) {
            Ok(number) => posted.push(Posted { addressed, number }),
            Err(refusal) => addressed.context.refused(addressed.portion, refusal),
        }
    }
    let Some(Posted { addressed: Addressed { context, .. }, .. }) = posted.first() else { return Vec::new() };
    let engine = Arc::clone(&context.shared.engine);
    let blocks = posted.iter().flat_map(|posted| &posted.addressed.portion.blocks).copied();
    let blocks: Vec<Block> = blocks.collect();
    let engine_batch = match guarded::submit(&*engine, peer, &blocks) {
        Submitted::Taken(batch) => EngineBatch::new(batch, posted.len()),
        Submitted::Unknown(error) => EngineBatch::unknown(error, posted.len()),
        Submitted::Refused(source) if posted.len() == 1 || is_of_peer(&source) => {
            posted.into_iter().for_each(|posted| posted.not_taken(source.clone()));
            return Vec::new();
        }
        // Nothing of it is in flight. One request's blocks must not fail the others'.
        Submitted::Refused(_) => {
            return posted.into_iter().filter_map(|posted| posted.alone(&*engine, peer)).collect();
        }
    };
    let (engine_batch, now_ns) = (Arc::new(engine_batch), context.shared.clock.now_ns());
    posted.iter().for_each(|posted| posted.took(&engine_batch, now_ns));
    posted.into_iter().map(|posted| posted.addressed.idx).collect()
}

/// Whether it is the peer that a submit failed for, whatever the blocks.
const fn is_of_peer(error: &EngineError) -> bool {
    matches!(error.problem, EngineProblem::PeerLost { .. } | EngineProblem::UnknownPeer)
}

impl Posted<'_> {
    /// Gives the engine this portion alone; which it is, if it went.
    fn alone(self, engine: &dyn TransferEngine, peer: PeerId) -> Option<usize> {
        // The submits before it took their time: the request may have failed, or the group been poisoned.
        if let Err(refusal) = self.renew() {
            let Addressed { context, portion, .. } = self.addressed;
            context.lock().flights.retain(|flight| flight.number != self.number);
            context.refused(portion, refusal);
            return None;
        }
        let engine_batch = match guarded::submit(engine, peer, &self.addressed.portion.blocks) {
            Submitted::Taken(batch) => EngineBatch::new(batch, 1),
            Submitted::Unknown(error) => EngineBatch::unknown(error, 1),
            Submitted::Refused(source) => {
                self.not_taken(source);
                return None;
            }
        };
        self.took(&Arc::new(engine_batch), self.addressed.context.shared.clock.now_ns());
        Some(self.addressed.idx)
    }

    /// What was true when it was prepared, once more; its deadline is counted from now.
    fn renew(&self) -> Result<(), Refusal> {
        let Addressed { context, portion, .. } = &self.addressed;
        context.shared.check_poison(portion.payload).map_err(Refusal::Because)?;
        let clock = &*context.shared.clock;
        let mut state = context.lock();
        if !state.may_send() {
            return Err(Refusal::HadFailed);
        }
        if let Some(flight) = state.flights.iter_mut().find(|flight| flight.number == self.number) {
            flight.until = Until::after(clock, context.shared.options.transfer_timeout);
            flight.span.submit_ns = clock.now_ns();
        }
        Ok(())
    }

    /// The engine has it.
    fn took(&self, engine_batch: &Arc<EngineBatch>, now_ns: u64) {
        let Addressed { context, portion, .. } = &self.addressed;
        let mut state = context.lock();
        // Nobody takes a batch away that has no engine batch yet.
        let Some(flight) = state.flights.iter_mut().find(|flight| flight.number == self.number) else {
            return;
        };
        flight.engine_batch = Some(Arc::clone(engine_batch));
        flight.span.submitted_ns = now_ns;
        let (bytes, num_blocks) = (flight.span.bytes, u64::from(flight.span.num_blocks));
        let num_pages = flight.pages.as_ref().map_or(0, |(.., which)| which.len() as u64);
        if let Some(of_worker) = state.pages.get_mut(portion.worker as usize) {
            *of_worker += num_pages;
        }
        state.sent.num_pages += num_pages;
        state.sent.bytes += bytes;
        state.sent.num_batches += 1;
        state.sent.num_blocks += num_blocks;
        state.sent.num_unmerged += portion.num_unmerged;
    }

    /// The engine does not.
    fn not_taken(self, source: EngineError) {
        let Addressed { context, portion, .. } = self.addressed;
        let mut state = context.lock();
        state.flights.retain(|flight| flight.number != self.number);
        state.counts.submit_failures += 1;
        drop(state);
        let payload = portion.payload;
        context.refused(portion, Refusal::Because(Cause::Submit { payload, source }));
    }
}

impl Context {
    /// Claims a worker's share of a layer; `None` where there is nothing to send, or nothing may be sent any more.
    fn portion(
        &self,
        idx: PartIdx,
        layer: usize,
        share: &Share,
        thread: u32,
    ) -> Result<Option<Portion>, Cause> {
        let Some(route) = self.decode.workers().get(share.worker as usize) else { return Ok(None) };
        let source = &self.shared.source.pool;
        let mut blocks = Vec::new();
        build_layer_blocks(layer, source, &route.pool, &share.runs, &mut blocks)?;
        let num_buffers = source.layers.get(layer).map_or(0, Vec::len);
        let mut state = self.lock();
        if !state.may_send() {
            return Ok(None);
        }
        state.ledger.claim(idx, layer, &share.which)?;
        if blocks.is_empty() {
            // A layer without buffers: complete at once.
            state.ledger.settle(idx, layer, &share.which)?;
            return Ok(None);
        }
        Ok(Some(Portion {
            payload: Payload::Layer(layer),
            worker: share.worker,
            thread,
            pages: Some((idx, layer, share.which.clone())),
            num_unmerged: (num_buffers * share.which.len()) as u64,
            has_word: true,
            blocks,
        }))
    }

    /// Everything before the engine is asked: the poison, behind the event and right before the submit, so that what was
    /// written under poison is not sent; the epoch word; and the batch among those in flight, with its deadline.
    fn prepare(&self, portion: &mut Portion) -> Result<u64, Refusal> {
        let Portion { payload, worker, thread, num_unmerged, .. } = *portion;
        let place = worker as usize;
        let Some(inbox) = self.offer.inboxes.get(place) else { return Err(Refusal::HadFailed) };
        self.shared.check_poison(payload).map_err(Refusal::Because)?;
        let bytes = portion.blocks.iter().map(|block| block.bytes).sum();
        let num_blocks = portion.blocks.len() as u32;
        let mut state = self.lock();
        if !state.may_send() {
            return Err(Refusal::HadFailed);
        }
        if let Some(word) = state.words.get_mut(place).filter(|_| portion.has_word) {
            if *word >= inbox.num_words {
                return Err(Refusal::Because(Cause::Words { payload, num_words: inbox.num_words }));
            }
            let dst = inbox.word_addr(self.shared.source.rank.0, *word);
            portion.blocks.push(Block { src: self.outbox.word_addr(), dst, bytes: WORD_BYTES });
            *word += 1;
        }
        let clock = &*self.shared.clock;
        let submit_ns = clock.now_ns();
        let span = BatchSpan {
            request: self.id(),
            payload,
            worker,
            thread,
            submit_ns,
            submitted_ns: submit_ns,
            done_ns: None,
            bytes,
            num_blocks,
            num_unmerged: num_unmerged as u32,
        };
        let number = state.num_flights;
        state.num_flights += 1;
        let until = Until::after(clock, self.shared.options.transfer_timeout);
        let pages = portion.pages.clone();
        state.flights.push(Flight { number, engine_batch: None, pages, until, is_late: false, span });
        Ok(number)
    }

    /// The engine does not have the batch.
    fn refused(&self, portion: Portion, refusal: Refusal) {
        let mut state = self.lock();
        state.enter(&portion.pages, Ledger::give_back);
        if let Refusal::Because(cause) = refusal {
            state.fail(cause);
        }
    }
}

/// Why a batch was not given to the engine, or not taken by it.
enum Refusal {
    /// The request had failed, or was dropped.
    HadFailed,
    /// This fails it.
    Because(Cause),
}
