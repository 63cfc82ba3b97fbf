//! How much of the time is left, agreed among the ranks: what they do must not depend on their own clocks.

use std::time::{Duration, Instant};

use cpkv::deadline::Deadline;

use crate::error::RunError;
use crate::ranks::RankEnv;

/// The whole time, and when it began.
pub(crate) struct SharedClock {
    begun: Instant,
    total: Duration,
    /// How long ranks wait for each other.
    timeout: Duration,
}

impl SharedClock {
    pub(crate) const fn new(begun: Instant, total: Duration, timeout: Duration) -> Self {
        Self { begun, total, timeout }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Milliseconds left by the rank that has least; may be below 0. Collective.
    pub(crate) fn left_ms(&self, env: &RankEnv) -> Result<f64, RunError> {
        let mine = self.total.as_secs_f64() - self.begun.elapsed().as_secs_f64();
        least(env, mine * 1e3, self.timeout)
    }
}

/// The least of the ranks' numbers. Collective.
pub(crate) fn least(env: &RankEnv, mine: f64, timeout: Duration) -> Result<f64, RunError> {
    let all = env.bootstrap.all_gather("least", &mine.to_le_bytes(), Deadline::after(timeout))?;
    let numbers = all.iter().filter_map(|blob| Some(f64::from_le_bytes(blob.get(..8)?.try_into().ok()?)));
    Ok(numbers.fold(mine, f64::min))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use cpkv::collective::InProcessCollective;
    use cpkv::device::CpuDevice;
    use cpkv::group::ThreadBootstrap;
    use cpkv::symm::LocalBackend;
    use cpkv::units::GroupSize;

    use super::*;

    #[test]
    fn all_ranks_hear_of_the_least() {
        let (size, timeout) = (GroupSize::new(3).unwrap(), Duration::from_secs(20));
        let collectives = InProcessCollective::group(size, timeout);
        let ranks = ThreadBootstrap::group(size).into_iter().zip(collectives);
        let threads: Vec<_> = ranks
            .map(|(bootstrap, collective)| {
                thread::spawn(move || {
                    let env = RankEnv {
                        device: Arc::new(CpuDevice),
                        device_reason: String::new(),
                        backend: Arc::new(LocalBackend),
                        collective: Arc::new(collective),
                        collective_reason: String::new(),
                        library: None,
                        bootstrap: Arc::new(bootstrap),
                    };
                    let rank = env.bootstrap.rank().0;
                    least(&env, 10.0 - f64::from(rank), timeout).unwrap()
                })
            })
            .collect();
        let heard: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(heard, [8.0; 3]);
    }
}
