//! The local fill: what this rank has, into an otherwise zero dense buffer. The first half of the collective
//! strategies, whose sum is then the union: every byte has exactly one producer.

use super::ComposeError;
use super::launch::{LayerRun, Place};
use crate::model::BufferId;

/// Own prefix pages (zeros elsewhere), own rows of straddling pages, own current rows.
pub(super) fn local_fill(run: &mut LayerRun<'_>, buffer: BufferId) -> Result<(), ComposeError> {
    run.gather(buffer, Place::Dense, None)?;
    run.fill_straddles(buffer)?;
    run.fill_current(buffer, Place::Dense)
}
