//! A batch in flight: its plan and tables, and the layers composed so far.

use std::sync::Arc;

use super::composer::Composer;
use super::dense::DenseBuffers;
use super::launch::{LayerRun, Place};
use super::persist::{dense_place, persist};
use super::ragged::RaggedTables;
use super::staging::{Published, Staging};
use super::tables::BatchTables;
use super::{
    ComposeError, fused_all_reduce, gather_compact, per_span, staging_fill, staging_publish, symm_dense,
};
use crate::device::{DeviceBuffer, Event, Keep};
use crate::model::BufferId;
use crate::pages::BufferKind;
use crate::plan::{BatchPlan, PageSources, Strategy};
use crate::units::Epoch;

/// What this rank computed for one layer, by buffer.
///
/// Token-KV: `[num_rows, row_bytes]`. Index-K: `[num_rows, 128]` bf16. Rows as
/// [`RankRows`](crate::plan::RankRows) orders them.
#[derive(Clone, Debug, Default)]
pub struct LayerInputs {
    buffers: Vec<Option<DeviceBuffer>>,
}

impl LayerInputs {
    /// The inputs with `input` for `buffer`.
    #[must_use]
    pub fn with(mut self, buffer: BufferId, input: DeviceBuffer) -> Self {
        if self.buffers.len() <= buffer.idx() {
            self.buffers.resize(buffer.idx() + 1, None);
        }
        self.buffers[buffer.idx()] = Some(input);
        self
    }

    /// The input for `buffer`.
    pub fn get(&self, buffer: BufferId) -> Option<&DeviceBuffer> {
        self.buffers.get(buffer.idx())?.as_ref()
    }
}

#[must_use = "a batch ends with `finish`"]
/// A batch in flight. It borrows the composer, so a second one cannot begin beside it:
///
/// ```compile_fail,E0499
/// # use cpkv::compose::{Composer, ComposeError, StrategyChoice};
/// # use cpkv::plan::Batch;
/// fn two_at_once(composer: &mut Composer, batch: &Batch) -> Result<(), ComposeError> {
///     let first = composer.begin(batch, StrategyChoice::Auto)?;
///     let second = composer.begin(batch, StrategyChoice::Auto)?;
///     first.finish()?;
///     second.finish()
/// }
/// ```
pub struct BatchInFlight<'a> {
    pub(super) composer: &'a mut Composer,
    pub(super) plan: Arc<BatchPlan>,
    /// What each layer's gather reads, counted once.
    pub(super) sources: PageSources,
    pub(super) strategy: Strategy,
    pub(super) tables: Arc<BatchTables>,
    pub(super) packed: Option<DeviceBuffer>,
    pub(super) keep: Keep,
    /// The layer composed last, while nothing but its persists followed on the group.
    pub(super) composed: Option<usize>,
    /// The epoch that the last compose started in.
    pub(super) composed_in: Epoch,
    pub(super) no_inputs: LayerInputs,
    pub(super) marks: Option<Vec<Mark>>,
}

/// Events around one collective.
pub type Mark = [Arc<dyn Event>; 2];

impl BatchInFlight<'_> {
    /// From now on, records events around every collective.
    pub fn mark_collectives(&mut self) {
        self.marks.get_or_insert_default();
    }

    /// The events around the collectives queued since [`BatchInFlight::mark_collectives`].
    pub fn collective_marks(&self) -> &[Mark] {
        self.marks.as_deref().unwrap_or_default()
    }

    /// The plan.
    pub fn plan(&self) -> &BatchPlan {
        &self.plan
    }

    /// The plan's ragged index tables on the device, for work queued on the group's stream. They came with the batch's
    /// one upload; their copy in host memory is [`BatchPlan::ragged`]. A layer asks at no cost: nothing is allocated,
    /// uploaded or waited for.
    pub fn ragged(&self) -> &RaggedTables {
        &self.tables.ragged
    }

    /// The strategy the ranks agreed on.
    pub const fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Queues the compose of `layer`. Returns at once; no host synchronisation.
    ///
    /// # Errors
    /// [`ComposeError`]: inputs of the wrong size, or a poisoned group.
    pub fn compose_layer(&mut self, layer: usize, inputs: &LayerInputs) -> Result<(), ComposeError> {
        self.check_inputs(layer, inputs)?;
        self.composing(layer, |flight| flight.queue_layer(layer, inputs))
    }

    /// Runs `queue`, which queues the compose of `layer`, and remembers what the dense buffer holds then.
    pub(super) fn composing(
        &mut self,
        layer: usize,
        queue: impl FnOnce(&mut Self) -> Result<(), ComposeError>,
    ) -> Result<(), ComposeError> {
        self.composed = None;
        self.composed_in = self.composer.group.epoch();
        queue(self)?;
        self.composed = Some(layer);
        self.count_layer(layer);
        Ok(())
    }

    fn count_layer(&mut self, layer: usize) {
        let Composer { pool, stats, .. } = &mut *self.composer;
        let buffers = pool.model().buffers_of(layer).iter();
        let page_bytes = buffers.map(|&buffer| pool.page_bytes(buffer)).sum();
        stats.num_layers += 1;
        stats.gathered.add(&self.sources, page_bytes);
        stats.last_gathered.add(&self.sources, page_bytes);
    }

    /// Queues the launches of `layer` by the batch's strategy. The inputs were checked.
    pub(super) fn queue_layer(&mut self, layer: usize, inputs: &LayerInputs) -> Result<(), ComposeError> {
        let strategy = self.strategy;
        self.with_run(layer, inputs, |run| match strategy {
            Strategy::PerSpan => per_span::compose(run),
            Strategy::FusedAllReduce => fused_all_reduce::compose(run),
            Strategy::GatherCompact => gather_compact::compose(run),
            Strategy::SymmDense => symm_dense::compose(run),
            Strategy::StagingPublish => staging_publish::compose(run),
            Strategy::StagingFill => staging_fill::compose(run),
        })
    }

    /// Queues what `staging_fill` does for `layer` without its barrier: the yardstick of benchmarks.
    ///
    /// # Safety
    /// Peers' fills race with this rank's gather: the dense buffer holds torn rows, and must not be read before it
    /// is composed anew. The batch ends ([`BatchInFlight::finish`]) and the ranks meet before anything else is
    /// composed.
    ///
    /// # Errors
    /// As [`BatchInFlight::compose_layer`]; the batch's strategy must be `staging_fill`.
    pub unsafe fn run_without_barrier(
        &mut self,
        layer: usize,
        inputs: &LayerInputs,
    ) -> Result<(), ComposeError> {
        if self.strategy != Strategy::StagingFill {
            let reason = "only staging_fill has a run without its barrier".to_owned();
            return Err(ComposeError::StrategyUnavailable { strategy: self.strategy, reason });
        }
        self.check_inputs(layer, inputs)?;
        self.composed = None;
        self.with_run(layer, inputs, staging_fill::run_without_barrier)
    }

    /// Queues the persist of `layer`, which was composed last.
    ///
    /// # Errors
    /// [`ComposeError::NotComposed`]; as [`BatchInFlight::compose_layer`].
    pub fn persist_layer(&mut self, layer: usize) -> Result<(), ComposeError> {
        if self.composed != Some(layer) {
            return Err(ComposeError::NotComposed { layer, composed: self.composed });
        }
        let (strategy, no_inputs) = (self.strategy, self.no_inputs.clone());
        self.with_run(layer, &no_inputs, |run| persist(run, strategy))
    }

    /// The dense buffer of `buffer`, `[num_slots, page_bytes]`: holds the layer composed last, for work queued on
    /// the group's stream before the next compose.
    ///
    /// # Errors
    /// [`ComposeError::Device`] where the buffer is shorter than the batch.
    pub fn dense(&self, buffer: BufferId) -> Result<DeviceBuffer, ComposeError> {
        self.dense_of_epoch(buffer, self.composed_in.0)
    }

    /// The memory that the next compose will fill; another than [`BatchInFlight::dense`] only for `symm_dense`.
    ///
    /// # Errors
    /// As [`BatchInFlight::dense`].
    pub fn next_dense(&self, buffer: BufferId) -> Result<DeviceBuffer, ComposeError> {
        self.dense_of_epoch(buffer, self.composer.group.epoch().0)
    }

    /// The staging half of `buffer` that the next compose will fill, and that no peer reads any more; `None` without
    /// peer access. For tests, which poison it.
    pub fn next_staging(&self, buffer: BufferId) -> Option<DeviceBuffer> {
        let epoch = self.composer.group.epoch().0;
        self.composer.staging.as_ref().map(|staging| staging.half(Published::Staging, buffer, epoch % 2))
    }

    fn dense_of_epoch(&self, buffer: BufferId, epoch: u64) -> Result<DeviceBuffer, ComposeError> {
        let bytes = u64::from(self.plan.slots.num_slots()) * self.composer.pool.page_bytes(buffer);
        let whole = match (dense_place(self.strategy), &self.composer.staging) {
            (Place::SymmDense, Some(staging)) => staging.half(Published::Dense, buffer, epoch % 2),
            _ => self.composer.dense.get(buffer).clone(),
        };
        Ok(whole.slice(0..bytes)?)
    }

    /// Waits until everything queued is done. A counted host synchronisation.
    ///
    /// # Errors
    /// [`ComposeError::Group`].
    pub fn synchronize(&mut self) -> Result<(), ComposeError> {
        self.composer.synchronize()
    }

    /// The group's stream, for work between layers.
    pub fn stream(&self) -> &dyn crate::device::Stream {
        self.composer.group.stream()
    }

    /// Queues a barrier of the group: a common start, for benchmarks. What was composed before can no longer be
    /// persisted: `symm_dense` finds its half by the epoch.
    ///
    /// # Errors
    /// [`ComposeError::Group`].
    pub fn barrier(&mut self, tag: u32) -> Result<(), ComposeError> {
        self.composed = None;
        Ok(self.composer.group.barrier(tag)?)
    }

    /// Ends the batch: closing barrier where the strategy needs one, host synchronisation, checks in checked mode.
    ///
    /// # Errors
    /// [`ComposeError`].
    pub fn finish(self) -> Result<(), ComposeError> {
        let num_layers = self.composer.pool.model().num_layers();
        let enclosed = gather_compact::needs_enclosing_barriers(num_layers, self.plan.slots.num_current());
        if enclosed && self.strategy == Strategy::GatherCompact {
            self.composer.group.barrier(u32::MAX)?;
        }
        self.composer.finish_batch()
    }

    fn with_run<T>(
        &mut self,
        layer: usize,
        inputs: &LayerInputs,
        body: impl FnOnce(&mut LayerRun<'_>) -> Result<T, ComposeError>,
    ) -> Result<T, ComposeError> {
        let composer = &mut *self.composer;
        // Strategies without a barrier would not notice.
        composer.group.check()?;
        let inputs_keep: Vec<Keep> = inputs.buffers.iter().flatten().map(DeviceBuffer::keep).collect();
        body(&mut LayerRun {
            group: &mut composer.group,
            pool: &composer.pool,
            staging: composer.staging.as_ref(),
            collective: composer.collective.as_deref(),
            dense: &composer.dense,
            packed: self.packed.as_ref(),
            plan: &self.plan,
            tables: &self.tables,
            inputs,
            layer,
            strategy: self.strategy,
            keep: Arc::new((Arc::clone(&self.keep), inputs_keep)),
            marks: self.marks.as_mut(),
        })
    }

    /// Kernels read inputs in units of 16 bytes while they write dense buffers.
    fn check_input_memory(
        &self,
        layer: usize,
        buffer: &str,
        input: &DeviceBuffer,
    ) -> Result<(), ComposeError> {
        let refuse = |problem| Err(ComposeError::InputMemory { layer, buffer: buffer.to_owned(), problem });
        if input.bytes() > 0 && !input.addr().is_multiple_of(16) {
            return refuse("is not aligned");
        }
        let published = self.composer.staging.as_ref().map(Staging::whole);
        let pool = std::iter::once(self.composer.pool.shard());
        let written =
            self.composer.dense.all().into_iter().chain(published).chain(self.packed.clone()).chain(pool);
        match written.into_iter().any(|memory| memory.overlaps(input)) {
            true => refuse("overlaps memory that compose writes"),
            false => Ok(()),
        }
    }

    pub(super) fn check_inputs(&self, layer: usize, inputs: &LayerInputs) -> Result<(), ComposeError> {
        let model = self.composer.pool.model();
        if layer >= model.num_layers() {
            return Err(ComposeError::NoSuchLayer { layer, num_layers: model.num_layers() });
        }
        let num_rows = self.plan.rows.num_rows();
        for (id, buffer) in model.buffer_ids().zip(&model.buffers) {
            let row_bytes = match buffer.spec.kind() {
                BufferKind::TokenKv { row_bytes } => u64::from(row_bytes),
                BufferKind::IndexK => crate::pages::INDEX_K_DIM * size_of::<u16>() as u64,
            };
            let expected = u64::from(num_rows) * row_bytes;
            let name = || buffer.name.clone();
            match (model.has_buffer(layer, id), inputs.get(id)) {
                (true, None) if num_rows > 0 => {
                    return Err(ComposeError::InputPresence { layer, buffer: name(), problem: "no" });
                }
                (false, Some(_)) => {
                    return Err(ComposeError::InputPresence { layer, buffer: name(), problem: "unexpected" });
                }
                (true, Some(input)) if input.bytes() != expected => {
                    let got = input.bytes();
                    return Err(ComposeError::InputSize { layer, buffer: name(), expected, got, num_rows });
                }
                (true, Some(input)) => self.check_input_memory(layer, &buffer.name, input)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// What every launch of a batch keeps alive.
pub(super) fn batch_keep(composer: &Composer, tables: &BatchTables, packed: Option<&DeviceBuffer>) -> Keep {
    let dense: &DenseBuffers = &composer.dense;
    let staging = composer.staging.as_ref().map(|staging| Arc::clone(&staging.region));
    Arc::new((
        composer.group.keep(),
        composer.pool.keep(),
        staging,
        dense.all(),
        tables.block.clone(),
        packed.cloned(),
    ))
}
