//! The bootstrap over MPI.

use std::fmt;
use std::sync::{Arc, PoisonError};

use super::exchange::all_gather;
use super::world::MpiWorld;
use crate::deadline::Deadline;
use crate::group::bootstrap::{Bootstrap, BootstrapError, MAX_BLOB_BYTES, Transport};
use crate::group::frame::Position;
use crate::units::{GroupSize, Rank};

/// The bootstrap of a process under `mpirun`.
///
/// MPI's own collectives wait without end; this exchanges point to point and polls, so that an exchange ends at
/// its deadline and names the ranks it has not heard of. The first failure is final, for all bootstraps of the world:
/// messages of a broken exchange may still be on their way, and would be taken for the next one's.
#[derive(Clone)]
pub struct MpiBootstrap {
    world: Arc<MpiWorld>,
}

impl MpiBootstrap {
    /// The bootstrap of the processes of `world`. All bootstraps of one world share its sequence of exchanges.
    pub fn new(world: Arc<MpiWorld>) -> Self {
        Self { world }
    }
}

impl Bootstrap for MpiBootstrap {
    fn rank(&self) -> Rank {
        self.world.rank()
    }

    fn group_size(&self) -> GroupSize {
        self.world.size()
    }

    fn transport(&self) -> Transport {
        Transport::Processes
    }

    fn all_gather(
        &self,
        call: &'static str,
        blob: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<Vec<u8>>, BootstrapError> {
        if blob.len() > MAX_BLOB_BYTES {
            return Err(BootstrapError::BlobTooLarge { call, got: blob.len() });
        }
        let (rank, exchanges) = (self.rank(), &self.world.exchanges);
        let Some(_turn) = exchanges.turn.take(deadline) else {
            return Err(BootstrapError::Busy { call, rank, waited_ms: deadline.waited_ms() });
        };
        // Uncontended: only the holder of the turn locks it.
        let mut progress = exchanges.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &progress.failed {
            return Err(error.clone());
        }
        let position = Position { call, rank, sequence: progress.num_exchanges };
        progress.num_exchanges += 1;
        let frames = all_gather(&self.world, position, position.encode(blob), deadline);
        let blobs = frames.and_then(|frames| {
            let by_rank = self.group_size().ranks().zip(&frames);
            by_rank.map(|(peer, frame)| Ok(position.decode(peer, frame)?.to_vec())).collect()
        });
        if let Err(error) = &blobs {
            progress.failed = Some(error.clone());
            self.world.mark_failed();
        }
        blobs
    }
}

impl fmt::Debug for MpiBootstrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MpiBootstrap(rank {} of {})", self.rank(), self.group_size())
    }
}
