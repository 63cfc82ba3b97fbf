//! `per_span`: one all-reduce for each request span and buffer.

use super::ComposeError;
use super::launch::LayerRun;
use super::local_fill::local_fill;

pub(super) fn compose(run: &mut LayerRun<'_>) -> Result<(), ComposeError> {
    for buffer in run.buffers() {
        local_fill(run, buffer)?;
        let (dense, page_bytes) = (run.dense.get(buffer), run.pool.page_bytes(buffer));
        for span in &run.plan.slots.spans {
            let offset = u64::from(span.slots.start) * page_bytes;
            run.all_reduce(dense, offset, span.slots.len() as u64 * page_bytes)?;
        }
    }
    Ok(())
}
