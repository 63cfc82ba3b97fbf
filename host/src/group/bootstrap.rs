//! The bootstrap: the out-of-band exchange between the ranks, used at set-up and for agreement.

use thiserror::Error;

use crate::deadline::Deadline;
use crate::units::{GroupSize, Rank, RankSet};

/// What the ranks of a group are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Threads of one process: a peer's pointer is valid here.
    Threads,
    /// Processes of one machine.
    Processes,
}

/// The largest blob one rank may contribute to one exchange, in bytes.
pub const MAX_BLOB_BYTES: usize = 64 * 1024;

/// Small blobs, exchanged by all ranks of a group; no call waits past its deadline.
///
/// Every rank makes the same calls in the same order. `call` names the exchange in errors and is compared
/// between the ranks, so that two ranks at different calls get an error and not each other's blobs.
pub trait Bootstrap: Send + Sync {
    /// This rank.
    fn rank(&self) -> Rank;

    /// The number of ranks.
    fn group_size(&self) -> GroupSize;

    /// What the ranks are.
    fn transport(&self) -> Transport;

    /// Gives `blob` to every rank and returns everyone's, by rank. Blobs may differ in length.
    ///
    /// # Errors
    /// [`BootstrapError::Missing`] past the deadline, with the ranks that had not arrived where the means of
    /// exchange can tell; the other variants as they say.
    fn all_gather(
        &self,
        call: &'static str,
        blob: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<Vec<u8>>, BootstrapError>;

    /// Returns once every rank has entered.
    ///
    /// # Errors
    /// As [`Bootstrap::all_gather`].
    fn barrier(&self, call: &'static str, deadline: Deadline) -> Result<(), BootstrapError> {
        self.all_gather(call, &[], deadline).map(drop)
    }
}

/// Why an exchange failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// The deadline passed first.
    #[error(
        "bootstrap `{call}`: rank {rank} waited {waited_ms} ms for ranks {missing}: \
         see why they died or stopped, or raise the timeout"
    )]
    Missing {
        /// The exchange.
        call: &'static str,
        /// Who waited.
        rank: Rank,
        /// Who had not arrived; empty where the means of exchange cannot tell.
        missing: RankSet,
        /// How long, in milliseconds.
        waited_ms: u64,
    },
    /// Memory that peers have open is still held, by a captured layer or a region of the caller's.
    #[error(
        "bootstrap `{call}`: ranks {holders} still hold it, so the memory of rank {rank} stays allocated: drop captured \
         layers and regions before closing"
    )]
    StillHeld {
        /// The exchange.
        call: &'static str,
        /// Whose memory stays.
        rank: Rank,
        /// Who holds it.
        holders: RankSet,
    },
    /// Ranks met in different exchanges: their programs diverged.
    #[error(
        "bootstrap: rank {rank} is at `{call}` but rank {peer} is at `{peer_call}`: \
         every rank must make the same calls in the same order"
    )]
    Diverged {
        /// This rank's exchange.
        call: &'static str,
        /// This rank.
        rank: Rank,
        /// The first rank that is elsewhere.
        peer: Rank,
        /// Where that rank is.
        peer_call: String,
    },
    /// A blob is larger than [`MAX_BLOB_BYTES`].
    #[error("bootstrap `{call}`: a blob of {got} bytes is over the limit of {MAX_BLOB_BYTES}")]
    BlobTooLarge {
        /// The exchange.
        call: &'static str,
        /// Its size in bytes.
        got: usize,
    },
    /// The means of exchange (MPI, a caller's function) failed with a code of its own.
    #[error("bootstrap `{call}`: {function} failed on rank {rank} with code {code}")]
    Foreign {
        /// The exchange.
        call: &'static str,
        /// The foreign function.
        function: &'static str,
        /// Where.
        rank: Rank,
        /// Its code.
        code: i64,
    },
    /// Another exchange (or, with MPI, a blocking collective) of this rank held the means of exchange until the
    /// deadline.
    #[error(
        "bootstrap `{call}`: rank {rank} was still in another exchange or collective after {waited_ms} ms: \
         see what that one waits for, or raise the timeout"
    )]
    Busy {
        /// The exchange.
        call: &'static str,
        /// This rank.
        rank: Rank,
        /// How long, in milliseconds.
        waited_ms: u64,
    },
    /// The caller's function did not return one blob for each rank.
    #[error("bootstrap `{call}`: the caller's all-gather gave rank {rank} {got} blobs for {expected} ranks")]
    BlobCount {
        /// The exchange.
        call: &'static str,
        /// This rank.
        rank: Rank,
        /// The group size.
        expected: u32,
        /// How many blobs came.
        got: usize,
    },
    /// A blob is not what that rank sent: damaged, of another version, or at another rank's place.
    #[error(
        "bootstrap `{call}`: rank {rank} got a blob for rank {peer} which that rank did not send: \
         are the blobs in rank order, and do all ranks run the same version?"
    )]
    BadBlob {
        /// The exchange.
        call: &'static str,
        /// This rank.
        rank: Rank,
        /// Whose blob it should be.
        peer: Rank,
    },
}
