//! The board: which requests are registered, which layers their hooks handed in, and what the workers are to do. Under one
//! lock that the forward's thread takes: it is held for a few pushes, for what a part adds to its request's ledger, and for one
//! question about each event that is waited for; never while an engine is asked. Pure but for that.
//!
//! A request on the board is *open* (hooks are taken), then *closed* by `finish` or drop, in one step with the question what
//! was never handed in: a late hook and `finish` cannot both send a layer, nor neither.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::clock::{Clock, Until};
use super::context::Context;
use super::extras::AuxBlock;
use super::failure::{Cause, Payload};
use super::ids::RequestId;
use super::ledger::PartIdx;
use super::pace::Pace;
use crate::device::Event;

/// What a worker is to send.
pub(super) enum Work {
    /// A layer of a part.
    Layer(PartIdx, usize),
    /// Small extra buffers.
    Aux(Vec<AuxBlock>),
    /// The completion records.
    Records,
}

impl Work {
    /// What it is, in a failure.
    pub(super) const fn payload(&self) -> Payload {
        match self {
            Self::Layer(_, layer) => Payload::Layer(*layer),
            Self::Aux(_) => Payload::Aux,
            Self::Records => Payload::Record,
        }
    }
}

/// Something of a request to be sent, once its event has fired.
pub(super) struct Job {
    pub(super) context: Arc<Context>,
    pub(super) work: Work,
    pub(super) event: Option<Arc<dyn Event>>,
    /// When the event is late.
    pub(super) until: Until,
}

impl Job {
    /// Whether there is nothing to wait for: the event fired, or is late, or the request failed.
    fn is_ready<'a>(&'a self, clock: &dyn Clock, last: &mut Asked<'a>) -> bool {
        let has_fired = self.event.as_ref().is_none_or(|event| last.has_fired(event));
        has_fired || self.until.has_passed(clock) || !self.context.lock().may_send()
    }
}

/// The event that was asked about last: all layers that `finish` hands in wait for one.
#[derive(Default)]
struct Asked<'a>(Option<(&'a Arc<dyn Event>, bool)>);

impl<'a> Asked<'a> {
    fn has_fired(&mut self, event: &'a Arc<dyn Event>) -> bool {
        match self.0 {
            Some((last, has_fired)) if Arc::ptr_eq(last, event) => has_fired,
            _ => self.0.insert((event, event.query())).1,
        }
    }
}

/// Requests whose layer is sent together, at most.
const MAX_TOGETHER: usize = 64;

/// What a worker finds on the board.
pub(super) enum Next {
    /// Something to send now: one thing, or the same layer of several requests.
    Jobs(Vec<Job>),
    /// What the first of the jobs waits for.
    Event(Arc<dyn Event>),
    /// Nothing.
    Nothing,
}

/// The part that the forward is computing.
struct OpenPart {
    part: PartIdx,
    /// By layer: whether its hook fired.
    fired: Vec<bool>,
}

struct Entry {
    context: Arc<Context>,
    open: Option<OpenPart>,
    /// Layers that no hook handed in, of parts that are computed.
    unfired: Vec<(PartIdx, usize)>,
    is_closed: bool,
    /// Behind the last forward that computed a part of it.
    end: Option<Arc<dyn Event>>,
}

/// What was never handed in when a request was closed.
#[derive(Default)]
pub(super) struct Closed {
    pub(super) unfired: Vec<(PartIdx, usize)>,
    pub(super) end: Option<Arc<dyn Event>>,
}

/// The board.
#[derive(Default)]
pub(super) struct Board {
    entries: HashMap<RequestId, Entry>,
    /// What hooks handed in. The events are of one stream, and fire in this order.
    jobs: VecDeque<Job>,
    /// What `finish` has the workers send: not behind the layers of a forward that is queued meanwhile.
    endings: VecDeque<Job>,
    /// A worker waits for the event of the first job; the others look after the rest.
    pub(super) is_awaited: bool,
    /// Threads that wait for a job: none is woken that would find out by itself.
    pub(super) num_idle: u32,
    /// When the engine is asked about what is in flight.
    pub(super) pace: Pace,
    /// Counts what callers may wait for: what workers did, and looks that found something.
    pub(super) num_steps: u64,
    num_looks: u64,
}

impl Board {
    pub(super) fn num_requests(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn has(&self, id: RequestId) -> bool {
        self.entries.contains_key(&id)
    }

    pub(super) fn context(&self, id: RequestId) -> Option<Arc<Context>> {
        self.entries.get(&id).map(|entry| Arc::clone(&entry.context))
    }

    pub(super) fn contexts(&self) -> Vec<Arc<Context>> {
        self.entries.values().map(|entry| Arc::clone(&entry.context)).collect()
    }

    pub(super) fn insert(&mut self, context: Arc<Context>) {
        let entry = Entry {
            context: Arc::clone(&context),
            open: None,
            unfired: Vec::new(),
            is_closed: false,
            end: None,
        };
        self.entries.insert(context.id(), entry);
    }

    /// Every request, and the number of the look at what they have in flight: from 1.
    pub(super) fn begin_look(&mut self) -> (Vec<Arc<Context>>, u64) {
        self.num_looks += 1;
        (self.contexts(), self.num_looks)
    }

    /// Looks that have begun.
    pub(super) const fn num_looks(&self) -> u64 {
        self.num_looks
    }

    /// Removes a request, if it is still this one; whether it was.
    pub(super) fn remove(&mut self, context: &Arc<Context>) -> bool {
        let is_it = self.is_there(context);
        if is_it {
            self.entries.remove(&context.id());
        }
        is_it
    }

    /// Whether the request of that number is this one: it may have been dropped, and its number registered anew.
    pub(super) fn is_there(&self, context: &Arc<Context>) -> bool {
        self.entries.get(&context.id()).is_some_and(|entry| Arc::ptr_eq(&entry.context, context))
    }

    /// What is left to be sent.
    pub(super) fn num_jobs(&self) -> usize {
        self.jobs.len() + self.endings.len()
    }

    /// Requests of which something should have been sent by now, and why it was not.
    pub(super) fn late(&self, clock: &dyn Clock) -> Vec<(Arc<Context>, Cause)> {
        let jobs = self.jobs.iter().chain(&self.endings).filter(|job| job.until.has_passed(clock));
        let late = jobs.map(|job| {
            let (payload, waited_ms) = (job.work.payload(), job.until.waited_ms(clock));
            let cause = match job.event.as_ref().is_none_or(|event| event.query()) {
                true => Cause::NoThread { payload, waited_ms },
                false => Cause::EventTimeout { payload, waited_ms },
            };
            (Arc::clone(&job.context), cause)
        });
        late.collect()
    }

    /// Whether anything is left to be sent.
    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty() || !self.endings.is_empty()
    }

    /// Whether a forward has begun and not ended.
    pub(super) fn is_in_forward(&self) -> bool {
        let mut open = self.entries.values().filter_map(|entry| entry.open.as_ref());
        open.any(|open| open.fired.contains(&true))
    }

    /// Whether a request is being finished or dropped.
    pub(super) fn is_closed(&self, id: RequestId) -> bool {
        self.entries.get(&id).is_none_or(|entry| entry.is_closed)
    }

    /// Whether the forward that computes a part of the request has not ended.
    pub(super) fn is_open(&self, id: RequestId) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.open.is_some())
    }

    /// Layers of a part that `finish` is to send.
    pub(super) fn leave_to_finish(
        &mut self,
        id: RequestId,
        part: PartIdx,
        layers: impl Iterator<Item = usize>,
    ) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.unfired.extend(layers.map(|layer| (part, layer)));
        }
    }

    /// Layers of a part that are complete once `event` has fired.
    pub(super) fn enqueue(
        &mut self,
        id: RequestId,
        part: PartIdx,
        layers: impl Iterator<Item = usize>,
        event: &Arc<dyn Event>,
        until: Until,
    ) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| !entry.is_closed) else { return };
        for layer in layers {
            entry.context.count_enqueued();
            let (context, event) = (Arc::clone(&entry.context), Arc::clone(event));
            self.jobs.push_back(Job { context, work: Work::Layer(part, layer), event: Some(event), until });
        }
    }

    /// What `finish` has the workers send.
    pub(super) fn put(&mut self, job: Job) {
        self.endings.push_back(job);
    }

    /// The part that was open is computed. Whether one was; `None` where the request is closed. What `finish` sends of it waits
    /// for another event than that of an earlier forward.
    pub(super) fn end_part(&mut self, id: RequestId) -> Option<bool> {
        let entry = self.entries.get_mut(&id).filter(|entry| !entry.is_closed)?;
        let was_open = entry.open.is_some();
        if was_open {
            entry.end = None;
        }
        entry.end_part();
        Some(was_open)
    }

    /// From now on hooks of the first `num_layers` layers hand in this part.
    pub(super) fn open(&mut self, id: RequestId, part: PartIdx, num_layers: usize) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.open = Some(OpenPart { part, fired: vec![false; num_layers] });
        }
    }

    /// A hook: hands in `layer` of every open part, once. Returns how many were handed in.
    pub(super) fn hook(&mut self, layer: usize, event: &Arc<dyn Event>, until: Until) -> usize {
        let Self { entries, jobs, .. } = self;
        let before = jobs.len();
        for entry in entries.values_mut().filter(|entry| !entry.is_closed) {
            let Some(open) = &mut entry.open else { continue };
            let Some(fired) = open.fired.get_mut(layer) else { continue };
            if !std::mem::replace(fired, true) {
                entry.context.count_enqueued();
                let (context, event) = (Arc::clone(&entry.context), Arc::clone(event));
                let work = Work::Layer(open.part, layer);
                jobs.push_back(Job { context, work, event: Some(event), until });
            }
        }
        jobs.len() - before
    }

    /// The forward ended, and `event` is behind it. Returns whose parts it had computed.
    pub(super) fn end_forward(&mut self, event: &Arc<dyn Event>) -> Vec<Arc<Context>> {
        let mut ended = Vec::new();
        for entry in self.entries.values_mut().filter(|entry| entry.open.is_some()) {
            entry.end_part();
            entry.end = Some(Arc::clone(event));
            ended.push(Arc::clone(&entry.context));
        }
        ended
    }

    /// Closes a request to hooks. Returns what it left, to the first who asks, and whether a part was open.
    pub(super) fn close(&mut self, id: RequestId) -> Option<(Closed, bool)> {
        let entry = self.entries.get_mut(&id).filter(|entry| !entry.is_closed)?;
        entry.is_closed = true;
        let was_open = entry.open.is_some();
        entry.end_part();
        let unfired = std::mem::take(&mut entry.unfired);
        let end = entry.end.take().filter(|_| !was_open);
        Some((Closed { unfired, end }, was_open))
    }

    /// What is to be done next.
    pub(super) fn next(&mut self, clock: &dyn Clock) -> Next {
        let mut asked = Asked::default();
        let ready = self.endings.iter().position(|job| job.is_ready(clock, &mut asked));
        if let Some(first) = ready.and_then(|idx| self.endings.remove(idx)) {
            return Next::Jobs(self.with_others(first, clock));
        }
        if let Some(first) = self.jobs.pop_front_if(|job| job.is_ready(clock, &mut Asked::default())) {
            return Next::Jobs(self.with_others(first, clock));
        }
        let first = self.jobs.front().or(self.endings.front());
        first.and_then(|job| job.event.clone()).map_or(Next::Nothing, Next::Event)
    }
}

impl Board {
    /// A job, with those that send the same layer of other requests: they go together.
    fn with_others(&mut self, first: Job, clock: &dyn Clock) -> Vec<Job> {
        let Work::Layer(_, layer) = first.work else { return vec![first] };
        let is_like = |job: &Job| matches!(job.work, Work::Layer(_, other) if other == layer);
        let mut together = vec![first];
        // Hooks hand in a layer of all requests in one go.
        while together.len() < MAX_TOGETHER
            && let Some(job) =
                self.jobs.pop_front_if(|job| is_like(job) && job.is_ready(clock, &mut Asked::default()))
        {
            together.push(job);
        }
        // `finish` hands in request by request.
        let mut asked = Asked::default();
        let is_ready = |(idx, job)| (is_like(job) && job.is_ready(clock, &mut asked)).then_some(idx);
        let others = self.endings.iter().enumerate().filter_map(is_ready);
        let others: Vec<usize> = others.take(MAX_TOGETHER - together.len()).collect();
        // From the last, so that the places of the others stay.
        let mut others: Vec<Job> =
            others.into_iter().rev().filter_map(|idx| self.endings.remove(idx)).collect();
        others.reverse();
        together.append(&mut others);
        together
    }
}

impl Entry {
    /// What the open part was not handed in for is left to `finish`.
    fn end_part(&mut self) {
        if let Some(OpenPart { part, fired }) = self.open.take() {
            let unfired = (0..).zip(fired).filter(|(_, fired)| !fired).map(|(layer, _)| (part, layer));
            self.unfired.extend(unfired);
        }
    }
}
