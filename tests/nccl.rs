//! NCCL without a GPU: who uses it is agreed on, and every way a communicator can end is gone. The library is a stand-in
//! (`nccl/stand_in.c`), except where a test says that it is the real one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "nccl/children.rs"]
mod children;

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cpkv::collective::nccl::{
    Communicator, Enter, Library, MIN_VERSION, NcclError, Queued, Statement, Timeouts, Version,
};
use cpkv::group::{Bootstrap, BootstrapError, ThreadBootstrap};
use cpkv::units::{GroupSize, Rank, RankSet};

use children::Library::{Incomplete, OfTheMachine, Real, StandIn, Unreadable};
use children::{calls, in_child};

const LONG: Duration = Duration::from_secs(60);
/// What hangs is given up after this: long enough for whatever does not hang, on a busy machine too.
const SHORT: Duration = Duration::from_secs(3);
/// All waits end well.
const PATIENT: Timeouts = Timeouts { setup: LONG, queue: LONG, teardown: LONG };
/// What hangs is found out soon.
const HASTY: Timeouts = Timeouts { setup: SHORT, queue: SHORT, teardown: SHORT };

type Registered = Result<Communicator, String>;

/// Runs `body` on a thread for each rank; what they return, by rank.
fn on_ranks<T: Send>(num_ranks: u32, body: impl Fn(ThreadBootstrap) -> T + Sync) -> Vec<T> {
    let ranks = ThreadBootstrap::group(GroupSize::new(num_ranks).unwrap());
    thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || body(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// There is no GPU to enter.
fn enter() -> Enter {
    Arc::new(|| Ok(()))
}

/// What a rank of this process says, with a GPU of its own.
fn statement(rank: Rank) -> Statement {
    let library = Library::get().map(Library::version).map_err(|problem| problem.to_string());
    Statement { library, gpu: [rank.0 as u8; 16] }
}

fn register(bootstrap: &ThreadBootstrap, timeouts: Timeouts) -> Registered {
    Communicator::register(bootstrap, &statement(bootstrap.rank()), &enter(), timeouts).unwrap()
}

/// The communicators of a group that starts.
fn started(num_ranks: u32, timeouts: Timeouts) -> Vec<Communicator> {
    on_ranks(num_ranks, |bootstrap| register(&bootstrap, timeouts).unwrap())
}

/// Why no rank of a group starts: the same for all.
fn reason(num_ranks: u32, timeouts: Timeouts) -> String {
    let mut reasons = on_ranks(num_ranks, |bootstrap| register(&bootstrap, timeouts).err().unwrap());
    reasons.dedup();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.remove(0)
}

/// Sums `bytes`.
fn sum(communicator: &Communicator, bytes: &mut [u8]) -> Result<Queued, NcclError> {
    let (addr, len) = (bytes.as_mut_ptr().expose_provenance() as u64, bytes.len() as u64);
    // SAFETY: the stand-in knows no stream, and it is done with the bytes when this returns, or never touches them.
    unsafe { communicator.all_reduce_sum(addr, len, std::ptr::null_mut(), &|| false) }
}

/// Every rank sums `len` bytes, on a thread each.
fn sum_all(communicators: &[Communicator], len: usize) -> Vec<Result<Vec<u8>, NcclError>> {
    let one = |(rank, communicator): (usize, &Communicator)| {
        let mut bytes = vec![0; len];
        bytes.iter_mut().skip(rank).step_by(communicators.len()).for_each(|byte| *byte = 200 + rank as u8);
        sum(communicator, &mut bytes).map(|queued| {
            assert_eq!(queued, Queued::Yes);
            bytes
        })
    };
    thread::scope(|scope| {
        let ranks = communicators.iter().enumerate();
        let threads: Vec<_> = ranks.map(|rank| scope.spawn(move || one(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The group whose statements differ from `statement` as `change` says: what all its ranks are told.
fn told(num_ranks: u32, change: impl Fn(Rank, &mut Statement) + Sync) -> String {
    let mut reasons = on_ranks(num_ranks, |bootstrap| {
        let rank = bootstrap.rank();
        let mut statement = Statement { library: Ok(MIN_VERSION), gpu: [rank.0 as u8; 16] };
        change(rank, &mut statement);
        Communicator::register(&bootstrap, &statement, &enter(), PATIENT).unwrap().err().unwrap()
    });
    reasons.dedup();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.remove(0)
}

#[test]
fn all_ranks_learn_which_rank_cannot_and_none_uses_it() {
    for num_ranks in 2..=8 {
        let odd = Rank(num_ranks - 1);
        let lacks = told(num_ranks, |rank, statement| {
            if rank == odd {
                statement.library = Err(NcclError::NotFound.to_string());
            }
        });
        assert!(lacks.contains(&format!("rank {odd} cannot use NCCL: no libnccl.so")), "{lacks}");
        let differs = told(num_ranks, |rank, statement| {
            if rank == odd {
                statement.library = Ok(Version(23203));
            }
        });
        assert!(differs.contains(&format!("rank {odd} has NCCL 2.32.3, rank 0 has 2.18.0")), "{differs}");
        let shares = told(num_ranks, |rank, statement| {
            if rank == odd {
                statement.gpu = [0; 16];
            }
        });
        assert!(shares.contains(&format!("several ranks share a GPU: ranks [0, {odd}]")), "{shares}");
    }
}

#[test]
fn a_rank_that_does_not_come_to_the_set_up_is_named() {
    on_ranks(3, |bootstrap| {
        if bootstrap.rank() == Rank(1) {
            return;
        }
        let statement = Statement { library: Ok(MIN_VERSION), gpu: [bootstrap.rank().0 as u8; 16] };
        let problem = Communicator::register(&bootstrap, &statement, &enter(), PATIENT).err().unwrap();
        let BootstrapError::Missing { missing, .. } = problem else { panic!("{problem}") };
        assert_eq!(missing, [Rank(1)].into_iter().collect::<RankSet>());
    });
}

#[test]
fn a_library_that_cannot_be_loaded_is_an_error_with_its_remedy() {
    in_child("a_library_that_cannot_be_loaded_is_an_error_with_its_remedy", Unreadable, &[], || {
        assert_eq!(Library::get().err(), Some(NcclError::NotFound));
        let said = reason(3, PATIENT);
        for word in ["rank 0 cannot use NCCL", "ranks [1, 2]", "libnccl.so", "LD_LIBRARY_PATH"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    });
}

#[test]
fn without_a_folder_only_a_library_of_the_machine_is_found() {
    in_child("without_a_folder_only_a_library_of_the_machine_is_found", OfTheMachine, &[], || {
        let known = Command::new("/sbin/ldconfig").arg("-p").output().unwrap();
        let known = String::from_utf8(known.stdout).unwrap();
        let is_known = known.lines().any(|line| line.trim_start().starts_with("libnccl.so "));
        assert_eq!(Library::get().err() == Some(NcclError::NotFound), !is_known);
    });
}

#[test]
fn a_library_that_is_too_old_is_refused_with_both_versions() {
    in_child(
        "a_library_that_is_too_old_is_refused_with_both_versions",
        StandIn("version=21705"),
        &[],
        || {
            assert_eq!(Library::get().err(), Some(NcclError::TooOld { found: Version(21705) }));
            let said = reason(2, PATIENT);
            assert!(said.contains("is NCCL 2.17.5: install 2.18.0"), "{said}");
        },
    );
}

#[test]
fn a_function_that_the_library_lacks_is_named() {
    in_child("a_function_that_the_library_lacks_is_named", Incomplete, &[], || {
        let problem = Library::get().err().unwrap();
        assert!(matches!(problem, NcclError::NoSymbol { symbol: "ncclCommAbort", .. }), "{problem}");
    });
}

#[test]
fn a_setting_that_makes_calls_wait_without_end_is_refused() {
    let test = "a_setting_that_makes_calls_wait_without_end_is_refused";
    in_child(test, StandIn(""), &[("NCCL_COMM_BLOCKING", "1")], || {
        assert_eq!(Library::get().err(), Some(NcclError::Blocking));
    });
}

#[test]
fn the_real_library_says_its_version_and_makes_ids_without_a_gpu() {
    in_child("the_real_library_says_its_version_and_makes_ids_without_a_gpu", Real, &[], || {
        let library = Library::get().unwrap();
        assert!(library.version() >= MIN_VERSION && library.version() < Version(100_000));
        assert_ne!(library.unique_id().unwrap(), library.unique_id().unwrap());
    });
}

/// The very calls of the set-up: every rank fails for want of a GPU, and the reason is NCCL's.
#[test]
fn the_real_library_does_not_start_without_a_gpu_and_says_why() {
    in_child("the_real_library_does_not_start_without_a_gpu_and_says_why", Real, &[], || {
        let said = reason(2, PATIENT);
        for word in ["rank 0: ncclCommInitRankConfig failed", "CUDA"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    });
}

#[test]
fn sums_are_exact_and_communicators_end_in_order() {
    in_child("sums_are_exact_and_communicators_end_in_order", StandIn(""), &[], || {
        for num_ranks in [1, 2, 5] {
            let communicators = started(num_ranks, PATIENT);
            for len in [1, 7, 64, 4097] {
                let expected: Vec<u8> = (0..len).map(|at| 200 + (at % num_ranks as usize) as u8).collect();
                for bytes in sum_all(&communicators, len) {
                    assert_eq!(bytes.unwrap(), expected);
                }
            }
        }
        let ended = ["start", "finalize", "destroy", "abort"].map(calls);
        assert_eq!(ended, [8, 8, 8, 0]);
    });
}

#[test]
fn a_start_that_never_ends_is_given_up_and_aborted_on_all_ranks() {
    let test = "a_start_that_never_ends_is_given_up_and_aborted_on_all_ranks";
    in_child(test, StandIn("start_hangs=1"), &[], || {
        let begun = Instant::now();
        let said = reason(3, HASTY);
        assert!(said.contains("ncclCommInitRankConfig: not done after"), "{said}");
        assert!(begun.elapsed() >= SHORT && begun.elapsed() < LONG / 2);
        assert_eq!(["start", "finalize", "abort"].map(calls), [3, 0, 3]);
    });
}

#[test]
fn a_rank_whose_start_fails_is_named_and_the_others_abort() {
    in_child("a_rank_whose_start_fails_is_named_and_the_others_abort", StandIn("start_fails=2"), &[], || {
        let said = reason(4, HASTY);
        for word in
            ["rank 2: ncclCommInitRankConfig failed", "stand-in error (2)", "was told to", "NCCL_DEBUG"]
        {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert_eq!(calls("abort"), 3);
    });
}

#[test]
fn a_call_that_does_not_return_is_left_behind() {
    in_child("a_call_that_does_not_return_is_left_behind", StandIn("start_blocks=0"), &[], || {
        let begun = Instant::now();
        let said = reason(2, HASTY);
        assert!(said.contains("rank 0: ncclCommInitRankConfig: not done after"), "{said}");
        assert!(begun.elapsed() < LONG / 2);
    });
}

#[test]
fn without_an_id_no_rank_starts() {
    in_child("without_an_id_no_rank_starts", StandIn("id_fails=1"), &[], || {
        let said = reason(3, PATIENT);
        assert!(said.contains("rank 0: ncclGetUniqueId failed"), "{said}");
        assert_eq!(calls("start"), 0);
    });
}

#[test]
fn an_error_that_nccl_reports_later_is_the_next_sums_and_stays() {
    let test = "an_error_that_nccl_reports_later_is_the_next_sums_and_stays";
    in_child(test, StandIn("error_after=2"), &[], || {
        let communicators = started(2, PATIENT);
        assert!(sum_all(&communicators, 8).iter().all(Result::is_ok));
        // The second sum runs, and some rank may hear of the error while it still looks.
        sum_all(&communicators, 8);
        let third = sum_all(&communicators, 8);
        for problem in &third {
            let problem = problem.clone().unwrap_err();
            assert!(matches!(problem, NcclError::Call { call: "ncclAllReduce", code: 6, .. }), "{problem}");
        }
        assert_eq!(sum_all(&communicators, 8), third);
        // Not before the poison was raised, which only the caller can do.
        assert_eq!(calls("abort"), 0);
        communicators[0].abort().unwrap();
        assert_eq!(calls("abort"), 1);
        // What failed is what is said, not that it was aborted.
        assert_eq!(sum(&communicators[0], &mut [0]).unwrap_err(), third[0].clone().unwrap_err());
        drop(communicators);
        assert_eq!(["finalize", "destroy", "abort"].map(calls), [0, 0, 2]);
    });
}

#[test]
fn a_sum_that_nccl_refuses_is_an_error_and_stays() {
    in_child("a_sum_that_nccl_refuses_is_an_error_and_stays", StandIn("sum_fails=1"), &[], || {
        let communicators = started(2, PATIENT);
        assert!(sum_all(&communicators, 8).iter().all(Result::is_ok));
        let failed = sum_all(&communicators, 8);
        assert!(matches!(failed[0], Err(NcclError::Call { call: "ncclAllReduce", code: 2, .. })));
        assert_eq!(sum_all(&communicators, 8), failed);
        drop(communicators);
        assert_eq!(["finalize", "abort"].map(calls), [0, 2]);
    });
}

#[test]
fn a_sum_that_does_not_get_onto_the_stream_is_given_up_at_its_deadline() {
    let test = "a_sum_that_does_not_get_onto_the_stream_is_given_up_at_its_deadline";
    in_child(test, StandIn("sum_hangs=1"), &[], || {
        let communicators = started(2, Timeouts { queue: SHORT, ..PATIENT });
        assert!(sum_all(&communicators, 8).iter().all(Result::is_ok));
        let begun = Instant::now();
        let late = sum_all(&communicators, 8);
        for problem in &late {
            let problem = problem.clone().unwrap_err();
            assert!(matches!(problem, NcclError::Deadline { call: "ncclAllReduce", .. }), "{problem}");
        }
        assert!(begun.elapsed() >= SHORT);
        // The second time nobody waits.
        let begun = Instant::now();
        assert_eq!(sum_all(&communicators, 8), late);
        assert!(begun.elapsed() < SHORT);
        drop(communicators);
        assert_eq!(["finalize", "abort"].map(calls), [0, 2]);
    });
}

#[test]
fn an_abort_and_a_caller_that_gives_up_end_the_wait_at_once() {
    in_child("an_abort_and_a_caller_that_gives_up_end_the_wait_at_once", StandIn("sum_hangs=0"), &[], || {
        let communicators = started(2, PATIENT);
        let begun = Instant::now();
        thread::scope(|scope| {
            let waits = scope.spawn(|| sum(&communicators[0], &mut [1; 8]));
            while calls("sum") == 0 {
                assert!(begun.elapsed() < LONG / 2 && !waits.is_finished());
                thread::sleep(Duration::from_millis(1));
            }
            communicators[0].abort().unwrap();
            assert_eq!(waits.join().unwrap(), Ok(Queued::GaveUp));
        });
        assert_eq!(sum(&communicators[0], &mut [1; 8]), Err(NcclError::Aborted { call: "ncclAllReduce" }));
        let mut bytes = [1; 8];
        let addr = bytes.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: as in `sum`.
        let queued = unsafe { communicators[1].all_reduce_sum(addr, 8, std::ptr::null_mut(), &|| true) };
        assert_eq!(queued, Ok(Queued::GaveUp));
        assert!(begun.elapsed() < LONG / 2);
        drop(communicators);
        assert_eq!(["finalize", "abort"].map(calls), [0, 2]);
    });
}

#[test]
fn an_end_in_order_that_takes_too_long_becomes_an_abort() {
    let test = "an_end_in_order_that_takes_too_long_becomes_an_abort";
    in_child(test, StandIn("finalize_hangs=1"), &[], || {
        let communicators = started(2, Timeouts { teardown: SHORT, ..PATIENT });
        let begun = Instant::now();
        drop(communicators);
        assert!(begun.elapsed() >= 2 * SHORT && begun.elapsed() < LONG / 2);
        assert_eq!(["finalize", "destroy", "abort"].map(calls), [2, 0, 2]);
    });
}

#[test]
fn an_abort_that_does_not_end_is_told_and_holds_nobody_up() {
    in_child("an_abort_that_does_not_end_is_told_and_holds_nobody_up", StandIn("abort_hangs=1"), &[], || {
        let communicators = started(1, Timeouts { teardown: SHORT, ..PATIENT });
        let begun = Instant::now();
        let problem = communicators[0].abort().unwrap_err();
        assert!(matches!(problem, NcclError::Deadline { call: "ncclCommAbort", .. }), "{problem}");
        drop(communicators);
        assert!(begun.elapsed() < LONG / 2);
        assert_eq!(calls("abort"), 1);
    });
}
