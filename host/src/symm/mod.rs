//! Symmetric memory.
mod arena;
mod backend;
mod record;
mod region;
pub use arena::{ArenaError, ArenaLayout, Carve, GUARD_BYTE, GUARD_BYTES};
pub use backend::{Export, Mapping, SharedBackend, SymmBackend, SymmError};
pub use record::{ABI_VERSION, Field, RegistrationRecord};
pub use region::{RegisterError, Registered, SymmRegion};
