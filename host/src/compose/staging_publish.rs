//! `staging_publish`: own pages go into the dense buffer and are copied to staging; peers gather them from there.

use super::ComposeError;
use super::launch::{LayerRun, Place};
use super::staging::Published;

pub(super) fn compose(run: &mut LayerRun<'_>) -> Result<(), ComposeError> {
    let buffers = run.buffers();
    for &buffer in &buffers {
        run.fill_current(buffer, Place::Dense)?;
        run.zero_unfilled(buffer, Place::Dense)?;
        run.publish(buffer)?;
    }
    run.barrier()?;
    for &buffer in &buffers {
        run.gather(buffer, Place::Dense, Some(Published::Staging))?;
    }
    Ok(())
}
