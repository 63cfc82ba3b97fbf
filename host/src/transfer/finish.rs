//! The end of requests: what finish does, step by step, of as many as it was asked to at a time, and a
//! [poll](super::polled) of one.
//!
//! | step of a request | waits for | if it never comes |
//! |---|---|---|
//! | close to hooks, and take what was never handed in | nothing | |
//! | *layers*: have the workers send that, behind the event after the forward; all batches done | workers, who wait for events; the engine | they fail the request at the event's or the batch's deadline; else finish's own, which a poll has none of |
//! | *aux*: the aux blocks, done | workers, the engine | the same |
//! | *records*: the completion records, done | workers, the engine | the same |
//!
//! A request that is through with a step does not wait for the others. Any failure ends it, with the first cause. The answer
//! is kept: who asks again gets the same.

use std::iter;
use std::sync::Arc;

use super::board::{Closed, Work};
use super::clock::Until;
use super::context::{Context, State};
use super::desk::Desk;
use super::extras::AuxBlock;
use super::failure::Cause;
use super::ledger::PageState;
use super::wait::{await_true, late};
use crate::device::Event;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Layers,
    Aux,
    Records,
}

/// A request on its way to its end.
pub(super) struct Ending {
    pub(super) context: Arc<Context>,
    step: Step,
    aux: Vec<AuxBlock>,
    /// Behind everything that was queued on the stream when it began.
    now: Arc<dyn Event>,
    /// What the workers are through with behind this step: layers, aux blocks and records.
    num_layers: u32,
    num_extras: u32,
}

impl Ending {
    /// Begins to end a request that is closed to hooks.
    pub(super) fn begin(
        desk: &Desk,
        context: Arc<Context>,
        closed: Closed,
        now: Arc<dyn Event>,
        aux: Vec<AuxBlock>,
    ) -> Self {
        let Closed { unfired, end } = closed;
        unfired.iter().for_each(|_| context.count_enqueued());
        let layers = unfired.into_iter().map(|(part, layer)| Work::Layer(part, layer));
        desk.put(&context, layers, Some(end.as_ref().unwrap_or(&now)));
        let num_layers = context.num_enqueued();
        Self { context, step: Step::Layers, aux, now, num_layers, num_extras: 0 }
    }

    /// Goes on as far as it can without waiting; whether it is over, and its answer kept.
    pub(super) fn advance(&mut self, desk: &Desk) -> bool {
        loop {
            let mut state = self.context.lock();
            if !state.may_send() {
                self.context.keep(&mut state);
                return true;
            }
            let is_through = state.counts.processed >= self.num_layers && state.num_extras >= self.num_extras;
            if !is_through || !state.is_idle() {
                return false;
            }
            if let Err(cause) = state.check_complete() {
                state.fail(cause);
                self.context.keep(&mut state);
                return true;
            }
            if self.step == Step::Records {
                // Under the lock: who drops it from now on drops what is finished.
                self.context.keep(&mut state);
                return true;
            }
            drop(state);
            self.step = match self.step {
                Step::Layers if !self.aux.is_empty() => {
                    // What is sampled behind the forward is written by now.
                    let aux = std::mem::take(&mut self.aux);
                    let now = Arc::clone(&self.now);
                    self.put(desk, Work::Aux(aux), Some(&now));
                    Step::Aux
                }
                _ => {
                    // The record says that writes are complete: it waits for them, and for no event.
                    self.put(desk, Work::Records, None);
                    Step::Records
                }
            };
        }
    }

    fn put(&mut self, desk: &Desk, work: Work, event: Option<&Arc<dyn Event>>) {
        self.num_extras += 1;
        desk.put(&self.context, iter::once(work), event);
    }
}

/// Carries requests to their ends, side by side, and keeps each answer as soon as there is one.
pub(super) fn carry_out(desk: &Desk, mut endings: Vec<Ending>, until: Until) {
    if endings.is_empty() {
        return;
    }
    let mut open: Vec<&mut Ending> = endings.iter_mut().collect();
    await_true(desk, until, || {
        open.retain_mut(|ending| !ending.advance(desk));
        open.is_empty()
    });
    for Ending { context, .. } in open {
        let mut state = context.lock();
        let cause = late(desk, &state, until);
        state.fail(cause);
        context.keep(&mut state);
    }
    // Other callers that finish or drop the same requests.
    desk.tell(&mut desk.lock());
}

impl State {
    /// Refuses to say that a request is complete while a page of it is not.
    fn check_complete(&self) -> Result<(), Cause> {
        let missing =
            self.num(PageState::Unsent) + self.num(PageState::InFlight) + self.num(PageState::Unknown);
        if missing == 0 {
            return Ok(());
        }
        Err(Cause::Incomplete { missing })
    }
}
