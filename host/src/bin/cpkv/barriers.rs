//! The barrier micro-benchmark: blocks of barriers of each kind in turn, the slowest rank counts.

use std::sync::Arc;
use std::sync::mpsc::channel;

use cpkv::deadline::Deadline;
use cpkv::group::Group;

use crate::baselines::PeerLibrary;
use crate::error::RunError;
use crate::samples::Samples;

/// How many barriers are timed.
#[derive(Clone, Copy)]
pub(crate) struct Blocks {
    /// Barriers of a block, one right behind the other.
    pub(crate) num_barriers: u32,
    /// Blocks of each kind that count; one more warms up.
    pub(crate) num_blocks: u32,
}

impl Default for Blocks {
    fn default() -> Self {
        Self { num_barriers: 1000, num_blocks: 5 }
    }
}

/// Times in microseconds.
#[derive(Default)]
pub(crate) struct BarrierTimes {
    pub(crate) ours: Samples,
    pub(crate) library: Samples,
}

/// Runs the benchmark. Collective.
pub(crate) fn measure(
    group: &mut Group,
    library: Option<&Arc<dyn PeerLibrary>>,
    blocks: Blocks,
) -> Result<BarrierTimes, RunError> {
    let mut times = BarrierTimes::default();
    // One block of each to warm up.
    for block in 0..=blocks.num_blocks {
        let ours = group.time_barriers(blocks.num_barriers)?;
        let ours: Vec<_> = ours.iter().map(|timing| timing.left_ns - timing.entered_ns).collect();
        let ours = slowest(group, &ours)?;
        let theirs = match library {
            Some(library) => {
                let theirs = time_library(group, library, blocks.num_barriers)?;
                slowest(group, &theirs)?
            }
            None => Vec::new(),
        };
        if block > 0 {
            times.ours.extend(ours);
            times.library.extend(theirs);
        }
    }
    Ok(times)
}

fn time_library(
    group: &mut Group,
    library: &Arc<dyn PeerLibrary>,
    num_barriers: u32,
) -> Result<Vec<u64>, RunError> {
    let (sender, receiver) = channel();
    let library = Arc::clone(library);
    let body = move || {
        // Nobody listens where the host gave up meanwhile.
        let _ = sender.send(library.time_barriers(num_barriers)?);
        Ok(())
    };
    group.stream().host_call("timed MPI barriers", Box::new(body))?;
    group.synchronize()?;
    Ok(receiver.try_recv().unwrap_or_default())
}

/// For each barrier of a block: the slowest rank's time, in microseconds.
fn slowest(group: &Group, mine_ns: &[u64]) -> Result<Vec<f64>, RunError> {
    let deadline = Deadline::after(group.options().bootstrap_timeout);
    let blob: Vec<u8> = mine_ns.iter().flat_map(|time| time.to_le_bytes()).collect();
    let blobs = group.bootstrap().all_gather("barrier times", &blob, deadline)?;
    let time_of = |blob: &Vec<u8>, i: usize| -> u64 {
        let bytes = blob.get(8 * i..8 * i + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    let slowest = (0..mine_ns.len()).map(|i| blobs.iter().map(|blob| time_of(blob, i)).max().unwrap_or(0));
    Ok(slowest.map(|time| time as f64 / 1e3).collect())
}
