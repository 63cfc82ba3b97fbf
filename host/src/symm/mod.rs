//! Symmetric memory: the same size and layout on every rank, mutually addressable.

mod arena;
mod available;
mod backend;
mod fd_passing;
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
pub use local::LocalBackend;
pub use memfd::MemfdBackend;
pub use probe::{ProbeCarves, probe};
pub use record::{ABI_VERSION, Field, RegistrationRecord};
pub(crate) use region::describe_failures;
pub use region::{RegisterError, Registered, SymmRegion, compare_records};
