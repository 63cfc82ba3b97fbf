//! `staging_fill`, the default: rows go straight into staging; one barrier; one gather for everything.

use super::ComposeError;
use super::launch::{LayerRun, Place};
use super::staging::Published;

pub(super) fn compose(run: &mut LayerRun<'_>) -> Result<(), ComposeError> {
    fill(run)?;
    run.barrier()?;
    for buffer in run.buffers() {
        run.gather(buffer, Place::Dense, Some(Published::Staging))?;
    }
    Ok(())
}

/// The same launches without the barrier: a yardstick whose bytes nobody may read, as fills and gathers race.
pub(super) fn run_without_barrier(run: &mut LayerRun<'_>) -> Result<(), ComposeError> {
    fill(run)?;
    for buffer in run.buffers() {
        run.gather_unsynchronised(buffer, Place::Dense, Some(Published::Staging))?;
    }
    Ok(())
}

/// Everything before the barrier.
fn fill(run: &mut LayerRun<'_>) -> Result<(), ComposeError> {
    for buffer in run.buffers() {
        run.fill_current(buffer, Place::Staging)?;
        run.zero_unfilled(buffer, Place::Staging)?;
    }
    Ok(())
}
