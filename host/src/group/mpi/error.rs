//! Errors of MPI.

use std::ffi::c_int;

use mpi::ffi;
use thiserror::Error;

use crate::error::UnitError;

/// Why MPI could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MpiError {
    /// An MPI function returned an error code.
    #[error("MPI: {function} failed with code {code}")]
    Call {
        /// The function.
        function: &'static str,
        /// Its code.
        code: i32,
    },
    /// MPI was finalised in this process: it cannot be initialised twice.
    #[error("MPI: already finalised in this process; keep the world as long as MPI is needed")]
    Finalized,
    /// MPI gives fewer threads than the library needs.
    #[error("MPI: thread support is {provided}, but the library needs at least MPI_THREAD_SERIALIZED")]
    Threads {
        /// What MPI gives.
        provided: &'static str,
    },
    /// The world is no group.
    #[error("MPI: {source}")]
    Size {
        /// Why.
        source: UnitError,
    },
    /// The ranks do not share one machine's memory.
    #[error("MPI: only {num_local} of {num_ranks} ranks are on this machine: start all of them on one")]
    SeveralMachines {
        /// Ranks on this machine.
        num_local: u32,
        /// Ranks of the world.
        num_ranks: u32,
    },
    /// Another MPI call of this process lasted too long.
    #[error("MPI: another call was still running after {waited_ms} ms")]
    Busy {
        /// How long, in milliseconds.
        waited_ms: u64,
    },
    /// Counts and offsets that do not fit the buffers.
    #[error("MPI: {function}: counts and offsets do not fit a group of {num_ranks} and {buffer_bytes} bytes")]
    Layout {
        /// The function.
        function: &'static str,
        /// Ranks of the world.
        num_ranks: u32,
        /// Size of the buffer that is too small, in bytes.
        buffer_bytes: usize,
    },
}

/// An error for a code that is not `MPI_SUCCESS`.
pub(crate) fn check(function: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(MpiError::Call { function, code }) }
}
