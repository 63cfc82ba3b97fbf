//! Symmetric memory: the same size and layout on every rank, mutually addressable.

mod arena;
mod available;
mod backend;
#[cfg(feature = "cuda")]
mod cuda_threads;
mod error;
mod exchange;
mod fd_passing;
#[cfg(feature = "cuda")]
mod ipc;
mod local;
mod map;
mod memfd;
mod peer_user;
mod probe;
mod record;
mod region;

pub use arena::{ArenaError, ArenaLayout, Carve, GUARD_BYTE, GUARD_BYTES};
pub use available::available_bytes;
pub use backend::{Export, Mapping, SharedBackend, SymmBackend, SymmError};
#[cfg(feature = "cuda")]
pub use cuda_threads::CudaThreadsBackend;
pub use error::RegisterError;
pub(crate) use exchange::Exchange;
pub use exchange::compare_records;
pub(crate) use exchange::describe_failures;
#[cfg(feature = "cuda")]
pub use ipc::CudaIpcBackend;
pub use local::LocalBackend;
pub use memfd::MemfdBackend;
pub use probe::{ProbeCarves, probe};
pub use record::{ABI_VERSION, Field, RegistrationRecord};
pub use region::{Registered, SymmRegion};
