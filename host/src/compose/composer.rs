//! The composer: a group, its pool, its published memory. One batch in flight at a time.

use std::sync::Arc;

use super::ComposeError;
use super::agreement::agree;
use super::dense::DenseBuffers;
use super::gather_compact::needs_enclosing_barriers;
use super::in_flight::{BatchInFlight, LayerInputs, batch_keep};
use super::options::{ComposerOptions, StrategyChoice};
use super::pool::SharedPool;
use super::staging::Staging;
use super::stats::{Path, Stats};
use super::tables::{BatchTables, published_by};
use crate::collective::Collective;
use crate::deadline::Deadline;
use crate::device::DeviceBuffer;
use crate::group::{Group, GroupError};
use crate::plan::{Batch, BatchPlan, Fingerprint, Strategy};
use crate::symm::{RegisterError, SymmRegion};
use crate::units::Epoch;

/// `error`, or the group's fault where it explains more; the peers learn of ranks that are missing.
pub(super) fn explain(group: &Group, error: ComposeError) -> ComposeError {
    let fault = match &error {
        ComposeError::Bootstrap(problem)
        | ComposeError::Register(RegisterError::Bootstrap { problem, .. }) => group.lost(problem),
        _ => None,
    };
    fault.map_or(error, |fault| GroupError::from(fault).into())
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
        group: Group,
        pool: SharedPool,
        collective: Option<Arc<dyn Collective>>,
        options: ComposerOptions,
    ) -> Result<Self, ComposeError> {
        let mut unreachable = group.unreachable().or(pool.unreachable()).map(str::to_owned);
        let mut staging = None;
        if unreachable.is_none() {
            match Staging::register(&group, &pool, &options).map_err(|error| explain(&group, error))? {
                Ok(registered) => staging = Some(registered),
                Err(reason) => unreachable = Some(reason),
            }
        }
        let num_probes = if group.unreachable().is_none() { 2 } else { 1 };
        let stats = Stats { num_probes, unreachable, ..Stats::default() };
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

    /// Plans `batch`, agrees on it with the other ranks in checked mode, and uploads its tables.
    ///
    /// # Errors
    /// [`ComposeError`], before anything is launched: a batch that cannot be planned or does not fit (on all
    /// ranks alike), ranks that planned differently, a poisoned group.
    pub fn begin(
        &mut self,
        batch: &Batch,
        choice: StrategyChoice,
    ) -> Result<BatchInFlight<'_>, ComposeError> {
        self.group.check()?;
        let planned = self.plan(batch, choice);
        if self.group.options().checked {
            let mine = planned.as_ref().map(|(plan, path)| self.answer(plan, path.strategy));
            let deadline = Deadline::after(self.group.options().bootstrap_timeout);
            agree(self.group.bootstrap(), mine, deadline).map_err(|error| explain(&self.group, error))?;
            // A rank that came late finds here that the others gave up.
            self.group.check()?;
        }
        let (plan, path) = planned?;
        let strategy = path.strategy;
        self.dense.fit(
            self.group.device(),
            self.group.stream(),
            self.pool.model(),
            plan.slots.num_slots(),
            self.options.dense_arena,
        )?;
        let packed = self.fit_packed(&plan, strategy)?;
        let tables = BatchTables::upload(
            self.group.device(),
            self.group.stream(),
            &plan,
            strategy,
            &self.pool,
            self.staging.as_ref(),
        )?;
        if strategy == Strategy::GatherCompact && needs_enclosing_barriers(self.pool.model().num_layers()) {
            self.group.barrier(u32::MAX)?;
        }
        self.stats.num_batches += 1;
        self.stats.num_fallbacks += u64::from(!path.reason.is_empty());
        self.stats.last_path = Some(path);
        Ok(BatchInFlight {
            keep: batch_keep(self, &tables, packed.as_ref()),
            composer: self,
            plan: Arc::new(plan),
            strategy,
            tables: Arc::new(tables),
            packed,
            composed: None,
            no_inputs: LayerInputs::default(),
            marks: None,
        })
    }

    fn plan(&self, batch: &Batch, choice: StrategyChoice) -> Result<(BatchPlan, Path), ComposeError> {
        let plan = BatchPlan::build(self.pool.shape(), self.group.rank(), batch)?;
        let path = self.choose(choice, plan.slots.page_aligned())?;
        if let (Some(staging), Some(what)) = (&self.staging, published_by(path.strategy)) {
            staging.check(what, &plan.slots)?;
        }
        Ok((plan, path))
    }

    /// What this rank tells the others.
    fn answer(&self, plan: &BatchPlan, strategy: Strategy) -> (Fingerprint, Epoch) {
        let model = self.pool.model();
        let layers: Vec<u8> = model.layers.iter().map(|layer| layer.buffers.len() as u8).collect();
        let more = [strategy.name().as_bytes(), model.name.as_bytes(), &layers].concat();
        (plan.slots.fingerprint.with(&more), self.group.epoch())
    }

    /// The strategy of a batch: the same on every rank, since all it depends on was agreed on.
    fn choose(&self, choice: StrategyChoice, page_aligned: bool) -> Result<Path, ComposeError> {
        let hindrance = |strategy: Strategy| {
            if strategy.needs_collective() && self.collective.is_none() {
                return Some("no collective was given at registration".to_owned());
            }
            if strategy.needs_peer_access() && !page_aligned {
                return Some("a prefix of the batch ends inside a page".to_owned());
            }
            if let Some(reason) = self.stats.unreachable.as_ref().filter(|_| strategy.needs_peer_access()) {
                return Some(format!("the ranks cannot read each other's memory ({reason})"));
            }
            let has_symm_dense = self.options.symm_dense_slots.is_some();
            (strategy == Strategy::SymmDense && !has_symm_dense)
                .then(|| "no symmetric dense buffer was registered (symm_dense_slots)".to_owned())
        };
        let (strategy, reason) = match choice {
            StrategyChoice::Exactly(strategy) => (strategy, String::new()),
            StrategyChoice::Auto => match hindrance(Strategy::StagingFill) {
                None => (Strategy::StagingFill, String::new()),
                Some(reason) => (Strategy::FusedAllReduce, reason),
            },
        };
        match hindrance(strategy) {
            None => Ok(Path { strategy, reason }),
            Some(hindrance) => {
                let because = if reason.is_empty() { hindrance } else { format!("{reason}; {hindrance}") };
                Err(ComposeError::StrategyUnavailable { strategy, reason: because })
            }
        }
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

    /// The end of a batch.
    pub(super) fn finish_batch(&mut self) -> Result<(), ComposeError> {
        self.group.synchronize()?;
        if !self.group.options().checked {
            return Ok(());
        }
        let deadline = Deadline::after(self.group.options().host_timeout);
        if let Some(state) = self.group.state().cloned() {
            let mut epoch = [0; 8];
            self.group.stream().download(&state, &mut epoch, deadline)?;
            let (host, device) = (self.group.epoch(), u64::from_le_bytes(epoch));
            if host.0 != device {
                return Err(ComposeError::EpochDrift { host, device });
            }
        }
        let regions = [
            ("signals", self.group.broken_guards()),
            ("pool", self.pool.broken_guards()),
            ("staging", self.staging.as_ref().map_or(Vec::new(), |staging| staging.region.broken_guards())),
        ];
        for (region, broken) in regions {
            if let Some(&offset) = broken.first() {
                return Err(ComposeError::GuardBroken { region: region.to_owned(), offset: offset as i64 });
            }
        }
        if let Some((buffer, offset)) = self.dense.broken_guard(self.group.stream(), deadline)? {
            let region = format!("dense {}", self.pool.model().buffers[buffer].name);
            return Err(ComposeError::GuardBroken { region, offset });
        }
        Ok(())
    }

    /// Ends the composer: closes everything on all ranks together. Collective.
    ///
    /// # Errors
    /// [`ComposeError`]: a poisoned group cannot be closed, its memory stays until the last holder drops it.
    pub fn close(mut self) -> Result<(), ComposeError> {
        self.group.synchronize()?;
        let deadline = Deadline::after(self.group.options().bootstrap_timeout);
        if let Some(staging) = self.staging {
            SymmRegion::close_shared(staging.region, self.group.bootstrap(), deadline)?;
        }
        self.pool.close(&self.group)?;
        Ok(self.group.close()?)
    }
}
