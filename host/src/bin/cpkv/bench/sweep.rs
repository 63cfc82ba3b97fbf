//! The sweep: every strategy and yardstick on a grid of batches, round by round, in the time there is.
//!
//! A first round of each batch warms up and tells what it costs. Then rounds go through all batches in turn, and in each the
//! strategies begin with another one, so that what the machine does beside them falls on all alike.

use cpkv::compose::{Composer, LayerInputs, StrategyChoice};
use cpkv::device::{DeviceBuffer, DeviceError};
use cpkv::pages::{BufferKind, INDEX_K_DIM};
use cpkv::plan::{Batch, BatchPlan, Strategy};

use super::batches::batch;
use super::budget::{MIN_ROUNDS, may_try, rounds};
use super::cases::Case;
use super::clock::SharedClock;
use super::egress;
use super::figures::{Figure, ratio, skew};
use super::report::{ComposeCase, ComposeRow, Egress, Kind, LeftOut};
use crate::baselines::Scratch;
use crate::error::RunError;
use crate::progress::Progress;
use crate::ranks::RankEnv;
use crate::samples::Samples;
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
    case: Case,
    batch: Batch,
    inputs: Vec<LayerInputs>,
    dense_bytes: u64,
    egress: Vec<Egress>,
    rows: Vec<(&'static str, Kind, Samples)>,
    /// Rounds that there is time for; `None`: too few.
    planned: Option<u32>,
    /// What a round takes, as the first one did.
    cost_ms: f64,
    num_rounds: u32,
}

impl Sweep<'_> {
    /// Measures `cases`. Collective, and the same on every rank.
    pub(crate) fn run(&mut self, cases: &[Case]) -> Result<Swept, RunError> {
        let mut swept = Swept::default();
        let strategies = self.strategies(&mut swept.left_out);
        let (mut benches, scratch) = self.prepare(cases)?;
        benches.sort_by_key(|bench| bench.dense_bytes);
        let mut costs_ms = Vec::with_capacity(benches.len());
        let mut last = None;
        for bench in &mut benches {
            let left_ms = self.clock.left_ms(self.env)?;
            if !may_try(bench.dense_bytes, last, left_ms) {
                costs_ms.push(f64::INFINITY);
                continue;
            }
            self.progress.part(&format!("composing {}: warming up", bench.case));
            self.round(bench, &scratch, &strategies)?;
            let cost_ms = left_ms - self.clock.left_ms(self.env)?;
            bench.rows.clear();
            costs_ms.push(cost_ms);
            last = Some((bench.dense_bytes, cost_ms));
        }
        let planned = rounds(&costs_ms, self.clock.left_ms(self.env)?);
        self.progress.step("");
        self.progress.part(&format!("composing {} batches, in rounds", planned.iter().flatten().count()));
        for ((bench, planned), cost_ms) in benches.iter_mut().zip(&planned).zip(costs_ms) {
            (bench.planned, bench.cost_ms) = (*planned, cost_ms);
        }
        self.timed_rounds(&mut benches, &scratch, strategies)?;
        for bench in &benches {
            let what = format!("composing {}", bench.case);
            match bench.planned {
                None => swept.left_out.push(LeftOut::new(what, "the time does not allow for 3 rounds of it")),
                Some(_) if bench.num_rounds < MIN_ROUNDS => {
                    let why = format!("the time was over after {} rounds", bench.num_rounds);
                    swept.left_out.push(LeftOut::new(what, why));
                }
                Some(_) => {}
            }
        }
        let default = default_strategy(self.composer).name();
        let measured = benches.into_iter().filter(|bench| bench.num_rounds > 0);
        swept.cases = measured.map(|bench| bench.report(default)).collect();
        swept.cases.sort_by_key(|case| {
            let Case { prefix_tokens, new_tokens, requests } = case.case;
            (requests, prefix_tokens, new_tokens)
        });
        Ok(swept)
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
    fn prepare(&self, cases: &[Case]) -> Result<(Vec<Bench>, Scratch), RunError> {
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
            Ok(Bench {
                case,
                batch,
                inputs,
                dense_bytes,
                egress,
                rows: Vec::new(),
                planned: None,
                cost_ms: 0.0,
                num_rounds: 0,
            })
        });
        Ok((benches.collect::<Result<_, RunError>>()?, scratch))
    }

    /// Memory that was written: pages that never were may all be one page of zeros.
    fn filled(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
        let memory = self.env.device.alloc(bytes)?;
        self.env.device.write(&vec![0x3C; bytes as usize], &memory)?;
        Ok(memory)
    }

    fn timed_rounds(
        &mut self,
        benches: &mut [Bench],
        scratch: &Scratch,
        mut strategies: Vec<Strategy>,
    ) -> Result<(), RunError> {
        let most = benches.iter().filter_map(|bench| bench.planned).max().unwrap_or(0);
        for round in 0..most {
            let by = 1.min(strategies.len());
            strategies.rotate_left(by);
            let in_turn = benches.iter_mut();
            for bench in in_turn.filter(|bench| bench.planned.is_some_and(|planned| planned > round)) {
                // The machine may be slower by now than when it was planned.
                if self.clock.left_ms(self.env)? < bench.cost_ms {
                    continue;
                }
                self.progress.now(&format!("round {}: composing {}", round + 1, bench.case));
                self.round(bench, scratch, &strategies)?;
                bench.num_rounds += 1;
            }
        }
        Ok(())
    }

    /// Every strategy and yardstick once.
    fn round(
        &mut self,
        bench: &mut Bench,
        scratch: &Scratch,
        strategies: &[Strategy],
    ) -> Result<(), RunError> {
        let Bench { batch, inputs, rows, .. } = bench;
        let mut put = |name, kind, ms: f64| {
            let at = rows.iter().position(|(known, ..)| *known == name).unwrap_or_else(|| {
                rows.push((name, kind, Samples::default()));
                rows.len() - 1
            });
            rows.iter_mut().skip(at).take(1).for_each(|(.., samples)| samples.push(ms));
        };
        let mut watch = Stopwatch { env: self.env, composer: self.composer, batch, inputs };
        for &strategy in strategies {
            let composed = watch.strategy(StrategyChoice::Exactly(strategy))?;
            put(strategy.name(), Kind::Strategy, composed.ms);
        }
        if let Some(ms) = watch.ideal()? {
            put(IDEAL, Kind::Yardstick, ms);
        }
        let choice = StrategyChoice::Auto;
        put("memcpy", Kind::Yardstick, watch.memcpy(choice, scratch)?);
        if let Some(ms) = watch.all_gather(choice, scratch)? {
            put(MPI_ALL_GATHER, Kind::Mpi, ms);
        }
        if let Some(reduced) = watch.all_reduce(choice, scratch)? {
            put(MPI_ALL_REDUCE, Kind::Mpi, reduced.ms);
        }
        Ok(())
    }
}

const IDEAL: &str = "ideal";
const MPI_ALL_GATHER: &str = "mpi_allgatherv";
/// Sums the current pages alone: the whole work only where there is no prefix.
const MPI_ALL_REDUCE: &str = "mpi_allreduce";

impl Bench {
    fn report(self, default: &'static str) -> ComposeCase {
        let order = |name: &str| {
            let strategy = Strategy::ALL.iter().position(|strategy| strategy.name() == name);
            strategy.unwrap_or(Strategy::ALL.len())
        };
        let mut samples = self.rows;
        samples.sort_by_key(|(name, ..)| order(name));
        let median_of =
            |wanted| samples.iter().find(|(name, ..)| *name == wanted).map(|(.., ms)| ms.median());
        let (ideal, ours) = (median_of(IDEAL), median_of(default));
        let row = |(name, kind, ms): &(&'static str, Kind, Samples)| {
            let figure = Figure::of(ms)?;
            Some(ComposeRow {
                name,
                kind: *kind,
                samples: figure.samples,
                ms_median: figure.median,
                ms_p99: figure.p99,
                ratio_to_ideal: ideal.map(|ideal| ratio(ms.median(), ideal)),
            })
        };
        let rows: Vec<ComposeRow> = samples.iter().filter_map(row).collect();
        let is_whole = |row: &&ComposeRow| match row.kind {
            Kind::Strategy => row.name != default,
            Kind::Mpi => row.name != MPI_ALL_REDUCE || self.case.prefix_tokens == 0,
            Kind::Yardstick => false,
        };
        let faster = rows.iter().filter(is_whole).filter(|row| ours.is_some_and(|ours| row.ms_median < ours));
        let lost_to = faster.map(|row| row.name).collect();
        let read: Vec<u64> =
            self.egress.iter().map(|egress| egress.prefix_bytes + egress.current_bytes).collect();
        ComposeCase {
            case: self.case,
            dense_bytes: self.dense_bytes,
            rounds: self.num_rounds,
            rows,
            lost_to,
            egress_skew: skew(&read),
            egress: self.egress,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(prefix_tokens: u32, rows: &[(&'static str, Kind, f64)]) -> Bench {
        let samples = |ms: f64| {
            let mut samples = Samples::default();
            samples.extend([ms, ms, 2.0 * ms]);
            samples
        };
        Bench {
            case: Case { prefix_tokens, new_tokens: 1024, requests: 1 },
            batch: Batch::default(),
            inputs: Vec::new(),
            dense_bytes: 1,
            egress: vec![Egress { prefix_bytes: 3, current_bytes: 0 }, Egress::default()],
            rows: rows.iter().map(|&(name, kind, ms)| (name, kind, samples(ms))).collect(),
            planned: Some(3),
            cost_ms: 1.0,
            num_rounds: 3,
        }
    }

    const ROWS: [(&str, Kind, f64); 6] = [
        ("staging_fill", Kind::Strategy, 3.0),
        ("per_span", Kind::Strategy, 2.5),
        ("symm_dense", Kind::Strategy, 3.5),
        (IDEAL, Kind::Yardstick, 2.0),
        ("memcpy", Kind::Yardstick, 1.0),
        (MPI_ALL_REDUCE, Kind::Mpi, 1.0),
    ];

    #[test]
    fn who_does_the_whole_work_in_less_time_than_the_default_beats_it_and_a_yardstick_does_not() {
        assert_eq!(bench(1024, &ROWS).report("staging_fill").lost_to, ["per_span"]);
        // Without a prefix the sum of the current pages is the whole work.
        assert_eq!(bench(0, &ROWS).report("staging_fill").lost_to, ["per_span", MPI_ALL_REDUCE]);
        assert!(bench(0, &ROWS).report("per_span").lost_to.contains(&MPI_ALL_REDUCE));
    }

    #[test]
    fn rows_come_in_the_order_of_the_strategies_with_their_ratio_to_ideal() {
        let report = bench(0, &ROWS).report("staging_fill");
        let names: Vec<_> = report.rows.iter().map(|row| row.name).collect();
        assert_eq!(names, ["per_span", "symm_dense", "staging_fill", "ideal", "memcpy", "mpi_allreduce"]);
        let ours = &report.rows[2];
        assert_eq!(
            (ours.samples, ours.ms_median, ours.ms_p99, ours.ratio_to_ideal),
            (3, 3.0, 6.0, Some(1.5))
        );
        assert_eq!(report.egress_skew, 2.0);
        let without = bench(0, &ROWS[..1]).report("staging_fill");
        assert_eq!(without.rows[0].ratio_to_ideal, None);
    }
}
