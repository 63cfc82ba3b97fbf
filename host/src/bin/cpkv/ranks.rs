//! How ranks come to be: threads of this process, or the processes of `mpirun`.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cpkv::collective::{Collective, InProcessCollective};
#[cfg(feature = "mpi")]
pub(crate) use cpkv::group::mpi::{MpiError, mpi_library_version};
use cpkv::group::{Bootstrap, ThreadBootstrap};
use cpkv::symm::{LocalBackend, SharedBackend};
use cpkv::units::{GroupSize, Rank};

use crate::baselines::PeerLibrary;
use crate::error::RunError;

/// Ranks where nothing says otherwise.
pub(crate) const DEFAULT_NUM_RANKS: u32 = 8;

/// What one rank runs with.
pub(crate) struct RankEnv {
    pub(crate) bootstrap: Arc<dyn Bootstrap>,
    pub(crate) backend: SharedBackend,
    pub(crate) collective: Arc<dyn Collective>,
    pub(crate) library: Option<Arc<dyn PeerLibrary>>,
}

impl RankEnv {
    pub(crate) fn rank(&self) -> Rank {
        self.bootstrap.rank()
    }
}

/// Number of processes `mpirun` started, where it did.
pub(crate) fn mpi_processes() -> Option<u32> {
    let variables = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE"];
    variables.into_iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// The number of ranks there will be.
pub(crate) fn group_size(asked: Option<u32>) -> Result<GroupSize, RunError> {
    let num_ranks = match (mpi_processes(), asked) {
        (Some(num_processes), Some(asked)) if num_processes != asked => {
            return Err(RunError::RanksUnderMpi { num_processes, asked });
        }
        (Some(num_processes), _) => num_processes,
        (None, asked) => asked.unwrap_or(DEFAULT_NUM_RANKS),
    };
    Ok(GroupSize::new(num_ranks)?)
}

/// Whether this process should print what all would print alike.
pub(crate) fn speaks() -> bool {
    let rank = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok());
    rank.is_none_or(|rank| rank == "0")
}

/// Runs `body` on every rank and returns what the lowest rank here returned. The first failure counts.
pub(crate) fn run_all<T: Send>(
    size: GroupSize,
    timeout: Duration,
    body: impl Fn(RankEnv) -> Result<T, RunError> + Sync,
) -> Result<T, RunError> {
    if mpi_processes().is_some() {
        return run_process(size, body);
    }
    let collectives = InProcessCollective::group(size, timeout);
    let envs =
        ThreadBootstrap::group(size).into_iter().zip(collectives).map(|(bootstrap, collective)| RankEnv {
            bootstrap: Arc::new(bootstrap),
            backend: Arc::new(LocalBackend),
            collective: Arc::new(collective),
            library: None,
        });
    let body = &body;
    thread::scope(|scope| {
        let ranks: Vec<_> = envs
            .map(|env| {
                let rank = env.rank();
                (rank, scope.spawn(move || body(env)))
            })
            .collect();
        let outcomes: Vec<_> = ranks
            .into_iter()
            .map(|(rank, thread)| (rank, thread.join().unwrap_or(Err(RunError::Panicked))))
            .collect();
        let mut first = None;
        for (rank, outcome) in outcomes {
            match outcome {
                Ok(value) => first = first.or(Some(value)),
                Err(error @ RunError::NotExact(_)) => return Err(error),
                Err(error) => return Err(RunError::Rank { rank, message: error.to_string() }),
            }
        }
        first.ok_or(RunError::Panicked)
    })
}

#[cfg(not(feature = "mpi"))]
fn run_process<T>(_size: GroupSize, _body: impl Fn(RankEnv) -> Result<T, RunError>) -> Result<T, RunError> {
    Err(RunError::NoMpi)
}

/// This process as a rank. After a fault it leaves at once: `MPI_Finalize` would wait for ranks that are gone.
#[cfg(feature = "mpi")]
fn run_process<T>(size: GroupSize, body: impl Fn(RankEnv) -> Result<T, RunError>) -> Result<T, RunError> {
    use cpkv::collective::mpi::MpiCollective;
    use cpkv::group::mpi::{MpiBootstrap, leave_without_finalize};
    use cpkv::symm::MemfdBackend;

    let world = init_or_leave(leave_without_finalize)?;
    let rank = world.rank();
    if world.size() != size {
        return Err(RunError::WorldSize { started: size.get(), found: world.size().get() });
    }
    let outcome = body(RankEnv {
        bootstrap: Arc::new(MpiBootstrap::new(Arc::clone(&world))),
        backend: Arc::new(MemfdBackend),
        collective: Arc::new(MpiCollective::new(Arc::clone(&world))),
        library: Some(Arc::clone(&world) as _),
    });
    match outcome {
        Err(error) if !matches!(error, RunError::NotExact(_)) => {
            say(&format!("rank {rank}: {error}"));
            leave_without_finalize(i32::from(error.exit_code()))
        }
        outcome => outcome,
    }
}

/// `MPI_Init` waits without end for processes that died before it. This waits [`INIT_TIMEOUT`].
#[cfg(feature = "mpi")]
fn init_or_leave(leave: fn(i32) -> !) -> Result<Arc<cpkv::group::mpi::MpiWorld>, RunError> {
    let (done, waits) = std::sync::mpsc::channel::<()>();
    thread::spawn(move || {
        if waits.recv_timeout(INIT_TIMEOUT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let seconds = INIT_TIMEOUT.as_secs();
            say(&format!(
                "MPI_Init did not return in {seconds} s: a process died before it, or never started"
            ));
            leave(1);
        }
    });
    let world = cpkv::group::mpi::MpiWorld::init();
    drop(done);
    Ok(world?)
}

/// How long `MPI_Init` may take.
#[cfg(feature = "mpi")]
const INIT_TIMEOUT: Duration = Duration::from_secs(60);

/// One line on standard error, in one piece; where nobody listens, nothing.
pub(crate) fn say(line: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("cpkv: {line}\n").as_bytes());
}
