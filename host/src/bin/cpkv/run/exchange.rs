//! What ranks tell each other over the bootstrap, whose blobs are small: values of any size, and how a step ended.

use cpkv::deadline::Deadline;
use cpkv::group::{Bootstrap, all_gather_whole};
use cpkv::transfer::{Clock, SystemClock};
use cpkv::units::Rank;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::RunError;

/// Longest message of one rank about its failure.
const MAX_MESSAGE_BYTES: usize = 2048;

/// A rank's failure.
#[derive(Serialize, Deserialize)]
struct Failure {
    /// When, on the machine's one clock: the first failure is the cause of others.
    at_ns: u64,
    message: String,
}

/// What every rank came to, by rank; where one failed, an error on all that says which was the first, and why. Collective.
pub(crate) fn settle<T: Serialize + DeserializeOwned>(
    bootstrap: &dyn Bootstrap,
    call: &'static str,
    mine: Result<T, RunError>,
    deadline: Deadline,
) -> Result<Vec<T>, RunError> {
    settle_at(bootstrap, call, (mine, SystemClock.now_ns()), deadline)
}

/// The same, where this rank came to it `at_ns`.
fn settle_at<T: Serialize + DeserializeOwned>(
    bootstrap: &dyn Bootstrap,
    call: &'static str,
    (mine, at_ns): (Result<T, RunError>, u64),
    deadline: Deadline,
) -> Result<Vec<T>, RunError> {
    let said = mine.as_ref().map_err(|error| Failure { at_ns, message: shortened(error) });
    let blobs = match all_gather_whole(bootstrap, call, &encode(&said)?, deadline) {
        Ok(blobs) => blobs,
        // The own failure explains why the others did not wait, or did not come.
        Err(error) => return Err(mine.err().unwrap_or(error.into())),
    };
    let (mut values, mut failures) = (Vec::new(), Vec::new());
    for (rank, blob) in (0..).map(Rank).zip(&blobs) {
        match decode::<Result<T, Failure>>(blob)? {
            Ok(value) => values.push(value),
            Err(failure) => failures.push((failure.at_ns, rank, failure.message)),
        }
    }
    let Some((_, rank, message)) = failures.into_iter().min() else { return Ok(values) };
    match mine {
        Err(error) if rank == bootstrap.rank() => Err(error),
        _ => Err(RunError::Rank { rank, message }),
    }
}

/// Gives what rank 0 came to to all ranks; the others bring nothing. Collective.
pub(crate) fn from_rank_0<T: Serialize + DeserializeOwned>(
    bootstrap: &dyn Bootstrap,
    call: &'static str,
    made: Result<Option<T>, RunError>,
    deadline: Deadline,
) -> Result<T, RunError> {
    let everyone = settle(bootstrap, call, made, deadline)?;
    everyone.into_iter().next().flatten().ok_or(RunError::Garbled { call })
}

fn shortened(error: &RunError) -> String {
    let message = error.to_string();
    message
        .chars()
        .scan(0, |bytes, c| {
            *bytes += c.len_utf8();
            (*bytes <= MAX_MESSAGE_BYTES).then_some(c)
        })
        .collect()
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, RunError> {
    serde_json::to_vec(value).map_err(|error| RunError::Output(error.into()))
}

fn decode<T: DeserializeOwned>(blob: &[u8]) -> Result<T, RunError> {
    serde_json::from_slice(blob).map_err(|error| RunError::Output(error.into()))
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use cpkv::group::ThreadBootstrap;
    use cpkv::units::GroupSize;

    use super::*;

    fn on_ranks<T: Send>(num_ranks: u32, body: impl Fn(ThreadBootstrap) -> T + Sync) -> Vec<T> {
        let ranks = ThreadBootstrap::group(GroupSize::new(num_ranks).unwrap());
        thread::scope(|scope| {
            let body = &body;
            let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || body(rank))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(20))
    }

    #[test]
    fn what_rank_0_made_reaches_all_and_so_does_its_failure() {
        let values = on_ranks(3, |group| {
            let made = (group.rank() == Rank(0)).then(|| "x".repeat(100_000));
            from_rank_0(&group, "test", Ok(made), soon()).unwrap().len()
        });
        assert_eq!(values, [100_000; 3]);
        let errors = on_ranks(2, |group| {
            let made = if group.rank() == Rank(0) { Err(RunError::NoBatch) } else { Ok(None) };
            from_rank_0::<String>(&group, "test", made, soon()).unwrap_err().to_string()
        });
        assert!(errors.iter().all(|error| error.contains("the trace has no batch")), "{errors:?}");
    }

    #[test]
    fn one_ranks_failure_is_everyones_and_names_it() {
        let errors = on_ranks(3, |group| {
            let mine = if group.rank() == Rank(1) { Err(RunError::NoBatch) } else { Ok(7) };
            settle(&group, "test", mine, soon()).unwrap_err()
        });
        assert!(matches!(&errors[0], RunError::Rank { rank: Rank(1), .. }), "{errors:?}");
        assert!(matches!(&errors[1], RunError::NoBatch), "{errors:?}");
    }

    #[test]
    fn of_several_failures_the_first_in_time_is_told() {
        for first in [Rank(0), Rank(1), Rank(2)] {
            let errors = on_ranks(3, |group| {
                let is_first = group.rank() == first;
                let mine: Result<u32, _> = Err(if is_first { RunError::NoBatch } else { RunError::Panicked });
                let at_ns = if is_first { 5 } else { 9 };
                settle_at(&group, "test", (mine, at_ns), soon()).unwrap_err().to_string()
            });
            assert!(errors.iter().all(|error| error.contains("the trace has no batch")), "{errors:?}");
        }
    }
}
