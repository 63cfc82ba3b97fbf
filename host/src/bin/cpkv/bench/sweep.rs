//! The sweep: every strategy and yardstick on a grid of batches, round by round, in the time there is.
//!
//! A first round of each batch warms up and tells what it costs. Then rounds go through all batches in turn, and each begins
//! with another strategy or yardstick, so that what the machine does beside them falls on all alike. After the first rounds
//! the slow ones take part in some rounds only. All of this follows from times that the ranks share, never from a rank's own.

use cpkv::compose::{Composer, LayerInputs, StrategyChoice};
use cpkv::device::{DeviceBuffer, DeviceError};
use cpkv::pages::{BufferKind, INDEX_K_DIM};
use cpkv::plan::{Batch, BatchPlan, Strategy};

use super::batches::batch;
use super::budget::{MIN_ROUNDS, fitting, may_try, more_rounds};
use super::case_samples::CaseSamples;
use super::cases::Case;
use super::clock::SharedClock;
use super::egress;
use super::report::{ComposeCase, LeftOut};
use super::way::Way;
use crate::baselines::Scratch;
use crate::error::RunError;
use crate::progress::Progress;
use crate::ranks::RankEnv;
use crate::stopwatch::{Stopwatch, scratch};

/// What is measured on.
pub(crate) struct Sweep<'a> {
    pub(crate) env: &'a RankEnv,
    pub(crate) composer: &'a mut Composer,
    pub(crate) clock: &'a SharedClock,
    pub(crate) progress: &'a Progress,
    pub(crate) seed: u64,
}

/// What was found.
#[derive(Default)]
pub(crate) struct Swept {
    pub(crate) cases: Vec<ComposeCase>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// What the library takes where nobody says otherwise.
pub(crate) fn default_strategy(composer: &Composer) -> Strategy {
    match composer.stats().unreachable {
        None => Strategy::StagingFill,
        Some(_) => Strategy::FusedAllReduce,
    }
}

/// One case, ready to be composed.
struct Bench {
    batch: Batch,
    inputs: Vec<LayerInputs>,
    samples: CaseSamples,
    /// Rounds that there is time for; 0: too few.
    num_planned: u32,
    /// The least that a round of all ways took, everything about it included.
    cost_ms: f64,
}

impl Sweep<'_> {
    /// Measures `cases`. Collective, and the same on every rank.
    pub(crate) fn run(&mut self, cases: &[Case]) -> Result<Swept, RunError> {
        let mut swept = Swept::default();
        let mut ways = Way::all(&self.strategies(&mut swept.left_out));
        let (mut benches, scratch) = self.prepare(cases, &ways)?;
        benches.sort_by_key(|bench| bench.samples.dense_bytes);
        self.warm_up(&mut benches, &scratch, &ways)?;
        let costs_ms: Vec<f64> = benches.iter().map(|bench| bench.cost_ms).collect();
        let fits = fitting(&costs_ms, self.clock.left_ms(self.env)?);
        for (bench, _) in benches.iter_mut().zip(fits).filter(|(_, fits)| *fits) {
            bench.num_planned = MIN_ROUNDS;
        }
        let num_cases = benches.iter().filter(|bench| bench.num_planned > 0).count();
        self.progress.step("");
        self.progress.part(&format!("composing {num_cases} batches, in rounds"));
        self.timed_rounds(&mut benches, &scratch, &mut ways, 0)?;
        self.plan_more(&mut benches)?;
        self.timed_rounds(&mut benches, &scratch, &mut ways, MIN_ROUNDS)?;
        for bench in &benches {
            let (what, num_rounds) = (format!("composing {}", bench.samples.case), bench.samples.num_rounds);
            if bench.num_planned == 0 {
                let why = format!("the time does not allow for {MIN_ROUNDS} rounds of it");
                swept.left_out.push(LeftOut::new(what, why));
            } else if num_rounds < MIN_ROUNDS {
                let why = format!("the time was over after {num_rounds} rounds");
                swept.left_out.push(LeftOut::new(what, why));
            }
        }
        let default = default_strategy(self.composer).name();
        let measured = benches.into_iter().filter(|bench| bench.samples.num_rounds >= MIN_ROUNDS);
        swept.cases = measured.map(|bench| bench.samples.report(default)).collect();
        swept.cases.sort_by_key(|case| {
            let Case { prefix_tokens, new_tokens, requests } = case.case;
            (requests, prefix_tokens, new_tokens)
        });
        Ok(swept)
    }

    /// A round of each batch that there seems to be time for, which tells its cost.
    fn warm_up(&mut self, benches: &mut [Bench], scratch: &Scratch, ways: &[Way]) -> Result<(), RunError> {
        let mut last = None;
        for bench in benches {
            let left_ms = self.clock.left_ms(self.env)?;
            if !may_try(bench.samples.dense_bytes, last, left_ms) {
                continue;
            }
            self.progress.part(&format!("composing {}: warming up", bench.samples.case));
            self.round(bench, scratch, ways, 0)?;
            bench.samples.forget();
            bench.cost_ms = left_ms - self.clock.left_ms(self.env)?;
            last = Some((bench.samples.dense_bytes, bench.cost_ms));
        }
        Ok(())
    }

    /// Deals out the time that the first rounds have left, by what they took.
    fn plan_more(&self, benches: &mut [Bench]) -> Result<(), RunError> {
        let default = default_strategy(self.composer).name();
        let mut open: Vec<_> =
            benches.iter_mut().filter(|bench| bench.samples.num_rounds >= MIN_ROUNDS).collect();
        open.iter_mut().for_each(|bench| bench.samples.take_turns(default));
        let costs_ms: Vec<f64> =
            open.iter().map(|bench| bench.cost_ms * bench.samples.share_of_rounds()).collect();
        for (bench, more) in open.into_iter().zip(more_rounds(&costs_ms, self.clock.left_ms(self.env)?)) {
            bench.num_planned += more;
        }
        Ok(())
    }

    /// The strategies that can be measured here.
    fn strategies(&self, left_out: &mut Vec<LeftOut>) -> Vec<Strategy> {
        let reason = self.composer.stats().unreachable;
        let mut strategies = Strategy::ALL.to_vec();
        if let Some(reason) = reason {
            strategies.retain(|strategy| !strategy.needs_peer_access());
            left_out.push(LeftOut::new("strategies that read peers' memory, and ideal", reason));
        }
        strategies
    }

    /// Batches with their inputs, and memory of the yardsticks for the largest of them. Inputs of all layers and batches are
    /// one stretch of memory a buffer: what stands in it does not matter.
    fn prepare(&self, cases: &[Case], ways: &[Way]) -> Result<(Vec<Bench>, Scratch), RunError> {
        let pool = self.composer.pool();
        let (model, shape) = (pool.model().clone(), pool.shape());
        let planned = cases.iter().map(|&case| {
            let batch = batch(case, shape.page_size, shape.num_logical_pages, self.seed);
            Ok((case, self.composer.plan(&batch)?, batch))
        });
        let planned: Vec<(Case, BatchPlan, Batch)> = planned.collect::<Result<_, RunError>>()?;
        let max_rows = planned.iter().map(|(_, plan, _)| plan.rows.num_rows()).max().unwrap_or(0);
        let row_bytes = model.buffers.iter().map(|buffer| match buffer.spec.kind() {
            BufferKind::TokenKv { row_bytes } => u64::from(row_bytes),
            BufferKind::IndexK => INDEX_K_DIM * size_of::<u16>() as u64,
        });
        let row_bytes: Vec<u64> = row_bytes.collect();
        let inputs = row_bytes.iter().map(|row_bytes| self.filled(u64::from(max_rows) * row_bytes));
        let inputs: Vec<DeviceBuffer> = inputs.collect::<Result<_, DeviceError>>()?;
        let largest = planned.iter().max_by_key(|(_, plan, _)| plan.slots.num_slots());
        let scratch = match largest {
            Some((_, plan, _)) => scratch(self.env, plan, &model)?,
            None => Scratch { src: self.env.device.alloc(0)?, dst: self.env.device.alloc(0)? },
        };
        let benches = planned.into_iter().map(|(case, plan, batch)| {
            let num_rows = u64::from(plan.rows.num_rows());
            let of_layer = |layer: usize| {
                let parts = model.buffers_of(layer).iter().map(|&id| {
                    let (memory, row_bytes) = (inputs.get(id.idx()), row_bytes.get(id.idx()));
                    let (memory, row_bytes) = memory.zip(row_bytes)?;
                    Some((id, memory.slice(0..num_rows * row_bytes)))
                });
                parts.flatten().try_fold(LayerInputs::default(), |all, (id, part)| Ok(all.with(id, part?)))
            };
            let inputs = (0..model.num_layers()).map(of_layer).collect::<Result<_, DeviceError>>()?;
            let dense_bytes = u64::from(plan.slots.num_slots()) * model.page_bytes_all_layers();
            let egress = egress::by_rank(&plan, &model);
            let samples = CaseSamples::new(case, dense_bytes, egress, ways);
            Ok(Bench { batch, inputs, samples, num_planned: 0, cost_ms: f64::INFINITY })
        });
        Ok((benches.collect::<Result<_, RunError>>()?, scratch))
    }

    /// Memory that was written: pages that never were may all be one page of zeros.
    fn filled(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
        let memory = self.env.device.alloc(bytes)?;
        self.env.device.write(&vec![0x3C; bytes as usize], &memory)?;
        Ok(memory)
    }

    /// The rounds from `first` on that are planned.
    fn timed_rounds(
        &mut self,
        benches: &mut [Bench],
        scratch: &Scratch,
        ways: &mut [Way],
        first: u32,
    ) -> Result<(), RunError> {
        let end = benches.iter().map(|bench| bench.num_planned).max().unwrap_or(0);
        for round in first..end {
            ways.rotate_left(1);
            for bench in benches.iter_mut().filter(|bench| bench.num_planned > round) {
                // The machine may be slower by now than when it was planned.
                let left_ms = self.clock.left_ms(self.env)?;
                if left_ms < bench.cost_ms * bench.samples.share_of(round) {
                    continue;
                }
                self.progress.now(&format!("round {}: composing {}", round + 1, bench.samples.case));
                self.round(bench, scratch, ways, round)?;
                bench.samples.num_rounds += 1;
                if round < MIN_ROUNDS {
                    let cost_ms = left_ms - self.clock.left_ms(self.env)?;
                    bench.cost_ms = bench.cost_ms.min(cost_ms);
                }
            }
        }
        Ok(())
    }

    /// Whoever takes part in `round`, once.
    fn round(
        &mut self,
        bench: &mut Bench,
        scratch: &Scratch,
        ways: &[Way],
        round: u32,
    ) -> Result<(), RunError> {
        let Bench { batch, inputs, samples, .. } = bench;
        let mut watch = Stopwatch { env: self.env, composer: self.composer, batch, inputs };
        for &way in ways {
            if !samples.is_due(way, round) {
                continue;
            }
            let choice = StrategyChoice::Auto;
            let ms = match way {
                Way::Strategy(strategy) => Some(watch.strategy(StrategyChoice::Exactly(strategy))?.ms),
                Way::Ideal => watch.ideal()?,
                Way::Memcpy => Some(watch.memcpy(choice, scratch)?),
                Way::AllGather => watch.all_gather(choice, scratch)?,
                Way::AllReduce => watch.all_reduce(choice, scratch)?.map(|reduced| reduced.ms),
            };
            if let Some(ms) = ms {
                samples.push(way, ms);
            }
        }
        Ok(())
    }
}
