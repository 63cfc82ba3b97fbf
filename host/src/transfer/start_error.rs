//! Why a manager did not start.

use thiserror::Error;

use super::engine::EngineError;
use crate::device::DeviceError;

/// Why a manager did not start.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StartError {
    /// An option that is none.
    #[error("manager options: {field} is {got}, not {expected}")]
    Options {
        /// The option.
        field: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        got: u64,
    },
    /// No thread.
    #[error(
        "the system starts no transfer thread (os error {code}): raise its limit of processes, or ask for fewer threads"
    )]
    Thread {
        /// The system's code.
        code: i32,
    },
    /// No memory.
    #[error("memory for completion records: {0}")]
    Device(#[from] DeviceError),
    /// The engine did not register it.
    #[error("memory for completion records: {0}")]
    Engine(#[from] EngineError),
}
