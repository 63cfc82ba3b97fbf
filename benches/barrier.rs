//! What a barrier costs: ranks of 2, 4 and 8, as threads and as processes over memfd, on the CPU.
//!
//! Unit: time per barrier, from the last rank's start to the last rank's end over the number of barriers. They are queued
//! in blocks of up to 1000, and the host waits once a block; the baseline runs on the same streams, and is waited for in
//! the same way.
//!
//! Baselines, in the same run: `std::sync::Barrier` for threads; for processes one shared atomic counter, polled as the
//! group's barrier polls. Neither has what ours does: a time-out that names who is missing, and poison.
//!
//! Targets: none on the CPU; 7.7 us for the slowest of 8 ranks is a figure of GPUs. Where the ranks, or they and what else
//! the machine does, are more than the cores, which are printed, what is measured is how the system hands the cores around.

#[path = "support/children.rs"]
mod children;
#[path = "support/counter.rs"]
mod counter;
#[path = "support/rounds.rs"]
mod rounds;
#[path = "support/star.rs"]
mod star;

use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use children::Children;
use cpkv::group::{Bootstrap, ThreadBootstrap};
use cpkv::symm::LocalBackend;
use cpkv::units::{GroupSize, Rank};
use criterion::{BenchmarkId, Criterion, criterion_group};
use rounds::{Baseline, Failure, Member, Round};

const NUM_RANKS: [u32; 3] = [2, 4, 8];
/// The fewest barriers that are timed at once: what surrounds them is then little.
const LEAST_BARRIERS: u64 = 100;

/// Rank 0, which is this thread, with the others.
struct Job {
    lead: Member,
    others: Others,
}

enum Others {
    Threads(Vec<JoinHandle<()>>),
    Processes(Children),
}

impl Job {
    fn of_threads(num_ranks: u32) -> Result<Self, Failure> {
        let size = GroupSize::new(num_ranks)?;
        let barrier = Arc::new(Barrier::new(size.len()));
        let baseline: Baseline = Arc::new(move |num_barriers| {
            for _ in 0..num_barriers {
                barrier.wait();
            }
            Ok(())
        });
        let mut bootstraps = ThreadBootstrap::group(size).into_iter();
        let mine = bootstraps.next().ok_or("a group of no ranks")?;
        let follow = |bootstrap: ThreadBootstrap| {
            let (rank, baseline) = (bootstrap.rank(), Arc::clone(&baseline));
            thread::spawn(move || {
                let member = Member::register(Arc::new(bootstrap), Arc::new(LocalBackend), baseline);
                if let Err(error) = member.and_then(Member::follow) {
                    eprintln!("rank {rank}: {error}");
                }
            })
        };
        let others = Others::Threads(bootstraps.map(follow).collect());
        let lead = Member::register(Arc::new(mine), Arc::new(LocalBackend), baseline)?;
        Ok(Self { lead, others })
    }

    fn of_processes(num_ranks: u32) -> Result<Self, Failure> {
        let size = GroupSize::new(num_ranks)?;
        let (mut children, star) = Children::start(size)?;
        match children::member(star, Rank(0), size) {
            Ok(lead) => Ok(Self { lead, others: Others::Processes(children) }),
            Err(error) => Err(format!("{error}{}", children.ended()).into()),
        }
    }

    /// The time of `num_barriers` barriers.
    fn time(&mut self, num_barriers: u64, round: fn(u64) -> Round) -> Duration {
        let timed = num_barriers.max(LEAST_BARRIERS);
        match self.lead.lead(round(timed)) {
            Ok(took) => took.mul_f64(num_barriers as f64 / timed as f64),
            Err(error) => panic!("{error}{}", self.others.ended()),
        }
    }

    fn close(self) -> Result<(), Failure> {
        self.lead.close()?;
        match self.others {
            Others::Threads(threads) => {
                let panicked = threads.into_iter().filter_map(|thread| thread.join().err()).count();
                if panicked == 0 { Ok(()) } else { Err(format!("{panicked} ranks panicked").into()) }
            }
            Others::Processes(children) => children.join(),
        }
    }
}

impl Others {
    fn ended(&mut self) -> String {
        match self {
            Self::Threads(_) => String::new(),
            Self::Processes(children) => children.ended(),
        }
    }
}

/// Measures groups of each size, ours and the baseline. A group is made only where one of its benches was asked for.
fn measure(
    criterion: &mut Criterion,
    name: &str,
    baseline: &str,
    make: impl Fn(u32) -> Result<Job, Failure>,
) {
    let mut group = criterion.benchmark_group(name);
    for num_ranks in NUM_RANKS {
        let mut job = None;
        let rounds = [("group", Round::Group as fn(u64) -> Round), (baseline, Round::Baseline)];
        for (name, round) in rounds {
            group.bench_function(BenchmarkId::new(name, format!("{num_ranks}_ranks")), |bencher| {
                let job =
                    job.get_or_insert_with(|| make(num_ranks).unwrap_or_else(|error| panic!("{error}")));
                bencher.iter_custom(|num_barriers| job.time(num_barriers, round));
            });
        }
        job.map_or(Ok(()), Job::close).unwrap_or_else(|error| panic!("{error}"));
    }
    group.finish();
}

fn threads(criterion: &mut Criterion) {
    measure(criterion, "barrier/threads", "baseline_std_sync_barrier", Job::of_threads);
}

fn processes(criterion: &mut Criterion) {
    measure(criterion, "barrier/processes", "baseline_shared_counter", Job::of_processes);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = threads, processes
}

/// Criterion's, but for the processes that are ranks: they must not take part in its reports.
fn main() -> ExitCode {
    if let Some(code) = children::play() {
        return code;
    }
    println!("cores: {}", thread::available_parallelism().map_or(1, usize::from));
    benches();
    Criterion::default().configure_from_args().final_summary();
    ExitCode::SUCCESS
}
