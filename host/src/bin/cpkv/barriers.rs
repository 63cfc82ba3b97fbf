//! The barrier micro-benchmark: blocks of barriers of each kind in turn, the slowest rank counts.

use std::sync::Arc;
use std::sync::mpsc::channel;

use cpkv::compose::Composer;
use cpkv::deadline::Deadline;

use crate::baselines::PeerLibrary;
use crate::error::RunError;
use crate::samples::Samples;

const BARRIERS_A_BLOCK: u32 = 1000;
const NUM_BLOCKS: u32 = 5;

/// Times in microseconds.
#[derive(Default)]
pub(crate) struct BarrierTimes {
    pub(crate) ours: Samples,
    pub(crate) library: Samples,
}

/// Runs the benchmark. Collective.
pub(crate) fn measure(
    composer: &mut Composer,
    library: Option<&Arc<dyn PeerLibrary>>,
) -> Result<BarrierTimes, RunError> {
    let mut times = BarrierTimes::default();
    // One block of each to warm up.
    for block in 0..=NUM_BLOCKS {
        let ours = composer.group_mut().time_barriers(BARRIERS_A_BLOCK)?;
        let ours: Vec<_> = ours.iter().map(|timing| timing.left_ns - timing.entered_ns).collect();
        let ours = slowest(composer, &ours)?;
        let theirs = match library {
            Some(library) => {
                let theirs = time_library(composer, library)?;
                slowest(composer, &theirs)?
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

fn time_library(composer: &mut Composer, library: &Arc<dyn PeerLibrary>) -> Result<Vec<u64>, RunError> {
    let (sender, receiver) = channel();
    let library = Arc::clone(library);
    let body = move || {
        // Nobody listens where the host gave up meanwhile.
        let _ = sender.send(library.time_barriers(BARRIERS_A_BLOCK)?);
        Ok(())
    };
    composer.group().stream().host_call("timed MPI barriers", Box::new(body))?;
    composer.group_mut().synchronize()?;
    Ok(receiver.try_recv().unwrap_or_default())
}

/// For each barrier of a block: the slowest rank's time, in microseconds.
fn slowest(composer: &Composer, mine_ns: &[u64]) -> Result<Vec<f64>, RunError> {
    let group = composer.group();
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
