//! Rounds of barriers: rank 0 leads, the others follow, and all of them run the same round at the same time.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::device::{CpuDevice, DeviceError};
use cpkv::group::{Bootstrap, Group, GroupOptions};
use cpkv::symm::SharedBackend;
use cpkv_kernels::now_ns;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The baseline: passes so many barriers. It runs on the group's stream, as the group's own barriers do.
pub(crate) type Baseline = Arc<dyn Fn(u64) -> Result<(), DeviceError> + Send + Sync>;

/// Longest wait inside a barrier.
pub(crate) const BARRIER_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest wait for a block of barriers.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(240);
/// Longest wait for ranks that have nothing else to do.
pub(crate) const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for the lead, which works out its statistics between two rounds.
const LEAD_TIMEOUT: Duration = Duration::from_secs(600);

/// Barriers that are queued at once; the host then waits once for all of them.
const BLOCK: u64 = 1000;

/// What all ranks do next.
#[derive(Clone, Copy)]
pub(crate) enum Round {
    /// So many barriers of the group.
    Group(u64),
    /// So many barriers of the baseline.
    Baseline(u64),
    /// The end.
    Close,
}

impl Round {
    fn encode(self) -> Vec<u8> {
        let (kind, num_barriers): (u64, u64) = match self {
            Self::Close => (0, 0),
            Self::Group(num_barriers) => (1, num_barriers),
            Self::Baseline(num_barriers) => (2, num_barriers),
        };
        words(&[kind, num_barriers])
    }

    fn decode(blob: &[u8]) -> Result<Self, Failure> {
        match pair(blob)? {
            [0, _] => Ok(Self::Close),
            [1, num_barriers] => Ok(Self::Group(num_barriers)),
            [2, num_barriers] => Ok(Self::Baseline(num_barriers)),
            [kind, _] => Err(format!("the lead asks for a round of kind {kind}").into()),
        }
    }
}

/// One rank of the group that is measured.
pub(crate) struct Member {
    group: Group,
    baseline: Baseline,
}

impl Member {
    /// Registers the group. Collective.
    pub(crate) fn register(
        bootstrap: Arc<dyn Bootstrap>,
        backend: SharedBackend,
        baseline: Baseline,
    ) -> Result<Self, Failure> {
        let options = GroupOptions {
            barrier_timeout: BARRIER_TIMEOUT,
            host_timeout: BLOCK_TIMEOUT,
            bootstrap_timeout: EXCHANGE_TIMEOUT,
            ..GroupOptions::default()
        };
        let group = Group::register(bootstrap, Arc::new(CpuDevice), backend, options)?;
        match group.unreachable() {
            Some(reason) => Err(format!("no barrier to measure: {reason}").into()),
            None => Ok(Self { group, baseline }),
        }
    }

    /// Has all ranks run `round`; from the last rank's start to the last rank's end.
    pub(crate) fn lead(&mut self, round: Round) -> Result<Duration, Failure> {
        let deadline = Deadline::after(EXCHANGE_TIMEOUT);
        self.group.bootstrap().all_gather("round", &round.encode(), deadline)?;
        self.run(round)
    }

    /// Runs what the lead says, to the end.
    pub(crate) fn follow(mut self) -> Result<(), Failure> {
        loop {
            let blobs = self.group.bootstrap().all_gather("round", &[], Deadline::after(LEAD_TIMEOUT))?;
            match Round::decode(&blobs[0])? {
                Round::Close => return Ok(self.group.close()?),
                round => {
                    self.run(round)?;
                }
            }
        }
    }

    /// Ends all ranks.
    pub(crate) fn close(mut self) -> Result<(), Failure> {
        self.lead(Round::Close)?;
        Ok(self.group.close()?)
    }

    fn run(&mut self, round: Round) -> Result<Duration, Failure> {
        let started_ns = now_ns();
        match round {
            Round::Group(num_barriers) => self.group_barriers(num_barriers)?,
            Round::Baseline(num_barriers) => self.baseline_barriers(num_barriers)?,
            Round::Close => return Ok(Duration::ZERO),
        }
        let mine = words(&[started_ns, now_ns()]);
        let blobs = self.group.bootstrap().all_gather("times", &mine, Deadline::after(EXCHANGE_TIMEOUT))?;
        let (mut started_ns, mut ended_ns) = (0, 0);
        for blob in &blobs {
            let [started, ended] = pair(blob)?;
            (started_ns, ended_ns) = (started.max(started_ns), ended.max(ended_ns));
        }
        Ok(Duration::from_nanos(ended_ns.saturating_sub(started_ns)))
    }

    fn group_barriers(&mut self, num_barriers: u64) -> Result<(), Failure> {
        for block in blocks(num_barriers) {
            for tag in 0..block {
                self.group.barrier(tag as u32)?;
            }
            self.group.synchronize()?;
        }
        Ok(())
    }

    fn baseline_barriers(&mut self, num_barriers: u64) -> Result<(), Failure> {
        for block in blocks(num_barriers) {
            let baseline = Arc::clone(&self.baseline);
            self.group.stream().host_call("baseline's barriers", Box::new(move || baseline(block)))?;
            self.group.synchronize()?;
        }
        Ok(())
    }
}

/// `num_barriers` as blocks.
fn blocks(num_barriers: u64) -> impl Iterator<Item = u64> {
    (0..num_barriers.div_ceil(BLOCK)).map(move |nth| BLOCK.min(num_barriers - nth * BLOCK))
}

fn words(words: &[u64; 2]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn pair(blob: &[u8]) -> Result<[u64; 2], Failure> {
    match blob.as_chunks() {
        (&[first, second], []) => Ok([first, second].map(u64::from_le_bytes)),
        _ => Err(format!("a blob of {} bytes is no pair of words", blob.len()).into()),
    }
}
