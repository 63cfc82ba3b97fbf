//! Collectives over device memory: the fallback strategies are made of them.

mod in_process;
mod in_process_device;
#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(feature = "cuda")]
pub mod nccl;
mod staged;

use thiserror::Error;

pub use in_process::InProcessCollective;
pub use in_process_device::DeviceCollective;
#[cfg(feature = "cuda")]
pub use nccl::NcclCollective;
pub use staged::{HostReduce, StagedCollective};

use crate::device::{DeviceBuffer, DeviceError, Stream};
use crate::group::PoisonGate;
use crate::units::Rank;

/// A sum-all-reduce of bytes over the ranks of a group.
pub trait Collective: Send + Sync {
    /// Its name, for reports: `mpi`, `in-process`, `nccl`.
    fn name(&self) -> &'static str;

    /// Queues, on `stream`, the byte-wise sum of every rank's `buffer`, in place; exact where every byte is non-zero
    /// on one rank at most (other sums may wrap or saturate). All ranks queue the
    /// same sizes in the same order. Does nothing where `gate` is poisoned when its turn comes.
    ///
    /// # Safety
    /// `buffer` is memory of the kind this collective was made for, and until the sum is done nothing but earlier and
    /// later work on `stream` touches it.
    ///
    /// # Errors
    /// [`CollectiveError`].
    unsafe fn all_reduce_sum(
        &self,
        stream: &dyn Stream,
        buffer: &DeviceBuffer,
        gate: &PoisonGate,
    ) -> Result<(), CollectiveError>;

    /// Ends sums that wait on a device for ranks which do not come, where this can: called by a host that gave up
    /// waiting, after the group was poisoned. Nothing can be summed afterwards. What is queued behind those sums runs,
    /// over bytes that were not summed, unless it looks at the poison. The default has nothing that waits on a device.
    fn abort(&self) {}
}

impl CollectiveError {
    /// The error as one of the stream of `rank`.
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "only other errors need it"))]
    pub(crate) fn on_stream(self, rank: Rank) -> DeviceError {
        match self {
            Self::Stream { source, .. } => source,
            #[cfg(feature = "cuda")]
            problem @ Self::Nccl { .. } => {
                DeviceError::Collective { rank: rank.0, reason: problem.to_string().into() }
            }
        }
    }
}

/// Why a collective failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// The stream refused the work.
    #[error("all-reduce of {bytes} bytes: {source}")]
    Stream {
        /// Size of the buffer.
        bytes: u64,
        /// The stream's error.
        source: DeviceError,
    },
    /// NCCL failed.
    #[cfg(feature = "cuda")]
    #[error("all-reduce of {bytes} bytes: {source}")]
    Nccl {
        /// Size of the buffer.
        bytes: u64,
        /// NCCL's error.
        source: nccl::NcclError,
    },
}
