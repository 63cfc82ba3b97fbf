//! Ranks as processes under `mpirun`.
//!
//! The library works on a duplicate of `MPI_COMM_WORLD`, so its messages never meet the application's, and asks
//! for `MPI_THREAD_SERIALIZED`: every MPI call of the library is made under one turn. An application that calls
//! MPI itself, from other threads, must initialise MPI with `MPI_THREAD_MULTIPLE` before this library.

mod about;
mod bootstrap;
mod error;
mod exchange;
mod leave;
mod world;

pub use about::{mpi_library_version, same_host_copy};
pub use bootstrap::MpiBootstrap;
pub use error::MpiError;
pub(crate) use error::check;
pub use leave::leave_without_finalize;
pub use world::{FINALIZE_TIMEOUT, MpiWorld};
pub(crate) use world::{LOCK_TIMEOUT, MpiTurn, in_place};
