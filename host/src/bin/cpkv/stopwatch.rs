//! Times of one batch: strategies and yardsticks, each from a common start of all ranks.

use std::sync::Arc;

use cpkv::compose::{BatchInFlight, Composer, LayerInputs, StrategyChoice};
use cpkv::deadline::Deadline;
use cpkv::device::{DeviceError, MemoryKind};
use cpkv::model::ModelSpec;
use cpkv::plan::{Batch, BatchPlan, Strategy};

use crate::baselines::{self, PeerLibrary, Scratch, contributions, dense_bytes};
use crate::error::RunError;
use crate::ranks::RankEnv;
use crate::timing::{Span, Window, group_ms};

/// A batch on one rank, ready to be timed. All calls are collective.
pub(crate) struct Stopwatch<'a> {
    pub(crate) env: &'a RankEnv,
    pub(crate) composer: &'a mut Composer,
    pub(crate) batch: &'a Batch,
    /// By layer.
    pub(crate) inputs: &'a [LayerInputs],
}

/// One compose of all layers.
pub(crate) struct Composed {
    pub(crate) strategy: Strategy,
    pub(crate) ms: f64,
    /// The collectives alone, counted from the last rank's entry; of `gather_compact` only.
    pub(crate) collective_ms: Option<f64>,
}

/// The library's all-reduce of the packed current pages, over all layers.
pub(crate) struct AllReduced {
    pub(crate) ms: f64,
    /// Counted from the last rank's entry.
    pub(crate) bare_ms: f64,
}

impl<'a> Stopwatch<'a> {
    /// Composes every layer.
    pub(crate) fn strategy(&mut self, choice: StrategyChoice) -> Result<Composed, RunError> {
        let (mut marks, mut strategy, inputs) = (Vec::new(), Strategy::StagingFill, self.inputs);
        let ms = self.time(choice, |flight| {
            strategy = flight.strategy();
            flight.mark_collectives();
            for (layer, inputs) in inputs.iter().enumerate() {
                flight.compose_layer(layer, inputs)?;
            }
            marks = flight.collective_marks().to_vec();
            Ok(())
        })?;
        let mut collective_ms = None;
        if strategy == Strategy::GatherCompact {
            let windows: Vec<_> = marks.into_iter().map(|[start, end]| Window { start, end }).collect();
            let ms = group_ms(&*self.env.bootstrap, &windows, Span::SinceLastStart, self.deadline())?;
            collective_ms = Some(ms.iter().sum());
        }
        Ok(Composed { strategy, ms, collective_ms })
    }

    /// The work of `staging_fill` without its barrier, in milliseconds; `None` without peer access.
    pub(crate) fn ideal(&mut self) -> Result<Option<f64>, RunError> {
        if self.composer.staging_pages().is_none() {
            return Ok(None);
        }
        let inputs = self.inputs;
        let ms = self.time(StrategyChoice::Exactly(Strategy::StagingFill), |flight| {
            for (layer, inputs) in inputs.iter().enumerate() {
                // SAFETY: nothing reads the dense buffer before the next compose; the batch ends behind this,
                // and the ranks exchange their times before they go on.
                unsafe { flight.run_without_barrier(layer, inputs) }?;
            }
            Ok(())
        })?;
        Ok(Some(ms))
    }

    /// A copy of as many bytes within each rank, in milliseconds. `choice` is what the batch begins with.
    pub(crate) fn memcpy(&mut self, choice: StrategyChoice, scratch: &Scratch) -> Result<f64, RunError> {
        let model = self.composer.pool().model().clone();
        self.time(choice, |flight| {
            for layer in 0..model.num_layers() {
                for (_, bytes) in dense_bytes(flight.plan(), &model, layer) {
                    baselines::memcpy(flight.stream(), scratch, bytes)?;
                }
            }
            Ok(())
        })
    }

    /// `MPI_Allgatherv` of the dense buffers, in milliseconds; `None` without MPI, or where the host does not reach them.
    pub(crate) fn all_gather(
        &mut self,
        choice: StrategyChoice,
        scratch: &Scratch,
    ) -> Result<Option<f64>, RunError> {
        let Some(library) = self.host_library() else { return Ok(None) };
        let (rank, size) = (self.env.rank().idx(), self.composer.group().group_size());
        let model = self.composer.pool().model().clone();
        let ms = self.time(choice, |flight| {
            for layer in 0..model.num_layers() {
                for (id, _) in dense_bytes(flight.plan(), &model, layer) {
                    let page_bytes = model.buffers[id.idx()].spec.page_bytes();
                    let counts = contributions(flight.plan(), size, page_bytes);
                    let call = baselines::all_gather(library, scratch, rank, counts);
                    flight.stream().host_call("MPI_Allgatherv", call)?;
                }
            }
            Ok(())
        })?;
        Ok(Some(ms))
    }

    /// `MPI_Allreduce` of the packed current pages; `None` without MPI, or where the host does not reach them.
    pub(crate) fn all_reduce(
        &mut self,
        choice: StrategyChoice,
        scratch: &Scratch,
    ) -> Result<Option<AllReduced>, RunError> {
        let Some(library) = self.host_library() else { return Ok(None) };
        let model = self.composer.pool().model().clone();
        let mut windows = Vec::new();
        let ms = self.time(choice, |flight| {
            for layer in 0..model.num_layers() {
                let bytes = compact_bytes(flight.plan(), &model, layer);
                let start = flight.stream().record()?;
                flight.stream().host_call("MPI_Allreduce", baselines::all_reduce(library, scratch, bytes))?;
                windows.push(Window { start, end: flight.stream().record()? });
            }
            Ok(())
        })?;
        let bare = group_ms(&*self.env.bootstrap, &windows, Span::SinceLastStart, self.deadline())?;
        Ok(Some(AllReduced { ms, bare_ms: bare.iter().sum() }))
    }

    fn host_library(&self) -> Option<&'a Arc<dyn PeerLibrary>> {
        let is_host = self.env.device.memory() == MemoryKind::Host;
        self.env.library.as_ref().filter(|_| is_host)
    }

    /// Times `body` on the group's stream, in milliseconds.
    fn time(
        &mut self,
        choice: StrategyChoice,
        body: impl FnOnce(&mut BatchInFlight<'_>) -> Result<(), RunError>,
    ) -> Result<f64, RunError> {
        let deadline = self.deadline();
        let has_peers = self.composer.group().unreachable().is_none();
        let mut flight = self.composer.begin(self.batch, choice)?;
        flight.synchronize()?;
        if has_peers {
            flight.barrier(u32::MAX)?;
        } else {
            self.env.bootstrap.barrier("common start", deadline)?;
        }
        let start = flight.stream().record()?;
        body(&mut flight)?;
        let end = flight.stream().record()?;
        flight.finish()?;
        let window = [Window { start, end }];
        Ok(group_ms(&*self.env.bootstrap, &window, Span::Makespan, deadline)?.iter().sum())
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.composer.group().options().bootstrap_timeout)
    }
}

/// Memory for the yardsticks, as large as `plan`'s largest layer.
pub(crate) fn scratch(env: &RankEnv, plan: &BatchPlan, model: &ModelSpec) -> Result<Scratch, DeviceError> {
    let layer_bytes = |layer| dense_bytes(plan, model, layer).iter().map(|dense| dense.1).sum();
    let bytes: u64 = (0..model.num_layers()).map(layer_bytes).max().unwrap_or(0);
    Ok(Scratch { src: env.device.alloc(bytes)?, dst: env.device.alloc(bytes)? })
}

/// Bytes of the packed current pages of a layer.
fn compact_bytes(plan: &BatchPlan, model: &ModelSpec, layer: usize) -> u64 {
    let num_current = u64::from(plan.slots.num_current());
    model.buffers_of(layer).iter().map(|id| num_current * model.buffers[id.idx()].spec.page_bytes()).sum()
}
