//! The composer: a group, its pool, its published memory. One batch in flight at a time.

use std::sync::Arc;

use super::ComposeError;
use super::agreement::agree;
use super::barrier_waits::{BarrierWaits, collect};
use super::checks::{check_epoch, check_guards};
use super::choice::Conditions;
use super::dense::DenseBuffers;
use super::error::explain;
use super::gather_compact::needs_enclosing_barriers;
use super::gathered::Gathered;
use super::in_flight::{BatchInFlight, LayerInputs, batch_keep};
use super::options::{ComposerOptions, StrategyChoice};
use super::pool::SharedPool;
use super::staging::Staging;
use super::stats::{Path, Stats};
use super::tables::{BatchTables, published_by};
use crate::collective::Collective;
use crate::deadline::Deadline;
use crate::device::DeviceBuffer;
use crate::group::Group;
use crate::plan::{Batch, BatchPlan, Fingerprint, PageSources, Strategy};
use crate::symm::{RegistrationRecord, SymmRegion, compare_records};
use crate::units::Epoch;

/// Barriers of one batch that are timed, where they are: 24 KiB of times to exchange.
const TIMED_BARRIERS: u32 = 1024;

/// A batch that this rank is ready for.
struct Prepared {
    plan: BatchPlan,
    path: Path,
    tables: BatchTables,
    packed: Option<DeviceBuffer>,
}

/// Composes batches. Registered once, by all ranks.
pub struct Composer {
    pub(super) group: Group,
    pub(super) pool: SharedPool,
    pub(super) staging: Option<Staging>,
    pub(super) collective: Option<Arc<dyn Collective>>,
    pub(super) dense: DenseBuffers,
    pub(super) stats: Stats,
    packed: Option<DeviceBuffer>,
    options: ComposerOptions,
}

impl Composer {
    /// Registers the published memory, and takes group and pool. Collective.
    ///
    /// # Errors
    /// [`ComposeError::Register`], on every rank.
    pub fn register(
        mut group: Group,
        pool: SharedPool,
        collective: Option<Arc<dyn Collective>>,
        options: ComposerOptions,
    ) -> Result<Self, ComposeError> {
        let record = RegistrationRecord::default()
            .with("collective", collective.as_ref().map_or("none", |collective| collective.name()))
            .with("symmetric dense slots", options.symm_dense_slots.unwrap_or(0))
            .with("timed barriers", options.time_barriers);
        let deadline = Deadline::after(group.options().bootstrap_timeout);
        compare_records("composer", group.bootstrap(), &record, deadline)
            .map_err(|error| explain(&group, error.into()))?;
        let mut unreachable = group.unreachable().or(pool.unreachable()).map(str::to_owned);
        let mut staging = None;
        if unreachable.is_none() {
            match Staging::register(&group, &pool, &options).map_err(|error| explain(&group, error))? {
                Ok(registered) => staging = Some(registered),
                Err(reason) => unreachable = Some(reason),
            }
        }
        // One for the signals: opening peers' memory is part of it.
        let num_probes = 1 + pool.num_probes();
        let num_ranks = group.group_size().len();
        let mut barrier_waits = None;
        if options.time_barriers && group.unreachable().is_none() {
            let kept = group.keep_timings(TIMED_BARRIERS);
            kept.map_err(|error| explain(&group, error.into()))?;
            barrier_waits = Some(BarrierWaits::nothing(num_ranks));
        }
        let [gathered, last_gathered] = [(); 2].map(|()| Gathered::nothing(num_ranks));
        let stats =
            Stats { num_probes, unreachable, gathered, last_gathered, barrier_waits, ..Stats::default() };
        let dense = DenseBuffers::default();
        Ok(Self { group, pool, staging, collective, dense, stats, packed: None, options })
    }

    /// The group.
    pub const fn group(&self) -> &Group {
        &self.group
    }

    /// The group, for barriers outside a batch.
    pub const fn group_mut(&mut self) -> &mut Group {
        &mut self.group
    }

    /// The pool.
    pub const fn pool(&self) -> &SharedPool {
        &self.pool
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        Stats { num_host_syncs: self.group.stream().num_host_syncs(), ..self.stats.clone() }
    }

    /// Staging pages of one half; `None` without peer access.
    pub fn staging_pages(&self) -> Option<u64> {
        self.staging.as_ref().map(|staging| staging.capacity.num_pages)
    }

    /// The plan of `batch` on this rank: pure, nothing is queued and no rank is asked.
    ///
    /// # Errors
    /// [`ComposeError::Plan`].
    pub fn plan(&self, batch: &Batch) -> Result<BatchPlan, ComposeError> {
        Ok(BatchPlan::build(self.pool.shape(), self.group.rank(), batch)?)
    }

    /// Plans `batch` and makes room for it, agrees on it with the other ranks in checked mode, and uploads its tables.
    ///
    /// # Errors
    /// [`ComposeError`], before anything is launched: a batch that cannot be planned or does not fit (on all
    /// ranks alike), ranks that planned differently, a poisoned group. In checked mode a rank that fails alone is
    /// named by the others.
    pub fn begin(
        &mut self,
        batch: &Batch,
        choice: StrategyChoice,
    ) -> Result<BatchInFlight<'_>, ComposeError> {
        self.group.check()?;
        let prepared = self.prepare(batch, choice);
        if self.group.options().checked {
            let mine = prepared.as_ref().map(|prepared| self.answer(prepared));
            let deadline = Deadline::after(self.group.options().bootstrap_timeout);
            agree(self.group.bootstrap(), mine, deadline).map_err(|error| explain(&self.group, error))?;
            // A rank that came late finds here that the others gave up.
            self.group.check_now()?;
        }
        let Prepared { plan, path, tables, packed } = prepared?;
        let strategy = path.strategy;
        let num_layers = self.pool.model().num_layers();
        if strategy == Strategy::GatherCompact
            && needs_enclosing_barriers(num_layers, plan.slots.num_current())
        {
            self.group.barrier(u32::MAX)?;
        }
        self.stats.num_batches += 1;
        self.stats.num_fallbacks += u64::from(!path.reason.is_empty());
        self.stats.last_path = Some(path);
        self.stats.last_gathered = Gathered::nothing(self.group.group_size().len());
        self.group.drop_timings();
        Ok(BatchInFlight {
            keep: batch_keep(self, &tables, packed.as_ref()),
            composer: self,
            sources: PageSources::of(&plan.slots, strategy),
            plan: Arc::new(plan),
            strategy,
            tables: Arc::new(tables),
            packed,
            composed: None,
            composed_in: Epoch(0),
            no_inputs: LayerInputs::default(),
            marks: None,
        })
    }

    /// Everything that can fail on one rank alone: plan, capacity, memory.
    fn prepare(&mut self, batch: &Batch, choice: StrategyChoice) -> Result<Prepared, ComposeError> {
        let plan = self.plan(batch)?;
        let conditions = Conditions {
            unreachable: self.stats.unreachable.as_deref(),
            has_collective: self.collective.is_some(),
            has_symm_dense: self.options.symm_dense_slots.is_some(),
            page_aligned: plan.slots.page_aligned(),
        };
        let path = conditions.choose(choice)?;
        if let (Some(staging), Some(what)) = (&self.staging, published_by(path.strategy)) {
            staging.check(what, &plan.slots)?;
        }
        let (device, stream) = (self.group.device(), self.group.stream());
        let (num_slots, arena) = (plan.slots.num_slots(), self.options.dense_arena);
        self.dense.fit(device, stream, self.pool.model(), num_slots, arena)?;
        let staging = self.staging.as_ref();
        let tables = BatchTables::upload(device, stream, &plan, path.strategy, &self.pool, staging)?;
        let packed = self.fit_packed(&plan, path.strategy)?;
        Ok(Prepared { plan, path, tables, packed })
    }

    /// What this rank tells the others.
    fn answer(&self, prepared: &Prepared) -> (Fingerprint, Epoch) {
        let strategy = prepared.path.strategy.name();
        let more = format!("{strategy}\n{}", self.pool.model().describe());
        (prepared.plan.slots.fingerprint.with(more.as_bytes()), self.group.epoch())
    }

    /// Room for the packed current pages, kept between batches.
    fn fit_packed(
        &mut self,
        plan: &BatchPlan,
        strategy: Strategy,
    ) -> Result<Option<DeviceBuffer>, ComposeError> {
        if strategy != Strategy::GatherCompact {
            return Ok(None);
        }
        let page_bytes: u64 = self.pool.model().buffers.iter().map(|buffer| buffer.spec.page_bytes()).sum();
        let bytes = u64::from(plan.slots.num_current()) * page_bytes;
        if self.packed.as_ref().is_none_or(|packed| packed.bytes() < bytes) {
            self.packed = Some(self.group.device().alloc(bytes)?);
        }
        Ok(self.packed.clone())
    }

    /// Waits for the stream. Where it does not end, nor does a collective on it that waits for other ranks.
    pub(super) fn synchronize(&mut self) -> Result<(), ComposeError> {
        let waited = self.group.synchronize();
        if let (Err(_), Some(collective)) = (&waited, &self.collective) {
            collective.abort();
        }
        Ok(waited?)
    }

    /// The end of a batch.
    pub(super) fn finish_batch(&mut self) -> Result<(), ComposeError> {
        self.synchronize()?;
        if let Some(waits) = &mut self.stats.barrier_waits {
            collect(&mut self.group, waits)?;
        }
        if !self.group.options().checked {
            return Ok(());
        }
        check_epoch(&self.group)?;
        check_guards(self)
    }

    /// Ends the composer: closes everything on all ranks together. Collective.
    ///
    /// # Errors
    /// [`ComposeError`]: a poisoned group cannot be closed, its memory stays until the last holder drops it.
    pub fn close(mut self) -> Result<(), ComposeError> {
        self.synchronize()?;
        let deadline = Deadline::after(self.group.options().bootstrap_timeout);
        if let Some(staging) = self.staging {
            SymmRegion::close_shared(staging.region, self.group.bootstrap(), deadline)?;
        }
        self.pool.close(&self.group)?;
        Ok(self.group.close()?)
    }
}
