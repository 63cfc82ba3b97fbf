//! A group whose means of exchange is a function of the caller.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::bootstrap::{Bootstrap, BootstrapError, MAX_BLOB_BYTES, Transport};
use super::frame::Position;
use super::turn::Turn;
use crate::deadline::Deadline;
use crate::units::{GroupSize, Rank, RankSet};

/// The caller's all-gather: (call, this rank's blob, time left) gives every rank's blob, by rank, or a code.
///
/// It must return, successful or not, within the time left: nothing can interrupt it.
pub type AllGatherFn = Box<dyn Fn(&str, &[u8], Duration) -> Result<Vec<Vec<u8>>, i64> + Send + Sync>;

/// A bootstrap made of a function the caller brings: no MPI is needed.
///
/// Every blob is framed with the rank, the number and the name of the exchange, so that blobs in wrong order,
/// from another exchange or from another version are errors. The first failure is final.
pub struct CallbackBootstrap {
    rank: Rank,
    size: GroupSize,
    transport: Transport,
    all_gather: AllGatherFn,
    turn: Turn,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    num_exchanges: u64,
    failed: Option<BootstrapError>,
}

impl CallbackBootstrap {
    /// The bootstrap of `rank` among `size` ranks, which are what `transport` says.
    pub fn new(rank: Rank, size: GroupSize, transport: Transport, all_gather: AllGatherFn) -> Self {
        Self { rank, size, transport, all_gather, turn: Turn::default(), progress: Mutex::default() }
    }

    fn exchange(
        &self,
        position: Position,
        blob: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let (call, rank) = (position.call, self.rank);
        if deadline.expired() {
            let missing = RankSet::default();
            return Err(BootstrapError::Missing { call, rank, missing, waited_ms: deadline.waited_ms() });
        }
        let frame = position.encode(blob);
        let frames = (self.all_gather)(call, &frame, deadline.remaining()).map_err(|code| {
            BootstrapError::Foreign { call, function: "the caller's all-gather", rank, code }
        })?;
        if frames.len() != self.size.len() {
            let expected = self.size.get();
            return Err(BootstrapError::BlobCount { call, rank, expected, got: frames.len() });
        }
        if frames[rank.idx()] != frame {
            return Err(BootstrapError::BadBlob { call, rank, peer: rank });
        }
        self.size
            .ranks()
            .zip(&frames)
            .map(|(peer, frame)| Ok(position.decode(peer, frame)?.to_vec()))
            .collect()
    }
}

impl Bootstrap for CallbackBootstrap {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn group_size(&self) -> GroupSize {
        self.size
    }

    fn transport(&self) -> Transport {
        self.transport
    }

    /// [`BootstrapError::Foreign`] keeps the code of the caller's function.
    fn all_gather(
        &self,
        call: &'static str,
        blob: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<Vec<u8>>, BootstrapError> {
        if blob.len() > MAX_BLOB_BYTES {
            return Err(BootstrapError::BlobTooLarge { call, got: blob.len() });
        }
        let Some(_turn) = self.turn.take(deadline) else {
            return Err(BootstrapError::Busy { call, rank: self.rank, waited_ms: deadline.waited_ms() });
        };
        // Uncontended: only the holder of the turn locks it.
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &progress.failed {
            return Err(error.clone());
        }
        let position = Position { call, rank: self.rank, sequence: progress.num_exchanges };
        progress.num_exchanges += 1;
        let outcome = self.exchange(position, blob, deadline);
        progress.failed = outcome.as_ref().err().cloned();
        outcome
    }
}

impl fmt::Debug for CallbackBootstrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallbackBootstrap(rank {} of {})", self.rank, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::threads::ThreadBootstrap;

    const LONG: Duration = Duration::from_secs(60);

    fn alone(all_gather: AllGatherFn) -> CallbackBootstrap {
        CallbackBootstrap::new(Rank(0), GroupSize::new(2).unwrap(), Transport::Processes, all_gather)
    }

    /// The error of one exchange, which a second one repeats.
    fn error_of(all_gather: AllGatherFn) -> BootstrapError {
        let group = alone(all_gather);
        let error = group.barrier("meet", Deadline::after(LONG)).unwrap_err();
        assert_eq!(group.barrier("later", Deadline::after(LONG)).unwrap_err(), error);
        error
    }

    /// Both ranks of a group over threads, through the caller's function.
    fn pair() -> Vec<CallbackBootstrap> {
        let size = GroupSize::new(2).unwrap();
        let wrap = |inner: ThreadBootstrap| {
            let rank = inner.rank();
            let gather: AllGatherFn = Box::new(move |_, blob, timeout| {
                inner.all_gather("inner", blob, Deadline::after(timeout)).map_err(|_| -7)
            });
            CallbackBootstrap::new(rank, size, Transport::Threads, gather)
        };
        ThreadBootstrap::group(size).into_iter().map(wrap).collect()
    }

    #[test]
    fn blobs_arrive_unframed_and_in_order() {
        std::thread::scope(|scope| {
            for group in pair() {
                scope.spawn(move || {
                    for round in 0..20_u8 {
                        let blob = vec![group.rank().0 as u8; usize::from(round)];
                        let got = group.all_gather("meet", &blob, Deadline::after(LONG)).unwrap();
                        assert_eq!(got, [vec![0; usize::from(round)], vec![1; usize::from(round)]]);
                    }
                });
            }
        });
    }

    #[test]
    fn ranks_at_different_calls_are_told_apart() {
        std::thread::scope(|scope| {
            for (group, call) in pair().into_iter().zip(["one", "two"]) {
                scope.spawn(move || {
                    let error = group.barrier(call, Deadline::after(LONG)).unwrap_err();
                    assert!(matches!(error, BootstrapError::Diverged { .. }), "{error}");
                });
            }
        });
    }

    #[test]
    fn a_function_that_breaks_its_word_is_caught() {
        let foreign = error_of(Box::new(|_, _, _| Err(-5)));
        assert!(matches!(foreign, BootstrapError::Foreign { code: -5, rank: Rank(0), .. }));
        let count = error_of(Box::new(|_, blob, _| Ok(vec![blob.to_vec()])));
        assert!(matches!(count, BootstrapError::BlobCount { expected: 2, got: 1, .. }));
        let copied = error_of(Box::new(|_, blob, _| Ok(vec![blob.to_vec(), blob.to_vec()])));
        assert!(matches!(copied, BootstrapError::BadBlob { peer: Rank(1), .. }));
        let lost = error_of(Box::new(|_, blob, _| Ok(vec![Vec::new(), blob.to_vec()])));
        assert!(matches!(lost, BootstrapError::BadBlob { peer: Rank(0), .. }));
    }

    #[test]
    fn nothing_is_called_past_the_deadline() {
        let group = alone(Box::new(|_, _, _| panic!("called")));
        let error = group.barrier("meet", Deadline::after(Duration::ZERO)).unwrap_err();
        assert!(matches!(error, BootstrapError::Missing { call: "meet", .. }));
    }
}
