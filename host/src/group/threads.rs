//! A group whose ranks are threads of one process.

use super::bootstrap::{Bootstrap, BootstrapError, MAX_BLOB_BYTES, Transport};
use super::rendezvous::{Failure, Seat};
use crate::deadline::Deadline;
use crate::units::{GroupSize, Rank};

/// The bootstrap of a rank that is a thread: blobs meet in memory.
///
/// Dropping it (the thread ended or panicked) is seen by the others at once: an exchange that still needs this
/// rank fails without waiting out its deadline. The first failure is final for the whole group: every later call
/// of every rank returns it at once, so a late rank learns who waited for it.
#[derive(Debug)]
pub struct ThreadBootstrap {
    seat: Seat<Vec<u8>>,
}

impl ThreadBootstrap {
    /// The bootstraps of a group of `size` threads, by rank: one for each thread.
    pub fn group(size: GroupSize) -> Vec<Self> {
        Seat::group(size).into_iter().map(|seat| Self { seat }).collect()
    }
}

impl Bootstrap for ThreadBootstrap {
    fn rank(&self) -> Rank {
        self.seat.rank()
    }

    fn group_size(&self) -> GroupSize {
        self.seat.group_size()
    }

    fn transport(&self) -> Transport {
        Transport::Threads
    }

    fn all_gather(
        &self,
        call: &'static str,
        blob: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<Vec<u8>>, BootstrapError> {
        if blob.len() > MAX_BLOB_BYTES {
            return Err(BootstrapError::BlobTooLarge { call, got: blob.len() });
        }
        match self.seat.exchange(call, blob.to_vec(), deadline) {
            Ok(blobs) => Ok(blobs.to_vec()),
            Err(failure) => Err(bootstrap_error(failure, self.rank(), call)),
        }
    }
}

/// The failure as rank `me` reports it.
fn bootstrap_error(failure: Failure, me: Rank, call: &'static str) -> BootstrapError {
    match failure {
        Failure::Missing { call, rank, missing, waited_ms } => {
            BootstrapError::Missing { call, rank, missing, waited_ms }
        }
        Failure::Diverged { calls } => {
            let mine = calls[me.idx()];
            // Calls differ, so every rank has a peer that is elsewhere.
            let peer = calls.iter().position(|&peer_call| peer_call != mine).unwrap_or(me.idx());
            BootstrapError::Diverged {
                call: mine,
                rank: me,
                peer: Rank(peer as u32),
                peer_call: calls[peer].to_owned(),
            }
        }
        Failure::Busy { waited_ms } => BootstrapError::Busy { call, rank: me, waited_ms },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::units::RankSet;

    const LONG: Duration = Duration::from_secs(60);
    /// Long enough for ranks that come, on a busy machine.
    const SHORT: Duration = Duration::from_secs(3);

    /// Runs `body` on one thread for each rank; the results by rank.
    fn on_ranks<T: Send>(num_ranks: u32, body: impl Fn(ThreadBootstrap) -> T + Sync) -> Vec<T> {
        let ranks = ThreadBootstrap::group(GroupSize::new(num_ranks).unwrap());
        thread::scope(|scope| {
            let body = &body;
            let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || body(rank))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn missing(ranks: &[u32]) -> RankSet {
        ranks.iter().copied().map(Rank).collect()
    }

    #[test]
    fn unequal_blobs_meet_for_many_rounds_back_to_back() {
        for num_ranks in [1, 2, 3, 8] {
            on_ranks(num_ranks, |group| {
                for round in 0..200_u32 {
                    let blob = |rank: u32| vec![(rank ^ round) as u8; ((rank * 7 + round) % 23) as usize];
                    let got =
                        group.all_gather("round", &blob(group.rank().0), Deadline::after(LONG)).unwrap();
                    assert_eq!(got, (0..num_ranks).map(blob).collect::<Vec<_>>());
                }
            });
        }
    }

    #[test]
    fn a_late_rank_is_named_exactly_and_the_group_stays_failed() {
        let (gave_up, has_given_up) = mpsc::channel();
        let has_given_up = Mutex::new(has_given_up);
        let errors = on_ranks(4, |group| {
            if group.rank() == Rank(2) {
                has_given_up.lock().unwrap().recv_timeout(LONG).unwrap();
            }
            let timeout = if group.rank() == Rank(0) { SHORT } else { LONG };
            let first = group.barrier("meet", Deadline::after(timeout)).unwrap_err();
            if group.rank() == Rank(0) {
                gave_up.send(()).unwrap();
            }
            let again = group.barrier("again", Deadline::after(LONG)).unwrap_err();
            assert_eq!(first, again);
            first
        });
        for error in errors {
            let BootstrapError::Missing { call: "meet", rank: Rank(0), missing: named, waited_ms } = error
            else {
                panic!("{error}");
            };
            assert_eq!(named, missing(&[2]));
            assert!(waited_ms >= SHORT.as_millis() as u64);
        }
    }

    #[test]
    fn a_dropped_rank_is_named_at_once() {
        let started = Instant::now();
        on_ranks(3, |group| {
            if group.rank() == Rank(1) {
                return;
            }
            let error = group.barrier("meet", Deadline::after(LONG)).unwrap_err();
            assert!(
                matches!(&error, BootstrapError::Missing { missing: named, .. } if *named == missing(&[1]))
            );
        });
        assert!(started.elapsed() < LONG / 2);
    }

    #[test]
    fn a_rank_that_leaves_after_a_round_does_not_spoil_it() {
        for _ in 0..50 {
            on_ranks(4, |group| group.barrier("last", Deadline::after(LONG)).unwrap());
        }
    }

    #[test]
    fn different_calls_are_told_apart_on_every_rank() {
        let errors = on_ranks(3, |group| {
            let call = if group.rank() == Rank(1) { "export" } else { "register" };
            let error = group.barrier(call, Deadline::after(LONG)).unwrap_err();
            assert_eq!(group.barrier("later", Deadline::after(LONG)).unwrap_err(), error);
            error
        });
        let diverged = |call, rank, peer, peer_call: &str| BootstrapError::Diverged {
            call,
            rank: Rank(rank),
            peer: Rank(peer),
            peer_call: peer_call.into(),
        };
        assert_eq!(errors[0], diverged("register", 0, 1, "export"));
        assert_eq!(errors[1], diverged("export", 1, 0, "register"));
        assert_eq!(errors[2], diverged("register", 2, 1, "export"));
    }

    #[test]
    fn two_threads_of_one_rank_take_turns() {
        let mut ranks = ThreadBootstrap::group(GroupSize::new(2).unwrap());
        let (one, zero) = (ranks.pop().unwrap(), ranks.pop().unwrap());
        thread::scope(|scope| {
            // Dropped with this closure: then the first call ends, too.
            let one = one;
            let first = scope.spawn(|| zero.barrier("first", Deadline::after(LONG)));
            while !zero.seat.is_waiting() {
                assert!(!first.is_finished(), "it met nobody");
                thread::yield_now();
            }
            let error = zero.barrier("second", Deadline::after(Duration::from_millis(5))).unwrap_err();
            assert!(matches!(error, BootstrapError::Busy { call: "second", rank: Rank(0), .. }), "{error}");
            one.barrier("first", Deadline::after(LONG)).unwrap();
            first.join().unwrap().unwrap();
            assert!(!zero.seat.is_waiting());
        });
    }

    #[test]
    fn an_oversized_blob_is_refused_before_it_enters() {
        on_ranks(1, |group| {
            let blob = vec![0; MAX_BLOB_BYTES + 1];
            let error = group.all_gather("big", &blob, Deadline::after(LONG)).unwrap_err();
            assert_eq!(error, BootstrapError::BlobTooLarge { call: "big", got: MAX_BLOB_BYTES + 1 });
            assert!(group.all_gather("big", &blob[1..], Deadline::after(LONG)).is_ok());
        });
    }
}
