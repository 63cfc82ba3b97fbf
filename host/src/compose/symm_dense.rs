//! `symm_dense`: own pages go straight into the own, symmetric, dense buffer; peers gather them from there.

use super::ComposeError;
use super::launch::{LayerRun, Place};
use super::staging::Published;

pub(super) fn compose(run: &mut LayerRun<'_>) -> Result<(), ComposeError> {
    let buffers = run.buffers();
    for &buffer in &buffers {
        run.fill_current(buffer, Place::SymmDense)?;
        run.zero_unfilled(buffer, Place::SymmDense)?;
    }
    run.barrier()?;
    for &buffer in &buffers {
        run.gather(buffer, Place::SymmDense, Some(Published::Dense))?;
    }
    Ok(())
}
