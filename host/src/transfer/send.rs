//! Sending: a layer's pages are claimed, the engine is asked, and what it took is in flight. The engine is asked outside of
//! the request's lock.

use std::sync::Arc;

use super::blocks::{Block, build_layer_blocks};
use super::clock::Until;
use super::context::Context;
use super::engine::PeerId;
use super::failure::{Cause, Payload};
use super::flight::{Flight, Pages};
use super::ledger::PartIdx;
use super::log::BatchSpan;
use super::record::WORD_BYTES;
use super::route::Share;

/// A batch to be posted.
pub(super) struct Letter {
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

impl Context {
    /// Sends `layer` of a part to every worker that gets pages of it. Does nothing where the request failed or was
    /// dropped. `thread` is who asks, for the log.
    pub(super) fn send(&self, idx: PartIdx, layer: usize, thread: u32) {
        let Some(part) = self.lock().parts.get(idx.0).map(Arc::clone) else { return };
        let mut has_sent = false;
        for share in &part.shares {
            match self.letter(idx, layer, share, thread) {
                Ok(Some(letter)) => has_sent |= self.post(letter),
                Ok(None) => {}
                Err(cause) => self.fail(cause),
            }
        }
        self.lock().sent.num_layers += u64::from(has_sent);
    }

    /// Claims a worker's share of a layer; `None` where there is nothing to send, or nothing may be sent any more.
    fn letter(
        &self,
        idx: PartIdx,
        layer: usize,
        share: &Share,
        thread: u32,
    ) -> Result<Option<Letter>, Cause> {
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
            state.ledger.settle(idx, layer, &share.which);
            return Ok(None);
        }
        Ok(Some(Letter {
            payload: Payload::Layer(layer),
            worker: share.worker,
            thread,
            pages: Some((idx, layer, share.which.clone())),
            num_unmerged: (num_buffers * share.which.len()) as u64,
            has_word: true,
            blocks,
        }))
    }

    /// Gives the engine a batch: the blocks, and behind them the epoch word. Whether it took it; if not, the request has
    /// failed, or had already.
    pub(super) fn post(&self, mut letter: Letter) -> bool {
        let (number, peer) = match self.prepare(&mut letter) {
            Ok(prepared) => prepared,
            Err(refusal) => {
                self.refused(letter, refusal);
                return false;
            }
        };
        let submitted = self.shared.engine.submit(peer, &letter.blocks);
        let now_ns = self.shared.clock.now_ns();
        let mut state = self.lock();
        let idx = state.flights.iter().position(|flight| flight.number == number);
        match (submitted, idx) {
            (Ok(batch), Some(idx)) => {
                let flight = &mut state.flights[idx];
                flight.batch = Some(batch);
                flight.span.submitted_ns = now_ns;
                let (bytes, num_blocks) = (flight.span.bytes, u64::from(flight.span.num_blocks));
                let num_pages = flight.pages.as_ref().map_or(0, |(.., which)| which.len() as u64);
                if let Some(of_worker) = state.pages.get_mut(letter.worker as usize) {
                    *of_worker += num_pages;
                }
                state.sent.num_pages += num_pages;
                state.sent.bytes += bytes;
                state.sent.num_batches += 1;
                state.sent.num_blocks += num_blocks;
                state.sent.num_unmerged += letter.num_unmerged;
                true
            }
            // Nobody takes a batch away that has no id yet.
            (Ok(_), None) => true,
            (Err(source), idx) => {
                if let Some(idx) = idx {
                    state.flights.swap_remove(idx);
                }
                state.counts.submit_failures += 1;
                drop(state);
                let payload = letter.payload;
                self.refused(letter, Refusal::Because(Cause::Submit { payload, source }));
                false
            }
        }
    }

    /// Everything before the engine is asked: the poison, behind the event and right before the submit, so that what was
    /// written under poison is not sent; the epoch word; and the batch among those in flight, with its deadline.
    fn prepare(&self, letter: &mut Letter) -> Result<(u64, PeerId), Refusal> {
        let Letter { payload, worker, thread, num_unmerged, .. } = *letter;
        let place = worker as usize;
        let (Some(route), Some(inbox)) = (self.decode.workers().get(place), self.offer.inboxes.get(place))
        else {
            return Err(Refusal::HadFailed);
        };
        self.shared.check_poison(payload).map_err(Refusal::Because)?;
        let bytes = letter.blocks.iter().map(|block| block.bytes).sum();
        let num_blocks = letter.blocks.len() as u32;
        let mut state = self.lock();
        if !state.may_send() {
            return Err(Refusal::HadFailed);
        }
        if let Some(word) = state.words.get_mut(place).filter(|_| letter.has_word) {
            if *word >= inbox.num_words {
                return Err(Refusal::Because(Cause::Words { payload, num_words: inbox.num_words }));
            }
            let dst = inbox.word_addr(self.shared.source.rank.0, *word);
            letter.blocks.push(Block { src: self.outbox.word_addr(), dst, bytes: WORD_BYTES });
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
        let pages = letter.pages.clone();
        state.flights.push(Flight {
            number,
            batch: None,
            pages,
            until,
            is_late: false,
            is_asked: false,
            span,
        });
        Ok((number, route.peer))
    }

    /// The engine does not have the batch.
    fn refused(&self, letter: Letter, refusal: Refusal) {
        let mut state = self.lock();
        if let Some((part, layer, which)) = letter.pages {
            state.ledger.give_back(part, layer, &which);
        }
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
