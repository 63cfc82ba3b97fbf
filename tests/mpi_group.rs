//! Groups of processes under `mpirun`: exchanges, missing ranks, and memory shared among 8 processes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cpkv::collective::mpi::{allgatherv_bytes, allreduce_bytes, time_barriers};
use cpkv::deadline::Deadline;
use cpkv::group::mpi::{MpiBootstrap, MpiWorld, leave_without_finalize, mpi_library_version, same_host_copy};
use cpkv::group::{Bootstrap, BootstrapError, MAX_BLOB_BYTES};
use cpkv::symm::{Export, Mapping, MemfdBackend, SymmBackend, SymmError};
use cpkv::units::{GroupSize, Rank, RankSet};
use rustix::process::{Signal, getpid, kill_process};

use support::{
    Ending, MpiJob, hex, is_running, report, socket_exists, under_mpirun, unhex, wait_for_reports,
};

/// Long enough for ranks that come, on a busy machine.
const SHORT: Duration = Duration::from_secs(2);

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn group() -> MpiBootstrap {
    MpiBootstrap::new(MpiWorld::init().expect("MPI starts"))
}

fn ranks(ranks: &[u32]) -> RankSet {
    ranks.iter().copied().map(Rank).collect()
}

fn die() -> ! {
    kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
    unreachable!("killed")
}

/// Blobs of unequal size, from empty to the largest, many times.
fn exchange_unequal_blobs() -> Ending {
    let group = group();
    let num_ranks = group.group_size().get();
    for round in 0..40_u32 {
        let blob = |rank: u32| {
            let num_bytes = [0, 1, 300, 5000, MAX_BLOB_BYTES][((rank + round) % 5) as usize];
            vec![(rank * 31 + round) as u8; num_bytes]
        };
        let got = group.all_gather("unequal", &blob(group.rank().0), soon()).unwrap();
        assert!(got == (0..num_ranks).map(blob).collect::<Vec<_>>(), "round {round}");
    }
    Ending::Normal
}

macro_rules! exchanges {
    ($($name:ident: $num_ranks:literal),*) => {$(
        #[test]
        fn $name() {
            under_mpirun(&MpiJob::new($num_ranks), stringify!($name), exchange_unequal_blobs);
        }
    )*};
}

exchanges!(one_rank_exchanges: 1, two_ranks_exchange: 2, three_ranks_exchange: 3, eight_ranks_exchange: 8);

#[test]
fn ranks_at_different_calls_are_told_apart() {
    let job = MpiJob::new(3).surviving(&[0, 1, 2]);
    under_mpirun(&job, "ranks_at_different_calls_are_told_apart", || {
        let group = group();
        group.barrier("together", soon()).unwrap();
        let (call, peer, peer_call) = match group.rank() {
            Rank(1) => ("export", Rank(0), "register"),
            _ => ("register", Rank(1), "export"),
        };
        let error = group.barrier(call, soon()).unwrap_err();
        let expected =
            BootstrapError::Diverged { call, rank: group.rank(), peer, peer_call: peer_call.into() };
        assert_eq!(error, expected);
        assert_eq!(group.barrier("later", soon()).unwrap_err(), error);
        Ending::Abandon
    });
}

/// The exchange fails in time, names exactly `missing`, and every later one fails at once.
fn expect_missing(group: &MpiBootstrap, missing: &[u32]) {
    let started = Instant::now();
    let error = group.all_gather("meet", &[7; 9000], Deadline::after(SHORT)).unwrap_err();
    let BootstrapError::Missing { call: "meet", missing: named, waited_ms, .. } = error.clone() else {
        panic!("{error}");
    };
    assert_eq!(named, ranks(missing));
    assert!(waited_ms >= SHORT.as_millis() as u64 && started.elapsed() < SHORT * 10, "{error}");
    let again = Instant::now();
    assert_eq!(group.barrier("again", soon()).unwrap_err(), error);
    assert!(again.elapsed() < SHORT);
}

#[test]
fn a_rank_that_never_enters_is_named() {
    let job = MpiJob::new(4).surviving(&[0, 1, 2, 3]);
    under_mpirun(&job, "a_rank_that_never_enters_is_named", || {
        let group = group();
        group.barrier("together", soon()).unwrap();
        match group.rank() {
            Rank(2) => {
                thread::sleep(SHORT * 4);
                // Not dropped: that would wait for the others, as a rank should that knows of no failure.
                std::mem::forget(group);
            }
            _ => expect_missing(&group, &[2]),
        }
        Ending::Abandon
    });
}

#[test]
fn a_rank_that_leaves_early_is_named() {
    let job = MpiJob::new(3).surviving(&[0, 2]);
    under_mpirun(&job, "a_rank_that_leaves_early_is_named", || {
        let group = group();
        group.barrier("together", soon()).unwrap();
        report("TOGETHER");
        if group.rank() == Rank(1) {
            // Not before the others are through: messages could still be on their way.
            wait_for_reports(0..3, "TOGETHER");
            leave_without_finalize(3);
        }
        expect_missing(&group, &[1]);
        Ending::Abandon
    });
}

#[test]
fn a_rank_that_is_done_is_named_by_one_that_is_not() {
    let job = MpiJob::new(2).surviving(&[0, 1]);
    under_mpirun(&job, "a_rank_that_is_done_is_named_by_one_that_is_not", || {
        let group = group();
        group.barrier("together", soon()).unwrap();
        if group.rank() == Rank(0) {
            let error = group.barrier("meet", soon()).unwrap_err();
            let expected = BootstrapError::Diverged {
                call: "meet",
                rank: Rank(0),
                peer: Rank(1),
                peer_call: "MPI_Finalize".into(),
            };
            assert_eq!(error, expected);
        }
        drop(group);
        Ending::Abandon
    });
}

#[test]
fn a_blocking_collective_is_reported_as_busy() {
    let job = MpiJob::new(2).surviving(&[0, 1]);
    under_mpirun(&job, "a_blocking_collective_is_reported_as_busy", || {
        let world = MpiWorld::init().expect("MPI starts");
        let group = MpiBootstrap::new(Arc::clone(&world));
        group.barrier("together", soon()).unwrap();
        if group.rank() == Rank(1) {
            thread::sleep(SHORT * 4);
            assert_eq!(time_barriers(&world, 1).unwrap().len(), 1);
            // Not dropped: that would wait for rank 0, as a rank should that knows of no failure.
            std::mem::forget(group);
            return Ending::Abandon;
        }
        thread::scope(|scope| {
            scope.spawn(|| time_barriers(&world, 1).unwrap());
            thread::sleep(SHORT);
            let error = group.barrier("meet", Deadline::after(SHORT)).unwrap_err();
            assert!(matches!(error, BootstrapError::Busy { call: "meet", rank: Rank(0), .. }), "{error}");
        });
        Ending::Abandon
    });
}

#[test]
fn the_first_ranks_are_a_world_of_their_own() {
    under_mpirun(&MpiJob::new(3), "the_first_ranks_are_a_world_of_their_own", || {
        let world = MpiWorld::init().expect("MPI starts");
        let whole = MpiBootstrap::new(Arc::clone(&world));
        let part = world.first(GroupSize::new(2).unwrap()).unwrap();
        assert_eq!(part.is_some(), world.rank().0 < 2);
        if let Some(part) = part {
            assert_eq!((part.rank(), part.size().get()), (world.rank(), 2));
            assert_eq!(time_barriers(&part, 3).unwrap().len(), 3);
            let group = MpiBootstrap::new(part);
            let heard = group.all_gather("part", &[group.rank().0 as u8], soon()).unwrap();
            assert_eq!(heard, [[0], [1]]);
        }
        whole.barrier("together", soon()).unwrap();
        let all = world.first(GroupSize::new(64).unwrap()).unwrap().expect("everybody is in it");
        assert_eq!(all.size(), world.size());
        Ending::Normal
    });
}

#[test]
fn the_baselines_move_the_right_bytes() {
    let reported = under_mpirun(&MpiJob::new(3), "the_baselines_move_the_right_bytes", || {
        let world = MpiWorld::init().expect("MPI starts");
        assert!(Arc::ptr_eq(&world, &MpiWorld::init().unwrap()));
        let me = world.rank().idx();
        // As compose uses it: every byte has one producer.
        let value = |at: usize| (at * 7 + at / 256 + 1) as u8;
        let mut bytes: Vec<u8> = (0..300_001).map(|at| if at % 3 == me { value(at) } else { 0 }).collect();
        allreduce_bytes(&world, &mut bytes).unwrap();
        assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == value(at)));
        let (counts, displs) = ([2, 0, 3], [4, 0, 0]);
        let mut recv = [0xA5; 7];
        allgatherv_bytes(&world, &vec![me as u8 + 1; counts[me] as usize], &mut recv, &counts, &displs)
            .unwrap();
        assert_eq!(recv, [3, 3, 3, 0xA5, 1, 1, 0xA5]);
        assert!(allgatherv_bytes(&world, &[], &mut recv, &counts, &[6, 0, 0]).is_err());
        assert!(allgatherv_bytes(&world, &[], &mut recv, &counts[..2], &displs[..2]).is_err());
        time_barriers(&world, 1).unwrap();
        report(&format!("MPI: {}; {}", mpi_library_version(), same_host_copy(&world)));
        Ending::Normal
    });
    if let Some(reported) = reported {
        assert!(reported.lines().any(|line| line.starts_with("MPI: ")), "{reported}");
    }
}

fn byte_of(mapping: &Mapping, offset: u64) -> *mut u8 {
    assert!(offset < mapping.bytes);
    std::ptr::with_exposed_provenance_mut((mapping.addr + offset) as usize)
}

const REGION_BYTES: u64 = 3 * 4096 + 17;

/// This rank's region, its export and everybody's handle.
fn register(group: &MpiBootstrap) -> (Mapping, Export, Vec<Vec<u8>>) {
    let mine = MemfdBackend.allocate(REGION_BYTES).unwrap();
    let export = MemfdBackend.export(&mine, soon()).unwrap();
    report(&format!("HANDLE {}", hex(&export.handle)));
    let handles = group.all_gather("handles", &export.handle, soon()).unwrap();
    (mine, export, handles)
}

/// The handles that the ranks reported are those of no socket any more.
fn expect_no_sockets(reported: &str, num_handles: usize) {
    let handles: Vec<_> = reported.lines().filter_map(|line| line.strip_prefix("HANDLE ")).collect();
    assert_eq!(handles.len(), num_handles, "{reported}");
    assert!(handles.iter().all(|handle| !socket_exists(&unhex(handle))));
}

#[test]
fn eight_processes_share_their_regions() {
    let reported = under_mpirun(&MpiJob::new(8), "eight_processes_share_their_regions", || {
        let group = group();
        let (me, num_ranks) = (u64::from(group.rank().0), u64::from(group.group_size().get()));
        let (mine, export, handles) = register(&group);
        assert!(socket_exists(&export.handle));
        let open = |(rank, handle): (usize, &Vec<u8>)| {
            MemfdBackend.open(Rank(rank as u32), handle, REGION_BYTES, soon()).unwrap()
        };
        let regions: Vec<Mapping> = handles.iter().enumerate().map(open).collect();
        group.barrier("opened", soon()).unwrap();
        drop((export, mine));
        // Every byte `at` of every region belongs to the rank `at mod num_ranks`.
        let value = |owner: u64, at: u64| (owner * 89 + at * 7 + at / 251 + 1) as u8;
        for (region, owner) in regions.iter().zip(0..) {
            for at in (me..REGION_BYTES).step_by(num_ranks as usize) {
                // SAFETY: inside a live mapping; this rank alone writes this byte, and nobody reads it before the
                // barrier.
                unsafe { byte_of(region, at).write_volatile(value(owner, at)) };
            }
        }
        group.barrier("written", soon()).unwrap();
        for (region, owner) in regions.iter().zip(0..) {
            for at in 0..REGION_BYTES {
                // SAFETY: inside a live mapping; all writes came before the barrier.
                let got = unsafe { byte_of(region, at).read_volatile() };
                assert_eq!(got, value(owner, at), "region of rank {owner}, byte {at}");
            }
        }
        group.barrier("read", soon()).unwrap();
        Ending::Normal
    });
    if let Some(reported) = reported {
        expect_no_sockets(&reported, 8);
    }
}

#[test]
fn a_rank_killed_before_its_export_is_named() {
    let job = MpiJob::new(3).surviving(&[0, 1]);
    under_mpirun(&job, "a_rank_killed_before_its_export_is_named", || {
        let group = group();
        group.barrier("together", soon()).unwrap();
        report("TOGETHER");
        let mine = MemfdBackend.allocate(REGION_BYTES).unwrap();
        if group.rank() == Rank(2) {
            wait_for_reports(0..3, "TOGETHER");
            die();
        }
        let _export = MemfdBackend.export(&mine, soon()).unwrap();
        expect_missing(&group, &[2]);
        Ending::Abandon
    });
}

#[test]
fn a_rank_killed_after_its_export_is_named_and_leaves_nothing() {
    let test = "a_rank_killed_after_its_export_is_named_and_leaves_nothing";
    let reported = under_mpirun(&MpiJob::new(3).surviving(&[0, 2]), test, || {
        let group = group();
        let pids = group.all_gather("pids", &std::process::id().to_le_bytes(), soon()).unwrap();
        let (_mine, _export, handles) = register(&group);
        report("REGISTERED");
        if group.rank() == Rank(1) {
            // Not before the others have its handle: eager messages could still be on their way.
            wait_for_reports(0..3, "REGISTERED");
            die();
        }
        let pid = u32::from_le_bytes(pids[1][..].try_into().unwrap());
        let started = Instant::now();
        // The first thread of a killed process ends before the last one lets go of its sockets.
        while is_running(pid) || socket_exists(&handles[1]) {
            assert!(started.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(10));
        }
        let asked = Instant::now();
        let error = MemfdBackend.open(Rank(1), &handles[1], REGION_BYTES, soon()).err().unwrap();
        assert!(matches!(error, SymmError::Open { peer: Rank(1), call: "connect", .. }), "{error}");
        assert!(asked.elapsed() < SHORT);
        expect_missing(&group, &[1]);
        Ending::Abandon
    });
    if let Some(reported) = reported {
        expect_no_sockets(&reported, 3);
    }
}

#[test]
#[should_panic(expected = "not over after")]
fn a_job_that_hangs_is_ended_and_fails() {
    let job = MpiJob::new(2).within(Duration::from_secs(3));
    under_mpirun(&job, "a_job_that_hangs_is_ended_and_fails", || {
        thread::sleep(Duration::from_secs(60));
        Ending::Normal
    });
}

#[test]
#[should_panic(expected = "the end of rank 0")]
fn a_job_that_runs_nothing_fails() {
    under_mpirun(&MpiJob::new(1), "no_test_has_this_name", || Ending::Normal);
}
