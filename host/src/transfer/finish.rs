//! The end of a request: what finish and drop do, step by step. The engine is asked by workers alone, so that whatever it
//! does, the caller comes back at his deadline.
//!
//! | step of finish | waits for | if it never comes |
//! |---|---|---|
//! | close to hooks, and take what was never handed in | nothing | |
//! | have the workers send that, behind the event after the forward | workers, who wait for events | they fail the request at the event's deadline; else finish's own |
//! | all batches done | the engine | the batch's deadline, or finish's own |
//! | aux blocks, done; then the completion records, done | workers, the engine | the same |
//!
//! Any failure ends it, with the first cause. The answer is kept: who asks again gets the same.

use std::sync::Arc;
use std::time::Duration;

use super::blocks::Block;
use super::board::{Closed, Work};
use super::clock::Until;
use super::context::{Context, Sent, State};
use super::desk::Desk;
use super::failure::{Cause, Payload, TransferError};
use super::ledger::PageState;
use super::record::{CompletionRecord, RECORD_BYTES};
use super::send::Letter;
use super::threads;
use crate::device::Event;

/// The longest and the shortest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_micros(200);
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);

/// A small extra buffer of a request: first token, sampling metadata, recurrent state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxBlock {
    /// The decode worker.
    pub worker: u32,
    /// From where, in memory registered here, to where in the worker's.
    pub block: Block,
}

/// Waits until `done` says so of the request; whether it did before `until`. Where there are no threads, the caller works.
fn await_state(desk: &Desk, context: &Context, until: Until, done: impl Fn(&State) -> bool) -> bool {
    let clock = &*desk.shared.clock;
    let mut pause = SHORTEST_PAUSE;
    loop {
        if done(&context.lock()) {
            return true;
        }
        if until.has_passed(clock) {
            return false;
        }
        if desk.shared.options.num_threads == 0 {
            let has_stepped = threads::step(desk);
            desk.look();
            if has_stepped {
                continue;
            }
        }
        clock.pause(pause);
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// Carries a closed request to its end and keeps the answer. `now` is behind everything queued so far.
pub(super) fn finish(
    desk: &Desk,
    context: &Arc<Context>,
    closed: Closed,
    now: &Arc<dyn Event>,
    aux: &[AuxBlock],
    until: Until,
) -> Result<Sent, TransferError> {
    if let Err(cause) = send_rest(desk, context, closed, now, aux, until) {
        context.fail(cause);
    }
    keep_outcome(context)
}

/// The answer as it stands, kept.
pub(super) fn keep_outcome(context: &Context) -> Result<Sent, TransferError> {
    let mut state = context.lock();
    let outcome = context.error(&state).map_or(Ok(state.sent), Err);
    state.outcome.insert(outcome).clone()
}

/// Everything that is not sent yet, in the order of the table above.
fn send_rest(
    desk: &Desk,
    context: &Arc<Context>,
    closed: Closed,
    now: &Arc<dyn Event>,
    aux: &[AuxBlock],
    until: Until,
) -> Result<(), Cause> {
    let Closed { unfired, end } = closed;
    unfired.iter().for_each(|_| context.count_enqueued());
    let layers = unfired.into_iter().map(|(part, layer)| Work::Layer(part, layer));
    desk.put(context, layers, Some(end.as_ref().unwrap_or(now)));
    let num_layers = context.num_enqueued();
    step(desk, context, until, |state| state.counts.processed >= num_layers)?;
    let mut num_extras = 0;
    if !aux.is_empty() {
        num_extras += 1;
        // What is sampled behind the forward is written by now.
        desk.put(context, std::iter::once(Work::Aux(aux.to_vec())), Some(now));
        step(desk, context, until, |state| state.num_extras >= num_extras)?;
    }
    context.lock().check_complete()?;
    // The record says that writes are complete: it waits for them, and for no event.
    num_extras += 1;
    desk.put(context, std::iter::once(Work::Records), None);
    step(desk, context, until, |state| state.num_extras >= num_extras)
}

/// Waits until the workers are through with what they were handed, and the engine with what they gave it; or until the
/// request failed.
fn step(
    desk: &Desk,
    context: &Context,
    until: Until,
    is_through: impl Fn(&State) -> bool,
) -> Result<(), Cause> {
    let done = |state: &State| !state.may_send() || (is_through(state) && state.is_idle());
    if await_state(desk, context, until, done) {
        return Ok(());
    }
    let (payload, worker) = context.lock().awaited();
    Err(Cause::Deadline { payload, worker, waited_ms: until.waited_ms(&*desk.shared.clock) })
}

/// Waits until the engine has nothing of a stopped request. What was lost does not become quiet by waiting.
pub(super) fn await_idle(desk: &Desk, context: &Context, until: Until) {
    await_state(desk, context, until, State::is_idle);
}

/// Waits for the answer that another caller of finish will get.
pub(super) fn await_outcome(desk: &Desk, context: &Context, until: Until) -> Result<Sent, TransferError> {
    await_state(desk, context, until, |state| state.outcome.is_some());
    let state = context.lock();
    if let Some(outcome) = &state.outcome {
        return outcome.clone();
    }
    let waited_ms = until.waited_ms(&*desk.shared.clock);
    let (payload, worker) = state.awaited();
    let deadline = Cause::Deadline { payload, worker, waited_ms };
    let cause = Box::new(state.failure().cloned().unwrap_or(deadline));
    Err(TransferError { request: context.id(), cause, counts: context.counts(&state) })
}

impl Context {
    /// Sends the small extra buffers.
    pub(super) fn send_aux(&self, aux: &[AuxBlock], thread: u32) {
        for worker in 0..self.decode.workers().len() as u32 {
            let of_worker = aux.iter().filter(|aux| aux.worker == worker);
            let blocks: Vec<Block> = of_worker.map(|aux| aux.block).collect();
            if !blocks.is_empty() {
                let (payload, num_unmerged) = (Payload::Aux, blocks.len() as u64);
                self.post(Letter {
                    payload,
                    worker,
                    thread,
                    pages: None,
                    blocks,
                    num_unmerged,
                    has_word: true,
                });
            }
        }
    }

    /// One record to every worker, also from a rank that had no page for it.
    pub(super) fn send_records(&self, thread: u32) {
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
            self.post(Letter {
                payload,
                worker,
                thread,
                pages: None,
                blocks,
                num_unmerged: 1,
                has_word: false,
            });
        }
    }
}

impl State {
    /// Refuses to say that a request is complete while a page of it is not.
    fn check_complete(&self) -> Result<(), Cause> {
        let missing =
            self.num(PageState::Unsent) + self.num(PageState::InFlight) + self.num(PageState::Unknown);
        if missing == 0 || !self.may_send() {
            return Ok(());
        }
        Err(Cause::Incomplete { missing })
    }
}
