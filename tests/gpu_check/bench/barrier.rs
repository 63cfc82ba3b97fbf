//! The barrier's latency, ranks as threads of one GPU, on the clock that its kernels share.

use std::sync::Arc;

use cpkv::group::Group;
use cpkv::units::GroupSize;
use cpkv_kernels::abi::BarrierTiming;

use super::samples::Samples;
use crate::context::{Context, LONG};
use crate::outcome::{Cell, Figures, Outcome, Problem};
use crate::ranks::{Seat, group_options, on_threads, thread_seats};

/// What the median of 8 ranks is to stay under, in microseconds.
const AIM_US: f64 = 8.0;

/// All group sizes but one rank.
pub(crate) fn run(context: &Context) -> Result<Outcome, Problem> {
    let gpu = [context.open()?];
    let (num_blocks, num_barriers) = context.pick((10, 200), (2, 20));
    let mut figures = Figures::new(
        "Barrier, ranks as threads of one GPU: microseconds",
        &["ranks", "kernel median", "p99", "max", "chain median", "p99", "max", "chain mean", "aim"],
    );
    for &num_ranks in context.ranks.iter().filter(|&&num_ranks| num_ranks > 1) {
        let size = GroupSize::new(num_ranks)?;
        let ranks = on_threads(thread_seats(&gpu, size), |seat| time(&seat, num_blocks, num_barriers))?;
        let times = Times::of(&ranks, num_blocks as usize);
        let aim = match (num_ranks == 8, times.kernel.median() < AIM_US) {
            (false, _) => "",
            (true, true) => "met",
            (true, false) => "missed",
        };
        let [kernel, chain] = [&times.kernel, &times.chain]
            .map(|samples| [samples.median(), samples.quantile(0.99), samples.max()]);
        let numbers = kernel.into_iter().chain(chain).chain([times.mean()]).map(Cell::from);
        figures.row([Cell::from(u64::from(num_ranks))].into_iter().chain(numbers).chain([aim.into()]));
    }
    figures.notes.push(format!(
        "{num_blocks} blocks of {num_barriers} barriers launched one behind the other; kernel: from the last rank's entry \
         to the last rank's exit; chain: between the last exits of successive barriers, launches included"
    ));
    figures.notes.push(
        "the GPU's timer may step by as much as a microsecond: the chain's mean is the total over the number"
            .to_owned(),
    );
    figures.notes.push(format!("aim: the kernel's median with 8 ranks under {AIM_US} us"));
    let detail = format!("{} group sizes measured", figures.rows.len());
    Ok(Outcome::Passed { detail, tables: vec![figures] })
}

/// What one rank saw, block by block.
fn time(seat: &Seat, num_blocks: u32, num_barriers: u32) -> Result<Vec<Vec<BarrierTiming>>, Problem> {
    let (bootstrap, backend) = (Arc::clone(&seat.bootstrap), Arc::clone(&seat.backend));
    let mut group = Group::register(bootstrap, Arc::clone(&seat.device), backend, group_options(LONG))?;
    // The memory for the times is had before any barrier runs, and given back for the blocks to take: an allocation may
    // wait for a barrier of another rank, which waits for this one.
    let times = seat.device.alloc(u64::from(num_barriers) * size_of::<BarrierTiming>() as u64)?;
    seat.meet("memory is there")?;
    drop(times);
    seat.meet("memory can be taken")?;
    let mut blocks = Vec::new();
    for _ in 0..num_blocks {
        blocks.push(group.time_barriers(num_barriers)?);
        seat.meet("a block is over")?;
    }
    group.close()?;
    Ok(blocks)
}

/// Microseconds.
#[derive(Default)]
struct Times {
    kernel: Samples,
    chain: Samples,
    total: f64,
}

impl Times {
    /// From what all ranks saw, `[ranks][blocks][barriers]`. The first barrier of a block waits for the hosts.
    fn of(ranks: &[Vec<Vec<BarrierTiming>>], num_blocks: usize) -> Self {
        let mut times = Self::default();
        for block in 0..num_blocks {
            let num_barriers = ranks.iter().map(|rank| rank[block].len()).min().unwrap_or(0);
            let last = |time: fn(&BarrierTiming) -> u64, barrier: usize| {
                ranks.iter().map(|rank| time(&rank[block][barrier])).max().unwrap_or(0)
            };
            let exits: Vec<u64> =
                (0..num_barriers).map(|barrier| last(|timing| timing.left_ns, barrier)).collect();
            for barrier in 1..num_barriers {
                let entry = last(|timing| timing.entered_ns, barrier);
                times.kernel.push(us(exits[barrier].saturating_sub(entry)));
                times.chain.push(us(exits[barrier].saturating_sub(exits[barrier - 1])));
            }
            if let (Some(first), Some(last)) = (exits.first(), exits.last()) {
                times.total += us(last.saturating_sub(*first));
            }
        }
        times
    }

    fn mean(&self) -> f64 {
        self.total / self.chain.len().max(1) as f64
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_lasts_from_the_last_entry_to_the_last_exit() {
        let timing = |entered_ns, left_ns| BarrierTiming { entered_ns, left_ns };
        let first = vec![vec![timing(0, 9_000), timing(10_000, 14_000)]];
        let second = vec![vec![timing(5_000, 8_000), timing(12_000, 15_000)]];
        let times = Times::of(&[first, second], 1);
        assert_eq!((times.kernel.median(), times.chain.median(), times.mean()), (3.0, 6.0, 6.0));
    }
}
