//! One batch sent one way: a forward with its transfer, timed from a common start.

use std::time::Duration;

use cpkv::compose::LayerInputs;
use cpkv::deadline::Deadline;
use cpkv::device::{DeviceError, Event};
use cpkv::transfer::{Clock, Offer, RequestId, RequestRun, RequestSpec, SystemClock, TransferManager};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::exchange::settle;
use super::forward::{self, Queued};
use super::job::{Lane, Way};
use super::measured::{PassMs, PassTimes, Totals};
use super::rank::RankRun;
use super::roster::Member;
use super::sender::Sender;
use crate::error::RunError;

/// What pages hold that a forward is about to write: a page that is sent before is seen.
const POISON: u8 = 0x3C;
/// How often what is left of a chunk is looked at.
const LOOK: Duration = Duration::from_micros(100);

/// What one rank came to in a pass.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct RankPass {
    pub(super) times: PassTimes,
    pub(super) totals: Totals,
}

impl RankRun<'_> {
    /// Forward and transfer of a batch. Collective; where a rank fails, all do.
    pub(super) fn pass(
        &mut self,
        round: u32,
        batch_idx: usize,
        way_idx: usize,
        compute: Duration,
        inputs: &[LayerInputs],
    ) -> Result<(), RunError> {
        let way = self.job.ways[way_idx];
        let starting: Vec<_> = self
            .job
            .roster
            .of_batch(batch_idx)
            .filter(|(_, request)| request.first_batch == batch_idx)
            .map(|(number, request)| (number, request.pages.len()))
            .collect();
        for offer in self.offer(Lane::Way(way), &starting)? {
            self.offers.insert(offer.request, offer);
        }
        let mine = self.try_pass(batch_idx, way_idx, compute, inputs);
        let all = self.settle("pass", mine)?;
        let ms = PassMs::of(all.iter().map(|rank| rank.times));
        let times = &mut self.measured.batches[batch_idx].ways[way_idx];
        times.forward.push(ms.forward);
        times.exposed.push(ms.exposed);
        times.total.push(ms.total);
        let mut totals = Totals::default();
        all.iter().for_each(|rank| totals += rank.totals);
        self.count(round, batch_idx, way_idx, totals);
        Ok(())
    }

    /// Notes what was sent, and whether it is each page of each layer once.
    fn count(&mut self, round: u32, batch_idx: usize, way_idx: usize, totals: Totals) {
        let finished =
            self.job.roster.of_batch(batch_idx).filter(|(_, request)| request.last_batch == batch_idx);
        let pages: Vec<_> = finished.map(|(_, request)| request.pages.len()).collect();
        let (num_ended, num_pages) = (pages.len(), pages.iter().sum::<usize>());
        let expected = (num_pages * self.job.num_layers()) as u64;
        let way = &mut self.measured.ways[way_idx];
        if totals.num_pages == expected {
            if round == 0 && way_idx == 0 {
                self.measured.layers_sent += (num_ended * self.job.num_layers()) as u64;
            }
        } else {
            let got = totals.num_pages;
            let name = way.way.name();
            self.measured.differences.push(format!(
                "batch {batch_idx}, {name}: {got} layers times pages were sent, not {expected}"
            ));
        }
        if round == 0 {
            way.totals += totals;
        }
    }

    fn try_pass(
        &mut self,
        batch_idx: usize,
        way_idx: usize,
        compute: Duration,
        inputs: &[LayerInputs],
    ) -> Result<RankPass, RunError> {
        let lane = Lane::Way(self.job.ways[way_idx]);
        self.poison(batch_idx)?;
        let deadline = self.deadline();
        let members = self.job.members(batch_idx, lane);
        let planned = &self.job.base.batches[batch_idx];
        let Self { env, job, sender, composer, offers, recorder, measured, .. } = self;
        let manager = sender.manager(lane);
        let host_timeout = composer.group().options().host_timeout;
        let mut flight = composer.begin(&planned.batch, job.base.strategies[0])?;
        flight.synchronize()?;
        env.bootstrap.barrier("common start", deadline)?;
        let clock = SystemClock;
        let start_ns = clock.now_ns();
        for member in &members {
            if member.request.first_batch == batch_idx {
                let offer =
                    offers.get(&member.id).cloned().ok_or(RunError::Garbled { call: "offer pages" })?;
                register(sender, lane, member, offer, true)?;
            }
            manager.open_chunk(member.id, &member.current())?;
        }
        let registered_ns = clock.now_ns();
        let queued = forward::queue(&mut flight, inputs, compute, Some(manager), recorder.is_on())?;
        let queued_ns = clock.now_ns();
        let waited = await_end(&*queued.end, host_timeout);
        if waited.is_err() {
            // What the group knows of it is the better explanation.
            flight.synchronize()?;
        }
        let forward_ns = waited?;
        let mut totals = Totals::default();
        let mut endings = Vec::new();
        for member in members.iter().filter(|member| member.request.last_batch == batch_idx) {
            let offer = offers.get(&member.id).ok_or(RunError::Garbled { call: "offer pages" })?;
            endings.push((member.id, sender.aux_blocks(&*env.device, offer)?));
        }
        let endings: Vec<_> = endings.iter().map(|(id, aux)| (*id, aux.as_slice())).collect();
        for sent in manager.finish_all(&endings, job.finish_timeout()) {
            totals += sent?.into();
        }
        for member in members.iter().filter(|member| member.request.last_batch > batch_idx) {
            if lane == Lane::Way(Way::PerLayer) && member.request.prompt_tokens >= job.args.min_prompt_tokens
            {
                await_chunk(manager, member.id, job.base.timeout)?;
            }
        }
        let end_ns = clock.now_ns();
        flight.finish()?;
        let name = job.ways[way_idx].name();
        recorder.host(&format!("register, {name}"), start_ns, registered_ns);
        recorder.host(&format!("queue the forward, {name}"), registered_ns, queued_ns);
        recorder.host(&format!("finish, {name}"), forward_ns, end_ns);
        recorder.stream(&queued.marks);
        recorder.batches(sender.log.as_deref());
        let Queued { hooks_us, .. } = queued;
        let way = &mut measured.ways[way_idx];
        way.hooks_us.extend(hooks_us.iter().map(|(us, _)| *us));
        way.hooks_cpu_us.extend(hooks_us.iter().map(|(_, us)| *us));
        Ok(RankPass { times: PassTimes { start_ns, forward_ns, end_ns }, totals })
    }

    /// Makes what this rank's current pages hold wrong, so that what is sent before it is persisted is seen.
    fn poison(&self, batch_idx: usize) -> Result<(), RunError> {
        let (pool, stream) = (self.composer.pool(), self.composer.group().stream());
        let model = &self.job.base.model;
        let Some(planned) = self.job.base.batches.get(batch_idx) else { return Ok(()) };
        for &page in planned.batch.requests.iter().flat_map(|request| &request.current_pages) {
            for layer in 0..model.num_layers() {
                for &buffer in model.buffers_of(layer) {
                    let Some(memory) = pool.page(layer, buffer, page) else { continue };
                    stream.upload(vec![POISON; memory.bytes() as usize], &memory)?;
                }
            }
        }
        Ok(())
    }

    /// What every rank came to; where one failed, an error on all, on rank 0 with the decode workers that have ended.
    /// Collective.
    pub(super) fn settle<T: Serialize + DeserializeOwned>(
        &mut self,
        call: &'static str,
        mine: Result<T, RunError>,
    ) -> Result<Vec<T>, RunError> {
        let front = &mut self.front;
        let mut explained = |error| match front {
            Some(front) => front.explain(error),
            None => error,
        };
        let mine = mine.map_err(&mut explained);
        settle(&*self.env.bootstrap, call, mine, Deadline::after(self.job.patience())).map_err(explained)
    }
}

/// Registers a request; with `with_prefix`, the pages that it had before are sent.
pub(super) fn register(
    sender: &Sender,
    lane: Lane,
    member: &Member<'_>,
    offer: Offer,
    with_prefix: bool,
) -> Result<(), RunError> {
    let prefix = if with_prefix { member.prefix() } else { RequestRun::default() };
    let decode = std::sync::Arc::clone(&sender.decode);
    let prompt_tokens = member.request.prompt_tokens;
    Ok(sender.manager(lane).register(RequestSpec { offer, decode, prompt_tokens, prefix })?)
}

/// Waits for an event; when it fired.
pub(super) fn await_end(event: &dyn Event, timeout: Duration) -> Result<u64, DeviceError> {
    event.wait(Deadline::after(timeout))?;
    Ok(event.fired_at_ns().unwrap_or_else(|| SystemClock.now_ns()))
}

/// Waits until what hooks handed in of a chunk is sent: layers that are written several times a forward stay for finish. The
/// pages may be written again then.
fn await_chunk(manager: &TransferManager, request: RequestId, timeout: Duration) -> Result<(), RunError> {
    let deadline = Deadline::after(timeout);
    loop {
        if let Some(error) = manager.failure(request) {
            return Err(error.into());
        }
        let Some(progress) = manager.progress(request) else { return Ok(()) };
        if progress.is_caught_up {
            return Ok(());
        }
        if deadline.expired() {
            let (in_flight, waited_ms) = (progress.in_flight, deadline.waited_ms());
            return Err(RunError::ChunkTimeout { request, in_flight, waited_ms });
        }
        SystemClock.pause(LOOK);
    }
}
