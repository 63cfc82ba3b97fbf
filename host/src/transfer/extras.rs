//! What goes behind a request's pages: the small extra buffers, and the completion records.

use std::sync::Arc;

use super::blocks::Block;
use super::context::Context;
use super::failure::Payload;
use super::record::{CompletionRecord, RECORD_BYTES};
use super::send::{self, Portion};

/// A small extra buffer of a request: first token, sampling metadata, recurrent state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxBlock {
    /// The decode worker.
    pub worker: u32,
    /// From where, in memory registered here, to where in the worker's.
    pub block: Block,
}

impl Context {
    /// Sends the small extra buffers.
    pub(super) fn send_aux(self: &Arc<Self>, aux: &[AuxBlock], thread: u32) {
        for worker in 0..self.decode.workers().len() as u32 {
            let of_worker = aux.iter().filter(|aux| aux.worker == worker);
            let blocks: Vec<Block> = of_worker.map(|aux| aux.block).collect();
            if !blocks.is_empty() {
                let (payload, num_unmerged) = (Payload::Aux, blocks.len() as u64);
                send::post(
                    self,
                    Portion { payload, worker, thread, pages: None, blocks, num_unmerged, has_word: true },
                );
            }
        }
    }

    /// One record to every worker, also from a rank that had no page for it.
    pub(super) fn send_records(self: &Arc<Self>, thread: u32) {
        let mut state = self.lock();
        if !state.may_send() {
            return;
        }
        // Who drops the request from now on waits: its outbox would be another's.
        state.num_writers += 1;
        drop(state);
        self.write_records(thread);
        self.lock().num_writers -= 1;
    }

    fn write_records(self: &Arc<Self>, thread: u32) {
        let source = &self.shared.source;
        for (worker, inbox) in (0..).zip(&self.offer.inboxes) {
            let state = self.lock();
            let record = CompletionRecord::complete(
                self.offer.request,
                self.offer.epoch,
                (source.rank.0, source.group_size.get()),
                source.pool.num_layers() as u32,
                state.pages.get(worker as usize).copied().unwrap_or(0),
                state.words.get(worker as usize).copied().unwrap_or(0),
            );
            drop(state);
            let src = match self.outbox.write_record(&*self.shared.device, worker, record) {
                Ok(src) => src,
                Err(error) => return self.fail(error.into()),
            };
            let dst = inbox.record_addr(source.rank.0);
            let blocks = vec![Block { src, dst, bytes: RECORD_BYTES }];
            let payload = Payload::Record;
            send::post(
                self,
                Portion { payload, worker, thread, pages: None, blocks, num_unmerged: 1, has_word: false },
            );
        }
    }
}
