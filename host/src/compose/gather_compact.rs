//! `gather_compact`: one gather of all prefix slots (which also zeroes the others), then one all-reduce over the
//! current pages of all buffers, packed together.
//!
//! Prefix pages are read before the layer's collective. With two layers or more the collective of another layer
//! lies between an owner's persist and a peer's read. With one layer, or without current pages (and so without
//! collectives), nothing does, so the batch is enclosed in barriers: see [`needs_enclosing_barriers`].

use super::ComposeError;
use super::launch::{LayerRun, Place};

pub(super) fn compose(run: &mut LayerRun<'_>) -> Result<(), ComposeError> {
    let buffers = run.buffers();
    for &buffer in &buffers {
        run.gather(buffer, Place::Dense, None)?;
    }
    run.zero_packed()?;
    for &buffer in &buffers {
        run.fill_current(buffer, Place::Packed)?;
    }
    if let Some(packed) = run.packed {
        let part = run.packed_part();
        run.all_reduce(packed, part.offset, part.bytes)?;
    }
    for &buffer in &buffers {
        run.unpack(buffer)?;
    }
    Ok(())
}

/// Whether a batch needs a barrier before its first read and after its last persist.
pub(super) const fn needs_enclosing_barriers(num_layers: usize, num_current_pages: u32) -> bool {
    num_layers == 1 || num_current_pages == 0
}
