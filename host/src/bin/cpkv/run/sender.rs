//! The sending side of one rank: its engine, where the decode workers are, and a manager for each way.

use std::sync::Arc;

use cpkv::compose::Composer;
use cpkv::device::Device;
use cpkv::transfer::{
    DecodeGroup, Geometry, ManagerOptions, ManagerParts, Offer, RegistrationId, Source, TransferEngine,
    TransferLog, TransferManager,
};

use super::aux::AuxMemory;
use super::job::{Lane, RunJob, Way};
use super::message::Greeting;
use crate::error::RunError;

/// The sending side of a rank.
pub(crate) struct Sender {
    // Dropped before the engine. Registrations end in `close`, and on the way out of a failure with the engine.
    per_layer: TransferManager,
    monolithic: TransferManager,
    registrations: Vec<RegistrationId>,
    pub(crate) aux: AuxMemory,
    pub(crate) aux_addrs: Vec<u64>,
    pub(crate) engine: Arc<dyn TransferEngine>,
    pub(crate) source: Source,
    pub(crate) decode: Arc<DecodeGroup>,
    pub(crate) log: Option<Arc<TransferLog>>,
}

impl Sender {
    /// Registers the rank's pool with `engine`, makes the workers known, and starts the managers.
    pub(crate) fn start(
        job: &RunJob,
        device: &Arc<dyn Device>,
        composer: &Composer,
        engine: Arc<dyn TransferEngine>,
        greetings: &[Greeting],
    ) -> Result<Self, RunError> {
        let aux = AuxMemory::of_rank(&**device, job)?;
        let registrations =
            vec![engine.register(&composer.pool().own_memory())?, engine.register(aux.memory())?];
        let group = composer.group();
        let source =
            Source { rank: group.rank(), group_size: group.group_size(), pool: composer.pool().own_map() };
        let hellos: Vec<_> = greetings.iter().map(|greeting| greeting.hello.clone()).collect();
        let geometry = Geometry::of(&job.base.model)?;
        let decode = Arc::new(DecodeGroup::connect(&source, &*engine, &geometry, &hellos)?);
        let log = job.args.timeline.as_ref().map(|_| Arc::new(TransferLog::default()));
        let parts = ManagerParts {
            engine: Arc::clone(&engine),
            device: Arc::clone(device),
            stream: group.stream_handle(),
            gate: group.gate(),
            source: source.clone(),
        };
        let options = ManagerOptions {
            num_threads: job.args.transfer_threads,
            niceness: job.args.transfer_nice,
            event_timeout: job.base.timeout,
            transfer_timeout: job.base.timeout,
            max_requests: job.max_requests(),
            max_workers: job.args.decode_workers,
            min_prompt_tokens: job.args.min_prompt_tokens,
            log: log.clone(),
            ..ManagerOptions::default()
        }
        .for_model(&job.base.model);
        let whole = ManagerOptions { num_threads: 1, min_prompt_tokens: u32::MAX, ..options.clone() };
        Ok(Self {
            per_layer: TransferManager::start(parts.clone(), options)?,
            monolithic: TransferManager::start(parts, whole)?,
            registrations,
            aux,
            aux_addrs: greetings.iter().map(|greeting| greeting.aux_addr).collect(),
            engine,
            source,
            decode,
            log,
        })
    }

    /// The manager of a lane. The yardstick is the per-layer one's.
    pub(crate) const fn manager(&self, lane: Lane) -> &TransferManager {
        match lane {
            Lane::Way(Way::Monolithic) => &self.monolithic,
            Lane::Way(Way::PerLayer) | Lane::Yardstick => &self.per_layer,
        }
    }

    /// What this rank sends for `offer` beside pages.
    pub(crate) fn aux_blocks(
        &self,
        device: &dyn Device,
        offer: &Offer,
    ) -> Result<Vec<cpkv::transfer::AuxBlock>, RunError> {
        let who = (self.source.rank, self.source.group_size.get());
        Ok(self.aux.block(device, offer, who, &self.aux_addrs)?)
    }

    /// Ends everything, so that the pool may be closed. Nothing is in flight.
    pub(crate) fn close(self) -> Result<(), RunError> {
        let Self { per_layer, monolithic, registrations, engine, .. } = self;
        drop((per_layer, monolithic));
        registrations.into_iter().try_for_each(|registration| engine.unregister(registration))?;
        Ok(())
    }
}
