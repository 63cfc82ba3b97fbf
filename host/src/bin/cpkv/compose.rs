//! `cpkv compose`: proves every strategy's bytes on batches of a trace, then times them against yardsticks.

use std::sync::Arc;
use std::time::Duration;

use cpkv::compose::{BatchInFlight, Composer, LayerInputs, SharedPool, StrategyChoice};
use cpkv::deadline::Deadline;
use cpkv::device::{Device, MemoryKind};
use cpkv::group::{Group, GroupOptions};
use cpkv::model::ModelSpec;
use cpkv::plan::{Batch, BatchPlan, Strategy};
use cpkv::verify::Oracle;
use cpkv::workload::PlannedBatch;

use crate::args::ComposeArgs;
use crate::barriers;
use crate::baselines::{self, Scratch, contributions, dense_bytes};
use crate::devices;
use crate::error::RunError;
use crate::job::Job;
use crate::progress::Progress;
use crate::ranks::{self, RankEnv};
use crate::report::{Measured, Report};
use crate::timing::{Span, Window, group_ms};

/// What dense buffers hold before each compose.
const POISON: u8 = 0xC3;
/// Longest message of one rank about one strategy.
const MAX_MESSAGE_BYTES: usize = 512;

/// Runs the command.
pub(crate) fn run(args: ComposeArgs) -> Result<(), RunError> {
    let size = ranks::group_size(args.ranks)?;
    let job = Job::prepare(&args, size)?;
    let platform = devices::choose(args.device)?;
    let report = ranks::run_all(size, job.timeout, &platform, |env| RankRun::start(&env, &job)?.run())?;
    if let Some(report) = report {
        report.print(args.json)?;
        let wrong = report.wrong();
        if !wrong.is_empty() {
            return Err(RunError::NotExact(wrong));
        }
    }
    Ok(())
}

/// One rank at work.
struct RankRun<'a> {
    env: &'a RankEnv,
    job: &'a Job,
    device: Arc<dyn Device>,
    composer: Composer,
    oracle: Oracle,
    measured: Measured,
    progress: Progress,
}

impl<'a> RankRun<'a> {
    fn start(env: &'a RankEnv, job: &'a Job) -> Result<Self, RunError> {
        let progress = Progress::start(env.rank(), job.num_steps());
        progress.part("registering");
        let device = Arc::clone(&env.device);
        let options = GroupOptions {
            barrier_timeout: job.timeout,
            host_timeout: 3 * job.timeout,
            bootstrap_timeout: (2 * job.timeout).max(Duration::from_secs(5)),
            checked: true,
            num_spins: None,
        };
        let (bootstrap, backend) = (Arc::clone(&env.bootstrap), Arc::clone(&env.backend));
        let group = Group::register(bootstrap, Arc::clone(&device), backend, options)?;
        let pool = SharedPool::register(&group, job.model.clone(), job.num_pool_pages)?;
        let composer = Composer::register(group, pool, Some(Arc::clone(&env.collective)), job.options)?;
        let oracle = Oracle::new(job.model.clone(), job.num_pool_pages, job.seed);
        Ok(Self { env, job, device, composer, oracle, measured: Measured::default(), progress })
    }

    /// Everything; the report on rank 0.
    fn run(mut self) -> Result<Option<Report>, RunError> {
        for batch in &self.job.batches {
            self.batch(batch)?;
        }
        if self.composer.group().unreachable().is_none() {
            self.progress.part("timing barriers");
            self.measured.barriers = barriers::measure(&mut self.composer, self.env.library.as_ref())?;
        }
        self.progress.step("closing");
        self.measured.stats = self.composer.stats();
        self.measured.copy_mechanism = self.env.library.as_ref().map(|library| library.copy_mechanism());
        self.composer.close()?;
        Ok((self.env.rank().0 == 0).then(|| Report::new(self.job, self.env, self.measured)))
    }

    fn batch(&mut self, planned: &PlannedBatch) -> Result<(), RunError> {
        let batch = &planned.batch;
        let plan = self.composer.plan(batch)?;
        let (num_batches, num_strategies) = (self.job.batches.len(), self.job.strategies.len());
        self.progress.part(&format!(
            "batch {} of {num_batches}: proving {num_strategies} strategies, then {} timed rounds",
            planned.batch_idx + 1,
            self.job.rounds
        ));
        let mut inputs = Vec::new();
        for &choice in &self.job.strategies {
            self.progress.step(&format!("batch {}: proving {}", planned.batch_idx, name_of(choice)));
            // Other stamps for each strategy: none is right by what another left behind.
            self.oracle.restamp();
            inputs = self.inputs(&plan)?;
            self.prove(batch, choice, &inputs)?;
        }
        if self.job.rounds > 0 {
            let scratch = self.scratch(&plan)?;
            for round in 0..self.job.rounds {
                self.progress.step(&format!("batch {}: timing round {round}", planned.batch_idx));
                self.timed_round(batch, &inputs, &scratch)?;
            }
        }
        self.measured.num_slots.push(plan.slots.num_slots());
        self.oracle.persisted(&plan.slots);
        Ok(())
    }

    /// This rank's rows of every layer.
    fn inputs(&self, plan: &BatchPlan) -> Result<Vec<LayerInputs>, RunError> {
        let stream = self.composer.group().stream();
        let mut layers = Vec::with_capacity(self.job.model.num_layers());
        for layer in 0..self.job.model.num_layers() {
            let mut inputs = LayerInputs::default();
            for &buffer in self.job.model.buffers_of(layer) {
                let bytes = self.oracle.inputs(plan, layer, buffer);
                let memory = self.device.alloc(bytes.len() as u64)?;
                stream.upload(bytes, &memory)?;
                inputs = inputs.with(buffer, memory);
            }
            layers.push(inputs);
        }
        Ok(layers)
    }

    /// Composes every layer into poisoned memory and compares every byte with the oracle's; persists.
    fn prove(
        &mut self,
        batch: &Batch,
        choice: StrategyChoice,
        inputs: &[LayerInputs],
    ) -> Result<(), RunError> {
        let host_timeout = self.composer.group().options().host_timeout;
        let mut wrong = None;
        let mut flight = self.composer.begin(batch, choice)?;
        let strategy = flight.strategy();
        for (layer, inputs) in inputs.iter().enumerate() {
            for &buffer in self.job.model.buffers_of(layer) {
                let dense = flight.next_dense(buffer)?;
                flight.stream().upload(vec![POISON; dense.bytes() as usize], &dense)?;
            }
            flight.compose_layer(layer, inputs)?;
            flight.persist_layer(layer)?;
            flight.synchronize()?;
            for &buffer in self.job.model.buffers_of(layer) {
                let dense = flight.dense(buffer)?;
                let mut bytes = vec![0; dense.bytes() as usize];
                flight.stream().download(&dense, &mut bytes, Deadline::after(host_timeout))?;
                let compared = self.oracle.compare(&flight.plan().slots, layer, buffer, &bytes);
                wrong = wrong.or(compared.err());
            }
        }
        flight.finish()?;
        let mut message = wrong.map(|difference| difference.to_string()).unwrap_or_default();
        message.truncate(MAX_MESSAGE_BYTES);
        let deadline = Deadline::after(self.composer.group().options().bootstrap_timeout);
        let messages = self.env.bootstrap.all_gather("outcome of the proof", message.as_bytes(), deadline)?;
        let wrong = messages.iter().enumerate().find(|(_, message)| !message.is_empty());
        let wrong = wrong.map(|(rank, message)| format!("rank {rank}: {}", String::from_utf8_lossy(message)));
        self.measured.proof(strategy, wrong);
        Ok(())
    }

    /// One round: every strategy and yardstick once.
    fn timed_round(
        &mut self,
        batch: &Batch,
        inputs: &[LayerInputs],
        scratch: &Scratch,
    ) -> Result<(), RunError> {
        for &choice in &self.job.strategies {
            self.time_strategy(batch, choice, inputs)?;
        }
        if self.composer.staging_pages().is_some() {
            let ms = self.time(batch, StrategyChoice::Exactly(Strategy::StagingFill), |flight| {
                for (layer, inputs) in inputs.iter().enumerate() {
                    // SAFETY: nothing reads the dense buffer before the next compose; the batch ends behind this,
                    // and the ranks exchange their times before they go on.
                    unsafe { flight.run_without_barrier(layer, inputs) }?;
                }
                Ok(())
            })?;
            self.measured.ideal.push(ms);
        }
        self.time_yardsticks(batch, scratch)
    }

    fn time_strategy(
        &mut self,
        batch: &Batch,
        choice: StrategyChoice,
        inputs: &[LayerInputs],
    ) -> Result<(), RunError> {
        let mut marks = Vec::new();
        let mut strategy = Strategy::StagingFill;
        let ms = self.time(batch, choice, |flight| {
            strategy = flight.strategy();
            flight.mark_collectives();
            for (layer, inputs) in inputs.iter().enumerate() {
                flight.compose_layer(layer, inputs)?;
            }
            marks = flight.collective_marks().to_vec();
            Ok(())
        })?;
        self.measured.time(strategy, ms);
        if strategy == Strategy::GatherCompact {
            let windows: Vec<_> = marks.into_iter().map(|[start, end]| Window { start, end }).collect();
            let ms = group_ms(&*self.env.bootstrap, &windows, Span::SinceLastStart, self.deadline())?;
            self.measured.compact_collective.push(ms.iter().sum());
        }
        Ok(())
    }

    /// Times `body` on the group's stream, from a common start.
    fn time(
        &mut self,
        batch: &Batch,
        choice: StrategyChoice,
        body: impl FnOnce(&mut BatchInFlight<'_>) -> Result<(), RunError>,
    ) -> Result<f64, RunError> {
        let deadline = self.deadline();
        let has_peers = self.composer.group().unreachable().is_none();
        let mut flight = self.composer.begin(batch, choice)?;
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
        let ms = group_ms(&*self.env.bootstrap, &[Window { start, end }], Span::Makespan, deadline)?;
        Ok(ms[0])
    }

    fn time_yardsticks(&mut self, batch: &Batch, scratch: &Scratch) -> Result<(), RunError> {
        let (model, rank, size) = (&self.job.model, self.env.rank().idx(), self.job.group_size);
        let choice = self.job.strategies[0];
        let layers = 0..model.num_layers();
        let ms = self.time(batch, choice, |flight| {
            for layer in layers.clone() {
                for (_, bytes) in dense_bytes(flight.plan(), model, layer) {
                    baselines::memcpy(flight.stream(), scratch, bytes)?;
                }
            }
            Ok(())
        })?;
        self.measured.memcpy.push(ms);
        let is_host = self.device.memory() == MemoryKind::Host;
        let Some(library) = self.env.library.as_ref().filter(|_| is_host) else { return Ok(()) };
        let ms = self.time(batch, choice, |flight| {
            for layer in layers.clone() {
                for (id, _) in dense_bytes(flight.plan(), model, layer) {
                    let page_bytes = model.buffers[id.idx()].spec.page_bytes();
                    let counts = contributions(flight.plan(), size, page_bytes);
                    let call = baselines::all_gather(library, scratch, rank, counts);
                    flight.stream().host_call("MPI_Allgatherv", call)?;
                }
            }
            Ok(())
        })?;
        self.measured.mpi_allgatherv.push(ms);
        let mut windows = Vec::new();
        let ms = self.time(batch, choice, |flight| {
            for layer in layers.clone() {
                let bytes = compact_bytes(flight, model, layer);
                let start = flight.stream().record()?;
                flight.stream().host_call("MPI_Allreduce", baselines::all_reduce(library, scratch, bytes))?;
                windows.push(Window { start, end: flight.stream().record()? });
            }
            Ok(())
        })?;
        self.measured.mpi_allreduce.push(ms);
        let ms = group_ms(&*self.env.bootstrap, &windows, Span::SinceLastStart, self.deadline())?;
        self.measured.bare_collective.push(ms.iter().sum());
        Ok(())
    }

    /// Memory for the yardsticks, as large as the largest layer's buffers.
    fn scratch(&self, plan: &BatchPlan) -> Result<Scratch, RunError> {
        let model = &self.job.model;
        let layer_bytes = |layer| dense_bytes(plan, model, layer).iter().map(|dense| dense.1).sum();
        let bytes: u64 = (0..model.num_layers()).map(layer_bytes).max().unwrap_or(0);
        Ok(Scratch { src: self.device.alloc(bytes)?, dst: self.device.alloc(bytes)? })
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.composer.group().options().bootstrap_timeout)
    }
}

/// Bytes of the packed current pages of a layer.
fn compact_bytes(flight: &BatchInFlight<'_>, model: &ModelSpec, layer: usize) -> u64 {
    let num_current = u64::from(flight.plan().slots.num_current());
    model.buffers_of(layer).iter().map(|id| num_current * model.buffers[id.idx()].spec.page_bytes()).sum()
}

fn name_of(choice: StrategyChoice) -> &'static str {
    match choice {
        StrategyChoice::Auto => "auto",
        StrategyChoice::Exactly(strategy) => strategy.name(),
    }
}
