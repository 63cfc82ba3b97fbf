//! Collectives over device memory: the fallback strategies are made of them.

mod in_process;
#[cfg(feature = "mpi")]
pub mod mpi;

use thiserror::Error;

pub use in_process::InProcessCollective;

use crate::device::{DeviceBuffer, DeviceError, Stream};
use crate::group::PoisonGate;

/// A sum-all-reduce of bytes over the ranks of a group.
pub trait Collective: Send + Sync {
    /// Its name, for reports: `mpi`, `in-process`, `nccl`.
    fn name(&self) -> &'static str;

    /// Queues, on `stream`, the byte-wise sum of every rank's `buffer`, in place; exact where every byte is non-zero
    /// on one rank at most (other sums may wrap or saturate). All ranks queue the
    /// same sizes in the same order. Does nothing where `gate` is poisoned when its turn comes.
    ///
    /// # Safety
    /// `buffer` is memory this collective can address (the host's, for those of this crate), and until the sum is
    /// done nothing but earlier and later work on `stream` touches it.
    ///
    /// # Errors
    /// [`CollectiveError`].
    unsafe fn all_reduce_sum(
        &self,
        stream: &dyn Stream,
        buffer: &DeviceBuffer,
        gate: &PoisonGate,
    ) -> Result<(), CollectiveError>;
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
}
