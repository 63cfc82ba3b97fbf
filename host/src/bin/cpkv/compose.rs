//! `cpkv compose`: proves every strategy's bytes on batches of a trace, then times them against yardsticks.

use std::sync::Arc;

use cpkv::compose::{Composer, LayerInputs, StrategyChoice};
use cpkv::deadline::Deadline;
use cpkv::device::Device;
use cpkv::plan::{Batch, BatchPlan};
use cpkv::verify::Oracle;
use cpkv::workload::PlannedBatch;

use crate::args::ComposeArgs;
use crate::barriers::{self, Blocks};
use crate::baselines::Scratch;
use crate::devices;
use crate::error::RunError;
use crate::job::{Job, Wanted};
use crate::progress::Progress;
use crate::ranks::{self, RankEnv};
use crate::report::{Measured, Report};
use crate::rig::compose_rig;
use crate::stopwatch::{Stopwatch, scratch};

/// What dense buffers hold before each compose.
const POISON: u8 = 0xC3;
/// Longest message of one rank about one strategy.
const MAX_MESSAGE_BYTES: usize = 512;

/// Runs the command.
pub(crate) fn run(args: ComposeArgs) -> Result<(), RunError> {
    let size = ranks::group_size(args.trace.ranks)?;
    let wanted = Wanted {
        strategy: args.strategy,
        rounds: args.rounds,
        dense_arena: args.dense_arena,
        time_barriers: true,
    };
    let job = Job::prepare(&args.trace, wanted, size)?;
    let platform = devices::choose(args.device)?;
    let report = ranks::run_all(size, job.timeout, &platform, |env| RankRun::start(&env, &job)?.run())?;
    if let Some(report) = report {
        let printed = report.print(args.json);
        let wrong = report.wrong();
        // Whoever reads the report or not: that comes first.
        if !wrong.is_empty() {
            return Err(RunError::NotExact(wrong));
        }
        printed?;
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
        let composer = compose_rig(env, job)?;
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
            self.measured.barriers =
                barriers::measure(self.composer.group_mut(), self.env.library.as_ref(), Blocks::default())?;
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
            let scratch = scratch(self.env, &plan, &self.job.model)?;
            for round in 0..self.job.rounds {
                self.progress.step(&format!("batch {}: timing round {round}", planned.batch_idx));
                self.timed_round(batch, &plan, &inputs, &scratch)?;
            }
        }
        self.measured.num_slots.push(plan.slots.num_slots());
        self.measured.traffic.batch(&plan.slots, &self.job.model);
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
        plan: &BatchPlan,
        inputs: &[LayerInputs],
        scratch: &Scratch,
    ) -> Result<(), RunError> {
        let measured = &mut self.measured;
        let mut watch = Stopwatch { env: self.env, composer: &mut self.composer, batch, inputs };
        for &choice in &self.job.strategies {
            let composed = watch.strategy(choice)?;
            measured.time(composed.strategy, composed.ms);
            measured.compact_collective.extend(composed.collective_ms);
        }
        measured.ideal.extend(watch.ideal()?);
        let choice = self.job.strategies[0];
        let ms = watch.memcpy(choice, scratch)?;
        measured.memcpy.push(ms);
        measured.traffic.memcpy(&plan.slots, &self.job.model, ms);
        measured.mpi_allgatherv.extend(watch.all_gather(choice, scratch)?);
        if let Some(reduced) = watch.all_reduce(choice, scratch)? {
            measured.mpi_allreduce.push(reduced.ms);
            measured.bare_collective.push(reduced.bare_ms);
        }
        Ok(())
    }
}

fn name_of(choice: StrategyChoice) -> &'static str {
    match choice {
        StrategyChoice::Auto => "auto",
        StrategyChoice::Exactly(strategy) => strategy.name(),
    }
}
