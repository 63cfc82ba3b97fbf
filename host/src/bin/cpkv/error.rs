//! Why the program ends with a status other than 0.

use std::path::PathBuf;

use cpkv::compose::ComposeError;
use cpkv::device::DeviceError;
use cpkv::group::{BootstrapError, GroupError};
use cpkv::model::ModelError;
use cpkv::symm::RegisterError;
use cpkv::transfer::decode::{ArrivalError, DirectoryError, WorkerError};
use cpkv::transfer::{
    BlockError, Cause, ConnectError, EngineError, EngineProblem, HandshakeError, RequestId, StartError,
    TransferError,
};
use cpkv::units::{PageId, Rank, UnitError};
use cpkv::workload::{TraceError, WorkloadError};
use thiserror::Error;

/// Why the program failed.
#[derive(Debug, Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("CPKV_SYMM_HEAP_MB is `{value}`: give a number of MiB")]
    HeapVariable { value: String },
    #[error("the trace has no batch: it is empty, or `--batches` is 0")]
    NoBatch,
    #[error(
        "no batch {batch}: with these limits the trace has {num_batches}, numbered from 0: choose another `--batch`"
    )]
    NoSuchBatch { batch: u32, num_batches: usize },
    #[error("cannot write the picture to {}: {problem}", path.display())]
    Picture { path: PathBuf, problem: std::io::Error },
    #[cfg(feature = "mpi")]
    #[error(
        "rank {with} runs on a GPU but rank {without} cannot: {reason}. Give every rank one, or say `--device auto`, or \
         `--device cpu`, on all"
    )]
    MixedDevices { with: Rank, without: Rank, reason: String },
    #[error("`--device cuda`: {reason}. Leave it out, or say `--device cpu`, to run on the CPU")]
    NoCuda { reason: String },
    #[error("under mpirun the ranks are its {num_processes} processes: leave `--ranks {asked}` out")]
    RanksUnderMpi { num_processes: u32, asked: u32 },
    #[error(
        "started by mpirun, but this build has no MPI: build with `cargo build --release --features mpi` (see \
         scripts/setup), or start it without mpirun to have threads as ranks"
    )]
    NoMpi,
    #[cfg(feature = "mpi")]
    #[error(
        "the environment says {started} processes, MPI says {found}: start it with the mpirun of the MPI it was built \
         with, or without OMPI_COMM_WORLD_SIZE, PMI_SIZE and PMIX_SIZE to have threads as ranks"
    )]
    WorldSize { started: u32, found: u32 },
    #[cfg(feature = "mpi")]
    #[error(transparent)]
    Mpi(#[from] crate::ranks::MpiError),
    #[error(transparent)]
    Compose(#[from] ComposeError),
    #[error(transparent)]
    Register(#[from] RegisterError),
    #[error(transparent)]
    Group(#[from] GroupError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    #[error("rank {rank}: {message}")]
    Rank { rank: Rank, message: String },
    #[error("not exact: {}", .0.join("; "))]
    NotExact(Vec<String>),
    #[error(
        "`--engine in-process` copies within one process, and under mpirun the ranks are processes: say `--engine nixl`, or \
         start it without mpirun"
    )]
    InProcessUnderMpi,
    #[error(
        "`--engine nixl`: this build has no NIXL: build with `--features nixl`, or say `--engine in-process`"
    )]
    NoNixl,
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Transfer(#[from] TransferError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("decode workers: {0}")]
    Route(Cause),
    #[error("decode workers: {0}")]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Blocks(#[from] BlockError),
    #[error(transparent)]
    Worker(#[from] WorkerError),
    #[error(transparent)]
    Arrival(#[from] ArrivalError),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("decode worker {worker} {problem}")]
    DecodeWorker { worker: u32, problem: String },
    #[error("{ended}; before that was known: {error}")]
    WorkerEnded { ended: String, error: Box<RunError> },
    #[error(
        "request {request}: pages {pages:?} of it could not be confirmed quiet: see what holds the engine up"
    )]
    NotQuiet { request: RequestId, pages: Vec<PageId> },
    #[error(
        "request {request}: the pages of a chunk are not sent after {waited_ms} ms ({in_flight} layers times pages are in \
         flight): see what holds the engine up, or raise the timeout"
    )]
    ChunkTimeout { request: RequestId, in_flight: u64, waited_ms: u64 },
    #[error("`{call}`: rank 0 said nothing")]
    Garbled { call: &'static str },
    #[error("a decode worker is started by `cpkv run`, which tells it what to do")]
    NotStarted,
    #[error("cannot write the timeline {}: {error}", path.display())]
    Timeline { path: PathBuf, error: std::io::Error },
    #[error("{}: it is no regular file, and decode workers read the trace again: give a file", path.display())]
    TraceOnce { path: PathBuf },
    #[error(
        "`--compute-us` lets a forward sleep {asleep:?}, longer than the {timeout:?} of `--timeout`: give less, or a longer \
         timeout"
    )]
    ComputeTooLong { asleep: std::time::Duration, timeout: std::time::Duration },
    #[error("cannot write {}: {error}; give `--report` a folder that can be written to", path.display())]
    ReportFolder { path: PathBuf, error: std::io::Error },
    #[error("a rank's thread ended by a panic")]
    Panicked,
    #[error("cannot write the report: {0}")]
    Output(#[from] std::io::Error),
}

/// The exit status of bad input.
pub(crate) const BAD_INPUT: u8 = 2;

impl RunError {
    /// Whether the reader of standard output has gone: `| head` is no fault.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// [`BAD_INPUT`] for bad input, which a user mends on the command line; 1 for everything else.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Trace(_)
            | Self::Model(_)
            | Self::Workload(_)
            | Self::Unit(_)
            | Self::HeapVariable { .. }
            | Self::NoBatch
            | Self::NoSuchBatch { .. }
            | Self::Picture { .. }
            | Self::NoCuda { .. }
            | Self::RanksUnderMpi { .. }
            | Self::NoMpi
            | Self::InProcessUnderMpi
            | Self::Timeline { .. }
            | Self::TraceOnce { .. }
            | Self::ComputeTooLong { .. }
            | Self::Engine(EngineError { problem: EngineProblem::Unavailable { .. }, .. })
            | Self::NoNixl
            | Self::NotStarted
            | Self::ReportFolder { .. }
            | Self::Compose(ComposeError::Plan(_)) => BAD_INPUT,
            #[cfg(feature = "mpi")]
            Self::MixedDevices { .. } => BAD_INPUT,
            #[cfg(feature = "mpi")]
            Self::WorldSize { .. } => BAD_INPUT,
            _ => 1,
        }
    }
}
