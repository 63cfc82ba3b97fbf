//! The yardsticks of a batch: its forward without a transfer, and its transfer without a forward.

use std::time::Duration;

use cpkv::compose::LayerInputs;
use cpkv::transfer::{AuxBlock, Clock, Offer, RequestId, SystemClock};

use super::calibrate::compute_for;
use super::forward;
use super::job::Lane;
use super::measured::{PassMs, PassTimes};
use super::pass::{await_end, register};
use super::rank::RankRun;
use crate::error::RunError;

/// Times that transfer and bare loop are measured, in turn.
const NUM_SAMPLES: usize = 5;

impl RankRun<'_> {
    /// Measures a batch's parts alone; returns what the stand-in for attention sleeps a layer. Collective.
    pub(super) fn measure_alone(
        &mut self,
        batch_idx: usize,
        inputs: &[LayerInputs],
    ) -> Result<Duration, RunError> {
        self.progress.step(&format!("batch {batch_idx}: the transfer alone"));
        // The first forward finds cold memory, and gives the transfer something to send.
        self.forward_alone(batch_idx, Duration::ZERO, inputs)?;
        // The first transfer of all makes connections.
        if self.measured.batches.iter().all(|batch| batch.transfer.is_empty()) {
            self.transfer_alone(batch_idx)?;
        }
        for _ in 0..NUM_SAMPLES {
            let (transfer_ms, bare_ms) = self.transfer_alone(batch_idx)?;
            let times = &mut self.measured.batches[batch_idx];
            times.transfer.push(transfer_ms);
            times.bare.push(bare_ms);
        }
        let num_layers = self.job.num_layers();
        let times = &mut self.measured.batches[batch_idx];
        let asked = self.job.args.compute_us.or(times.compute_us).map(Duration::from_micros);
        let compute = asked.unwrap_or_else(|| compute_for(times.transfer.median(), num_layers));
        times.compute_us = Some(compute.as_micros() as u64);
        self.progress.step(&format!("batch {batch_idx}: the forward alone"));
        let compose_ms = self.forward_alone(batch_idx, Duration::ZERO, inputs)?;
        self.measured.batches[batch_idx].compose.push(compose_ms);
        self.forward_again(batch_idx, compute, inputs)?;
        Ok(compute)
    }

    /// Measures a batch's forward alone once more. Collective.
    pub(super) fn forward_again(
        &mut self,
        batch_idx: usize,
        compute: Duration,
        inputs: &[LayerInputs],
    ) -> Result<(), RunError> {
        let forward_ms = self.forward_alone(batch_idx, compute, inputs)?;
        self.measured.batches[batch_idx].forward.push(forward_ms);
        Ok(())
    }

    fn forward_alone(
        &mut self,
        batch_idx: usize,
        compute: Duration,
        inputs: &[LayerInputs],
    ) -> Result<f64, RunError> {
        let mine = self.try_forward(batch_idx, compute, inputs);
        self.group_ms("forward alone", mine)
    }

    fn try_forward(
        &mut self,
        batch_idx: usize,
        compute: Duration,
        inputs: &[LayerInputs],
    ) -> Result<PassTimes, RunError> {
        let deadline = self.deadline();
        let planned = &self.job.base.batches[batch_idx];
        let host_timeout = self.composer.group().options().host_timeout;
        let mut flight = self.composer.begin(&planned.batch, self.job.base.strategies[0])?;
        flight.synchronize()?;
        self.env.bootstrap.barrier("common start", deadline)?;
        let start_ns = SystemClock.now_ns();
        let queued = forward::queue(&mut flight, inputs, compute, None, false)?;
        let waited = await_end(&*queued.end, host_timeout);
        flight.finish()?;
        let end_ns = waited?;
        Ok(PassTimes { start_ns, forward_ns: end_ns, end_ns })
    }

    /// The batch's pages through the manager, then the same blocks straight to the engine, in milliseconds. Collective.
    fn transfer_alone(&mut self, batch_idx: usize) -> Result<(f64, f64), RunError> {
        let planned = &self.job.base.batches[batch_idx];
        let num_pages = planned
            .batch
            .requests
            .iter()
            .map(|request| request.prefix_pages.len() + request.current_pages.len());
        let of_batch = self.job.roster.of_batch(batch_idx);
        let requests: Vec<_> = of_batch.map(|(number, _)| number).zip(num_pages).collect();
        let offers = self.offer(Lane::Yardstick, &requests)?;
        let mine = self.try_transfer(batch_idx, &offers);
        let transfer_ms = self.group_ms("transfer alone", mine)?;
        let mine = self.try_bare(batch_idx, &offers);
        let bare_ms = self.group_ms("bare loop", mine)?;
        let ids: Vec<_> = offers.iter().map(|offer| offer.request).collect();
        self.end_transfers(Lane::Yardstick, &ids)?;
        Ok((transfer_ms, bare_ms))
    }

    fn try_transfer(&mut self, batch_idx: usize, offers: &[Offer]) -> Result<PassTimes, RunError> {
        self.env.bootstrap.barrier("common start", self.deadline())?;
        let manager = self.sender.manager(Lane::Yardstick);
        let members = self.job.members(batch_idx, Lane::Yardstick);
        let start_ns = SystemClock.now_ns();
        for (member, offer) in members.iter().zip(offers) {
            let is_new = member.request.first_batch == batch_idx;
            register(&self.sender, Lane::Yardstick, member, offer.clone(), is_new)?;
            manager.open_chunk(member.id, &member.current())?;
        }
        for layer in 0..self.job.num_layers() {
            manager.on_layer_end(layer)?;
        }
        manager.end_forward()?;
        let endings: Vec<(RequestId, &[AuxBlock])> =
            members.iter().map(|member| (member.id, [].as_slice())).collect();
        let ended = manager.finish_all(&endings, self.job.finish_timeout());
        ended.into_iter().collect::<Result<Vec<_>, _>>()?;
        let end_ns = SystemClock.now_ns();
        // Not for a timeline of passes.
        self.sender.log.as_ref().map(|log| log.take());
        Ok(PassTimes { start_ns, forward_ns: end_ns, end_ns })
    }

    /// The group's time, in milliseconds; where a rank failed, an error on all. Collective.
    fn group_ms(&mut self, call: &'static str, mine: Result<PassTimes, RunError>) -> Result<f64, RunError> {
        let all = self.settle(call, mine)?;
        Ok(PassMs::of(all).total)
    }
}
