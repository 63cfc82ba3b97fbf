//! `staging_fill`, the default: rows go straight into staging; one barrier; one gather for everything.

use super::ComposeError;
use super::launch::{LayerRun, Place};
use super::staging::Published;

pub(super) fn compose(run: &mut LayerRun<'_>) -> Result<(), ComposeError> {
    fill(run)?;
    run.barrier()?;
    gather(run)
}

/// Everything before the barrier.
pub(super) fn fill(run: &mut LayerRun<'_>) -> Result<(), ComposeError> {
    for buffer in run.buffers() {
        run.fill_current(buffer, Place::Staging)?;
        run.zero_unfilled(buffer, Place::Staging)?;
    }
    Ok(())
}

/// Everything after the barrier.
pub(super) fn gather(run: &mut LayerRun<'_>) -> Result<(), ComposeError> {
    for buffer in run.buffers() {
        run.gather(buffer, Place::Dense, Some(Published::Staging))?;
    }
    Ok(())
}
