//! Barrier latency by number of ranks.

use std::sync::Arc;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::group::Group;
use cpkv::units::GroupSize;

use super::figures::{Figure, quantiles};
use super::report::{BarrierRow, LeftOut};
use crate::barriers::{self, BarrierTimes, Blocks};
use crate::baselines::Part;
use crate::devices::Platform;
use crate::error::RunError;
use crate::ranks::{self, RankEnv};
use crate::rig;
use crate::samples::Samples;

/// What the first look takes, to find out what a barrier costs.
const PROBE: Blocks = Blocks { num_barriers: 50, num_blocks: 1 };

/// Barriers of a block; fewer are no distribution.
const LEAST_BARRIERS: f64 = 20.0;
const MOST_BARRIERS: f64 = 1000.0;
const NUM_BLOCKS: u32 = 5;

/// Group sizes below `size` that are measured: 2, 4, 8, ...
fn smaller_sizes(size: GroupSize) -> Vec<u32> {
    (1..).map(|power| 1 << power).take_while(|&smaller| smaller < size.get()).collect()
}

/// The rows of groups smaller than `size`, each of threads of its own. Under `mpirun` there are none here: see
/// [`of_first_ranks`].
pub(crate) fn of_smaller_groups(
    size: GroupSize,
    platform: &Platform,
    timeout: Duration,
    share: Duration,
) -> Result<(Vec<BarrierRow>, Vec<LeftOut>), RunError> {
    let sizes = smaller_sizes(size);
    if sizes.is_empty() || ranks::mpi_processes().is_some() {
        return Ok(Default::default());
    }
    let each = share / (1 + sizes.len() as u32);
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for smaller in sizes {
        let measured = ranks::run_all(GroupSize::new(smaller)?, timeout, platform, |env| {
            let mut group = rig::group(&env, timeout)?;
            let measured = of_group(&env, &mut group, each)?;
            group.close()?;
            Ok(measured)
        })?;
        rows.extend(measured.0);
        left_out.extend(measured.1);
    }
    Ok((rows, left_out))
}

/// The rows of groups smaller than all processes of `mpirun`, on rank 0: the first ones are a group, the others wait.
/// Collective. Where ranks are threads there are none.
pub(crate) fn of_first_ranks(
    env: &RankEnv,
    timeout: Duration,
    share: Duration,
) -> Result<(Vec<BarrierRow>, Vec<LeftOut>), RunError> {
    let Some(library) = &env.library else { return Ok(Default::default()) };
    let sizes = smaller_sizes(env.bootstrap.group_size());
    let each = share / sizes.len().max(1) as u32;
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for smaller in sizes {
        // MPI has no deadline for what follows.
        env.bootstrap.barrier("before a smaller group", Deadline::after(2 * timeout))?;
        if let Some(Part { bootstrap, library }) = library.first(GroupSize::new(smaller)?)? {
            let part = RankEnv {
                device: Arc::clone(&env.device),
                device_reason: env.device_reason.clone(),
                bootstrap,
                backend: Arc::clone(&env.backend),
                collective: Arc::clone(&env.collective),
                collective_reason: env.collective_reason.clone(),
                library: Some(library),
            };
            let mut group = rig::group(&part, timeout)?;
            let measured = of_group(&part, &mut group, each)?;
            group.close()?;
            rows.extend(measured.0);
            left_out.extend(measured.1);
        }
        env.bootstrap.barrier("behind a smaller group", Deadline::after(share + 4 * timeout))?;
    }
    Ok((rows, left_out))
}

/// The rows of `group`. Collective.
pub(crate) fn of_group(
    env: &RankEnv,
    group: &mut Group,
    share: Duration,
) -> Result<(Vec<BarrierRow>, Option<LeftOut>), RunError> {
    let ranks = group.group_size().get();
    if let Some(reason) = group.unreachable() {
        return Ok((Vec::new(), Some(LeftOut::new(format!("barrier of {ranks} ranks"), reason))));
    }
    let library = env.library.as_ref();
    let probe = barriers::measure(group, library, PROBE)?;
    let times = barriers::measure(group, library, blocks_for(&probe, share))?;
    let row = |name, samples: &Samples| {
        let figure = Figure::of(samples)?;
        Some(BarrierRow {
            name,
            ranks,
            samples: figure.samples,
            us_median: figure.median,
            us_p99: figure.p99,
            quantiles_us: quantiles(samples),
            times_us: samples.clone(),
        })
    };
    let rows = [row("cpkv", &times.ours), row("MPI_Barrier", &times.library)];
    Ok((rows.into_iter().flatten().collect(), None))
}

/// As many barriers as `share` has time for, the same on every rank: `probe` is.
fn blocks_for(probe: &BarrierTimes, share: Duration) -> Blocks {
    let us = probe.ours.median() + probe.library.median();
    let fit = share.as_micros() as f64 / (f64::from(1 + NUM_BLOCKS) * us.max(0.1));
    Blocks { num_barriers: fit.clamp(LEAST_BARRIERS, MOST_BARRIERS) as u32, num_blocks: NUM_BLOCKS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_groups_are_the_powers_of_two_below_the_whole() {
        let sizes = |size| smaller_sizes(GroupSize::new(size).unwrap());
        assert_eq!(sizes(8), [2, 4]);
        assert_eq!(sizes(6), [2, 4]);
        assert_eq!((sizes(2), sizes(1)), (vec![], vec![]));
    }

    #[test]
    fn slow_barriers_are_timed_less_often() {
        let probe = |ours: f64, library: f64| {
            let mut times = BarrierTimes::default();
            times.ours.push(ours);
            times.library.push(library);
            times
        };
        let second = Duration::from_secs(1);
        assert_eq!(blocks_for(&probe(10.0, 0.0), second).num_barriers, 1000);
        assert_eq!(blocks_for(&probe(500.0, 500.0), second).num_barriers, 166);
        assert_eq!(blocks_for(&probe(1e6, 0.0), second).num_barriers, 20);
    }
}
