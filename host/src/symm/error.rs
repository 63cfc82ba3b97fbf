//! Errors of registering symmetric memory.

use thiserror::Error;

use super::arena::ArenaError;
use super::backend::SymmError;
use crate::device::DeviceError;
use crate::group::BootstrapError;
use crate::units::Rank;

/// Why a region could not be registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The ranks' records differ.
    #[error("register `{region}`: rank {rank} has {field} {got}, the others have {expected}")]
    Mismatch {
        /// The region.
        region: String,
        /// The odd rank.
        rank: Rank,
        /// The first field that differs.
        field: String,
        /// The others' value.
        expected: String,
        /// The odd rank's value.
        got: String,
    },
    /// Another rank failed; this one gave up with it.
    #[error("register `{region}`: rank {rank} failed: {reason}")]
    Peer {
        /// The region.
        region: String,
        /// The rank that failed.
        rank: Rank,
        /// Its error.
        reason: String,
    },
    /// The memory of this rank.
    #[error("register `{region}`: {problem}")]
    Memory {
        /// The region.
        region: String,
        /// Why.
        problem: SymmError,
    },
    /// Device and backend deal in different memory.
    #[error(
        "register `{region}`: the device works on {device} memory, but backend `{backend}` does not share such \
         memory: take the backend that belongs to the device"
    )]
    WrongMemory {
        /// The region.
        region: String,
        /// The device's kind of memory.
        device: &'static str,
        /// The backend.
        backend: &'static str,
    },
    /// The exchange between the ranks.
    #[error("register `{region}`: {problem}")]
    Bootstrap {
        /// The region.
        region: String,
        /// Why.
        problem: BootstrapError,
    },
    /// The device, while probing.
    #[error("register `{region}`: {problem}")]
    Device {
        /// The region.
        region: String,
        /// Why.
        problem: DeviceError,
    },
    /// The layout.
    #[error(transparent)]
    Layout(#[from] ArenaError),
    /// The region's signal pad serves a group already.
    #[error(
        "register a group: the signal pad of `{region}` serves a group already: register a region of its own"
    )]
    PadTaken {
        /// The region.
        region: String,
    },
    /// A message of another rank could not be read.
    #[error("register `{region}`: rank {rank} sent a message this version cannot read")]
    Message {
        /// The region.
        region: String,
        /// The rank.
        rank: Rank,
    },
}
