//! Persist: after the gather, the owner of each current page copies it into its shard.

use super::ComposeError;
use super::launch::{LayerRun, Place};
use crate::plan::Strategy;

/// Persists the layer that `strategy` has just composed.
pub(super) fn persist(run: &mut LayerRun<'_>, strategy: Strategy) -> Result<(), ComposeError> {
    let place = dense_place(strategy);
    for buffer in run.buffers() {
        run.persist(buffer, place)?;
    }
    Ok(())
}

/// Where `strategy` leaves the dense buffer.
pub(super) const fn dense_place(strategy: Strategy) -> Place {
    match strategy {
        Strategy::SymmDense => Place::SymmDense,
        _ => Place::Dense,
    }
}
