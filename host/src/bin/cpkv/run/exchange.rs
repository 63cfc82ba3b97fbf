//! What ranks tell each other over the bootstrap, whose blobs are small: values of any size, and how a step ended.

use cpkv::deadline::Deadline;
use cpkv::group::{Bootstrap, BootstrapError, MAX_BLOB_BYTES};
use cpkv::transfer::{Clock, SystemClock};
use cpkv::units::Rank;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::RunError;

/// Longest message of one rank about its failure.
const MAX_MESSAGE_BYTES: usize = 2048;

/// Everyone's bytes, by rank, of any length. Collective.
pub(crate) fn gather(
    bootstrap: &dyn Bootstrap,
    call: &'static str,
    mine: &[u8],
    deadline: Deadline,
) -> Result<Vec<Vec<u8>>, BootstrapError> {
    let lengths = bootstrap.all_gather(call, &(mine.len() as u64).to_le_bytes(), deadline)?;
    let length = |blob: &Vec<u8>| blob.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let num_turns = lengths.iter().map(length).max().unwrap_or(0).div_ceil(MAX_BLOB_BYTES as u64);
    let mut pieces = mine.chunks(MAX_BLOB_BYTES);
    let mut all = vec![Vec::new(); lengths.len()];
    for _ in 0..num_turns {
        let blobs = bootstrap.all_gather(call, pieces.next().unwrap_or_default(), deadline)?;
        for (whole, piece) in all.iter_mut().zip(blobs) {
            whole.extend(piece);
        }
    }
    Ok(all)
}

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
    let at_ns = SystemClock.now_ns();
    let said = mine.as_ref().map_err(|error| Failure { at_ns, message: shortened(error) });
    let blobs = match gather(bootstrap, call, &encode(&said)?, deadline) {
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
    fn bytes_of_any_length_come_whole_and_in_rank_order() {
        let lengths = [0, MAX_BLOB_BYTES, MAX_BLOB_BYTES + 1];
        let mine = |rank: usize| vec![rank as u8 + 1; lengths[rank]];
        for all in on_ranks(3, |group| gather(&group, "test", &mine(group.rank().idx()), soon()).unwrap()) {
            assert_eq!(all, (0..3).map(mine).collect::<Vec<_>>());
        }
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
        let errors = on_ranks(2, |group| {
            // Rank 0 fails after rank 1, which is in the exchange's other end.
            let (first, second) = (group.rank() == Rank(1), group.rank() == Rank(0));
            if second {
                thread::sleep(Duration::from_millis(50));
            }
            let mine: Result<u32, _> = Err(if first { RunError::NoBatch } else { RunError::Panicked });
            settle(&group, "test", mine, soon()).unwrap_err().to_string()
        });
        assert!(errors.iter().all(|error| error.contains("the trace has no batch")), "{errors:?}");
    }
}
