//! How ranks come to be: threads of this process, or the processes of `mpirun`.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cpkv::collective::{Collective, InProcessCollective};
use cpkv::device::{CpuDevice, Device};
#[cfg(feature = "mpi")]
use cpkv::group::mpi::MpiWorld;
#[cfg(feature = "mpi")]
pub(crate) use cpkv::group::mpi::{MpiError, mpi_library_version};
use cpkv::group::{Bootstrap, ThreadBootstrap};
use cpkv::symm::{LocalBackend, SharedBackend};
use cpkv::units::{GroupSize, Rank};

#[cfg(feature = "mpi")]
use crate::agreement::agree;
#[cfg(all(feature = "mpi", feature = "cuda"))]
use crate::agreement::all_made;
use crate::baselines::PeerLibrary;
use crate::devices::Platform;
use crate::error::RunError;

/// Ranks where nothing says otherwise.
pub(crate) const DEFAULT_NUM_RANKS: u32 = 8;

/// What one rank runs with.
pub(crate) struct RankEnv {
    pub(crate) device: Arc<dyn Device>,
    /// Why it is no GPU; empty where it is one, or none was wanted.
    pub(crate) device_reason: String,
    pub(crate) bootstrap: Arc<dyn Bootstrap>,
    pub(crate) backend: SharedBackend,
    pub(crate) collective: Arc<dyn Collective>,
    /// Why it is not NCCL's; empty where it is, or where it was not asked for.
    pub(crate) collective_reason: String,
    pub(crate) library: Option<Arc<dyn PeerLibrary>>,
}

impl RankEnv {
    fn new(
        parts: Parts,
        platform: &Platform,
        bootstrap: Arc<dyn Bootstrap>,
        library: Option<Arc<dyn PeerLibrary>>,
    ) -> Self {
        let Parts { device, backend, collective, collective_reason } = parts;
        let device_reason = platform.reason();
        Self { device, device_reason, bootstrap, backend, collective, collective_reason, library }
    }

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
    platform: &Platform,
    body: impl Fn(RankEnv) -> Result<T, RunError> + Sync,
) -> Result<T, RunError> {
    if mpi_processes().is_some() {
        return run_process(size, timeout, platform, body);
    }
    let parts = match platform {
        Platform::Cpu { .. } => threads_on_cpu(size, timeout),
        Platform::Cuda { .. } => threads_on_gpus(size, timeout)?,
    };
    let envs = ThreadBootstrap::group(size)
        .into_iter()
        .zip(parts)
        .map(|(bootstrap, parts)| RankEnv::new(parts, platform, Arc::new(bootstrap), None));
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
        // Whose failure it is, and what it says: a rank may tell of another's.
        let mut failures: Vec<(Rank, String)> = Vec::new();
        for (rank, outcome) in outcomes {
            match outcome {
                Ok(value) => first = first.or(Some(value)),
                Err(error @ RunError::NotExact(_)) => return Err(error),
                Err(RunError::Rank { rank, message }) => failures.push((rank, message)),
                Err(error) => failures.push((rank, error.to_string())),
            }
        }
        if !failures.is_empty() {
            let (rank, message) = failures.remove(0);
            // What another rank says may be the cause of it.
            failures.sort();
            failures.dedup();
            let others = failures.into_iter().filter(|(_, said)| *said != message);
            for (other, said) in others {
                say(&format!("rank {other}: {said}"));
            }
            return Err(RunError::Rank { rank, message });
        }
        first.ok_or(RunError::Panicked)
    })
}

/// A rank's device, the symmetric memory that belongs to it, and a collective over its memory.
struct Parts {
    device: Arc<dyn Device>,
    backend: SharedBackend,
    collective: Arc<dyn Collective>,
    collective_reason: String,
}

impl Parts {
    /// Where there is one collective to choose from.
    fn new(device: Arc<dyn Device>, backend: SharedBackend, collective: Arc<dyn Collective>) -> Self {
        Self { device, backend, collective, collective_reason: String::new() }
    }
}

fn threads_on_cpu(size: GroupSize, timeout: Duration) -> Vec<Parts> {
    let collectives = InProcessCollective::group(size, timeout).into_iter();
    collectives
        .map(|collective| Parts::new(Arc::new(CpuDevice), Arc::new(LocalBackend), Arc::new(collective)))
        .collect()
}

/// A GPU is opened once, however many ranks it has.
#[cfg(feature = "cuda")]
fn threads_on_gpus(size: GroupSize, timeout: Duration) -> Result<Vec<Parts>, RunError> {
    use cpkv::collective::DeviceCollective;
    use cpkv::device::cuda::{CudaDevice, GpuChoice, gpus};
    use cpkv::symm::CudaThreadsBackend;

    let used = gpus()?.len().min(size.len());
    let opened: Vec<CudaDevice> = (0..used as u32)
        .map(|ordinal| CudaDevice::open(&GpuChoice::Ordinal(ordinal)))
        .collect::<Result<_, _>>()?;
    let devices: Vec<CudaDevice> = opened.iter().cycle().take(size.len()).cloned().collect();
    let shared = devices.iter().map(|device| Arc::new(device.clone()) as Arc<dyn Device>).collect();
    let collectives = DeviceCollective::group(shared, size, timeout);
    let parts = devices.into_iter().zip(collectives).map(|(device, collective)| {
        let backend = CudaThreadsBackend::new(device.clone());
        Parts::new(Arc::new(device), Arc::new(backend), Arc::new(collective))
    });
    Ok(parts.collect())
}

#[cfg(not(feature = "cuda"))]
fn threads_on_gpus(_size: GroupSize, _timeout: Duration) -> Result<Vec<Parts>, RunError> {
    Err(RunError::NoCuda { reason: crate::devices::cuda_problem().unwrap_or_default() })
}

#[cfg(not(feature = "mpi"))]
fn run_process<T>(
    _size: GroupSize,
    _timeout: Duration,
    _platform: &Platform,
    _body: impl Fn(RankEnv) -> Result<T, RunError>,
) -> Result<T, RunError> {
    Err(RunError::NoMpi)
}

/// This process as a rank. After a fault it leaves at once: `MPI_Finalize` would wait for ranks that are gone.
#[cfg(feature = "mpi")]
fn run_process<T>(
    size: GroupSize,
    timeout: Duration,
    platform: &Platform,
    body: impl Fn(RankEnv) -> Result<T, RunError>,
) -> Result<T, RunError> {
    use cpkv::group::mpi::{MpiBootstrap, leave_without_finalize};

    let world = init_or_leave(leave_without_finalize)?;
    let rank = world.rank();
    if world.size() != size {
        return Err(RunError::WorldSize { started: size.get(), found: world.size().get() });
    }
    let bootstrap: Arc<dyn Bootstrap> = Arc::new(MpiBootstrap::new(Arc::clone(&world)));
    let setup = (2 * timeout).max(SETUP);
    let mut collective = None;
    let outcome = agree(&*bootstrap, platform, setup).and_then(|platform| {
        let parts = match platform {
            Platform::Cpu { .. } => process_on_cpu(&world),
            Platform::Cuda { .. } => process_on_gpu(&world, &bootstrap, timeout, setup)?,
        };
        collective = Some(Arc::clone(&parts.collective));
        body(RankEnv::new(parts, &platform, bootstrap, Some(Arc::clone(&world) as _)))
    });
    match outcome {
        Err(error) if !matches!(error, RunError::NotExact(_)) => {
            // What waits on the GPU for ranks that do not come ends now, not when the driver finds the process gone.
            collective.inspect(|collective| collective.abort());
            say(&format!("rank {rank}: {error}"));
            leave_without_finalize(i32::from(error.exit_code()))
        }
        outcome => outcome,
    }
}

#[cfg(feature = "mpi")]
fn process_on_cpu(world: &Arc<MpiWorld>) -> Parts {
    use cpkv::collective::mpi::MpiCollective;
    use cpkv::symm::MemfdBackend;

    let collective = Arc::new(MpiCollective::new(Arc::clone(world)));
    Parts::new(Arc::new(CpuDevice), Arc::new(MemfdBackend), collective)
}

/// The GPU of this process, by its number among those of this machine. Sums are NCCL's where all ranks can use it; else
/// they go through host memory and MPI.
#[cfg(all(feature = "mpi", feature = "cuda"))]
fn process_on_gpu(
    world: &Arc<MpiWorld>,
    bootstrap: &Arc<dyn Bootstrap>,
    timeout: Duration,
    setup: Duration,
) -> Result<Parts, RunError> {
    use cpkv::collective::mpi::MpiCollective;
    use cpkv::collective::nccl::Timeouts;
    use cpkv::collective::{NcclCollective, StagedCollective};
    use cpkv::device::cuda::{CudaDevice, GpuChoice};
    use cpkv::symm::CudaIpcBackend;

    let opened = CudaDevice::open(&GpuChoice::LocalRank(local_rank().unwrap_or(world.rank().0)));
    let device = all_made(&**bootstrap, opened.map_err(RunError::from), setup)?;
    let backend = Arc::new(CudaIpcBackend::new(device.clone()));
    let timeouts = Timeouts { setup: timeout.max(NCCL_SETUP), queue: timeout, teardown: NCCL_TEARDOWN };
    let nccl = NcclCollective::register(&**bootstrap, &device, timeouts)?;
    let device: Arc<dyn Device> = Arc::new(device);
    let (collective, collective_reason): (Arc<dyn Collective>, _) = match nccl {
        Ok(nccl) => (Arc::new(nccl), String::new()),
        Err(reason) => {
            let reduce = Arc::new(MpiCollective::new(Arc::clone(world)));
            (Arc::new(StagedCollective::new(reduce, Arc::clone(&device))), reason)
        }
    };
    Ok(Parts { device, backend, collective, collective_reason })
}

/// How long the ranks wait for each other's devices, at least.
#[cfg(feature = "mpi")]
const SETUP: Duration = Duration::from_secs(10);
/// How long NCCL may take to start, at least: it looks for networks and connects all ranks.
#[cfg(all(feature = "mpi", feature = "cuda"))]
const NCCL_SETUP: Duration = Duration::from_secs(30);
/// How long it may take to end, before it is aborted.
#[cfg(all(feature = "mpi", feature = "cuda"))]
const NCCL_TEARDOWN: Duration = Duration::from_secs(5);

#[cfg(all(feature = "mpi", not(feature = "cuda")))]
fn process_on_gpu(
    _world: &Arc<MpiWorld>,
    _bootstrap: &Arc<dyn Bootstrap>,
    _timeout: Duration,
    _setup: Duration,
) -> Result<Parts, RunError> {
    Err(RunError::NoCuda { reason: crate::devices::cuda_problem().unwrap_or_default() })
}

/// This process's number among those of this machine, where the launcher tells.
#[cfg(all(feature = "mpi", feature = "cuda"))]
fn local_rank() -> Option<u32> {
    let variables = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"];
    variables.into_iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// `MPI_Init` waits without end for processes that died before it. This waits [`INIT_TIMEOUT`].
#[cfg(feature = "mpi")]
fn init_or_leave(leave: fn(i32) -> !) -> Result<Arc<MpiWorld>, RunError> {
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
    let world = MpiWorld::init();
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
