//! One rank of a run, from its registration to its share of the report.

use std::collections::BTreeMap;

use cpkv::compose::{Composer, LayerInputs};
use cpkv::deadline::Deadline;
use cpkv::group::all_gather_whole;
use cpkv::plan::BatchPlan;
use cpkv::transfer::{Offer, RequestId};
use cpkv::verify::Oracle;

use super::engines::Engines;
use super::exchange::{from_rank_0, settle};
use super::front::Front;
use super::job::{Lane, RunJob};
use super::measured::Measured;
use super::message::{Command, Greeting};
use super::sender::Sender;
use super::timeline::{RankSpans, Recorder};
use crate::error::RunError;
use crate::progress::Progress;
use crate::ranks::RankEnv;
use crate::rig::compose_rig;

/// One rank at work. Dropped after a failure, what sends ends before what it sends from.
pub(crate) struct RankRun<'a> {
    pub(super) env: &'a RankEnv,
    pub(super) job: &'a RunJob,
    pub(super) sender: Sender,
    /// The decode side, on rank 0.
    pub(super) front: Option<Front<'a>>,
    pub(super) composer: Composer,
    pub(super) oracle: Oracle,
    /// What the decode side offered for the transfers that are under way.
    pub(super) offers: BTreeMap<RequestId, Offer>,
    pub(super) measured: Measured,
    pub(super) recorder: Recorder,
    pub(super) progress: Progress,
}

/// What a rank comes to.
pub(crate) struct RankOutcome {
    pub(crate) measured: Measured,
    /// By rank, where they were recorded.
    pub(crate) spans: Vec<RankSpans>,
    /// The engine, in words.
    pub(crate) engine_details: String,
}

impl<'a> RankRun<'a> {
    /// Starts the decode workers and everything that sends to them. Collective.
    pub(crate) fn start(env: &'a RankEnv, job: &'a RunJob, engines: &Engines) -> Result<Self, RunError> {
        let progress = Progress::start(env.rank(), job.num_steps());
        progress.part("registering, and starting decode workers");
        let composer = compose_rig(env, &job.base)?;
        let deadline = || Deadline::after(job.patience());
        let (mut front, mut greeted) = (None, Ok(None));
        if env.rank().0 == 0 {
            match Front::start(job, engines) {
                Ok(started) => {
                    greeted = Ok(Some(started.greetings().to_vec()));
                    front = Some(started);
                }
                Err(error) => greeted = Err(error),
            }
        }
        let greetings: Vec<Greeting> =
            from_rank_0(&*env.bootstrap, "start decode workers", greeted, deadline())?;
        let sender = engines
            .open(&format!("prefill-{}", env.rank()), job.args.transfer_nice)
            .and_then(|engine| Sender::start(job, &env.device, &composer, engine, &greetings));
        let (sender, started) = match sender {
            Ok(sender) => (Some(sender), Ok(())),
            Err(error) => (None, Err(error)),
        };
        settle(&*env.bootstrap, "start transfers", started, deadline())?;
        let Some(sender) = sender else { return Err(RunError::Garbled { call: "start transfers" }) };
        Ok(Self {
            oracle: Oracle::new(job.base.model.clone(), job.base.num_pool_pages, job.seed(0)),
            measured: Measured::new(job.base.batches.len(), &job.ways),
            recorder: Recorder::new(job.args.timeline.is_some()),
            offers: BTreeMap::new(),
            env,
            job,
            sender,
            front,
            composer,
            progress,
        })
    }

    /// Everything. Collective.
    pub(crate) fn run(mut self) -> Result<RankOutcome, RunError> {
        for round in 0..self.job.args.rounds {
            if round > 0 {
                self.restart(round)?;
            }
            for batch_idx in 0..self.job.base.batches.len() {
                self.batch(round, batch_idx)?;
            }
        }
        self.progress.step("closing");
        let engine_details = self.sender.engine.info().details;
        self.gather_hooks()?;
        let spans = self.gather_spans()?;
        let Self { sender, front, composer, measured, .. } = self;
        sender.close()?;
        drop(front);
        composer.close()?;
        Ok(RankOutcome { measured, spans, engine_details })
    }

    /// Stamps of an own seed, in a pool that nothing is known of.
    fn restart(&mut self, round: u32) -> Result<(), RunError> {
        let seed = self.job.seed(round);
        self.oracle = Oracle::new(self.job.base.model.clone(), self.job.base.num_pool_pages, seed);
        self.tell_workers("restart", &Command::Restart { seed })
    }

    fn batch(&mut self, round: u32, batch_idx: usize) -> Result<(), RunError> {
        let Some(planned) = self.job.base.batches.get(batch_idx) else { return Ok(()) };
        let plan = self.composer.plan(&planned.batch)?;
        let inputs = self.inputs(&plan)?;
        self.progress.part(&format!(
            "round {} of {}, batch {} of {}: {} requests, {} new tokens",
            round + 1,
            self.job.args.rounds,
            batch_idx + 1,
            self.job.base.batches.len(),
            planned.requests.len(),
            planned.batch.new_tokens()
        ));
        let compute = self.measure_alone(batch_idx, &inputs)?;
        // In turn, so that neither way always has the warmer caches.
        let mut order: Vec<usize> = (0..self.job.ways.len()).collect();
        if (round as usize + batch_idx) % 2 == 1 {
            order.reverse();
        }
        for way_idx in order {
            self.progress.step(&format!("batch {batch_idx}: {}", self.job.ways[way_idx].name()));
            self.pass(round, batch_idx, way_idx, compute, &inputs)?;
        }
        self.forward_again(batch_idx, compute, &inputs)?;
        self.oracle.persisted(&plan.slots);
        self.tell_workers("persisted", &Command::Persisted { batch_idx })?;
        self.progress.step(&format!("batch {batch_idx}: comparing"));
        self.verify(batch_idx)
    }

    /// This rank's rows of every layer.
    fn inputs(&self, plan: &BatchPlan) -> Result<Vec<LayerInputs>, RunError> {
        let stream = self.composer.group().stream();
        let model = &self.job.base.model;
        let mut layers = Vec::with_capacity(model.num_layers());
        for layer in 0..model.num_layers() {
            let mut inputs = LayerInputs::default();
            for &buffer in model.buffers_of(layer) {
                let bytes = self.oracle.inputs(plan, layer, buffer);
                let memory = self.env.device.alloc(bytes.len() as u64)?;
                stream.upload(bytes, &memory)?;
                inputs = inputs.with(buffer, memory);
            }
            layers.push(inputs);
        }
        Ok(layers)
    }

    /// Room on the decode side for `requests` (number, pages): offers to all ranks. Collective.
    pub(super) fn offer(&mut self, lane: Lane, requests: &[(usize, usize)]) -> Result<Vec<Offer>, RunError> {
        let all = self.job.roster.requests();
        let made = self.front.as_mut().map(|front| {
            let offer = |&(number, num_pages): &(usize, usize)| {
                let pages = all.get(number).and_then(|request| request.pages.get(..num_pages));
                let offer = front.offer(lane.request_id(number), pages.unwrap_or_default())?;
                if lane != Lane::Yardstick {
                    front.poison(&offer)?;
                }
                Ok(offer)
            };
            requests.iter().map(offer).collect::<Result<Vec<_>, RunError>>()
        });
        from_rank_0(&*self.env.bootstrap, "offer pages", made.transpose(), self.deadline())
    }

    /// Has rank 0 tell all decode workers to do something. Collective.
    fn tell_workers(&mut self, call: &'static str, command: &Command) -> Result<(), RunError> {
        let told = self.front.as_mut().map_or(Ok(()), |front| front.tell_all(command));
        self.settle(call, told).map(drop)
    }

    /// Everyone's times of `on_layer_end`.
    fn gather_hooks(&mut self) -> Result<(), RunError> {
        for way_idx in 0..self.measured.ways.len() {
            let way = &self.measured.ways[way_idx];
            let both =
                [way.hooks_us.clone(), way.hooks_cpu_us.clone()].map(crate::samples::Samples::into_bytes);
            for (idx, mine) in both.into_iter().enumerate() {
                let all = all_gather_whole(&*self.env.bootstrap, "hooks", &mine, self.deadline())?;
                let samples = crate::samples::Samples::from_bytes(&all.concat());
                let way = &mut self.measured.ways[way_idx];
                if idx == 0 { way.hooks_us = samples } else { way.hooks_cpu_us = samples }
            }
        }
        Ok(())
    }

    /// Everyone's spans, by rank.
    fn gather_spans(&mut self) -> Result<Vec<RankSpans>, RunError> {
        if !self.recorder.is_on() {
            return Ok(Vec::new());
        }
        let spans = self.recorder.take();
        self.settle("timeline", Ok(spans))
    }

    pub(super) fn deadline(&self) -> Deadline {
        Deadline::after(self.job.patience())
    }
}
