//! `fused_all_reduce`: the local fill, then one all-reduce of the whole dense buffer. Also the path of batches
//! that are not page-aligned.

use super::ComposeError;
use super::launch::LayerRun;
use super::local_fill::local_fill;

pub(super) fn compose(run: &mut LayerRun<'_>) -> Result<(), ComposeError> {
    for buffer in run.buffers() {
        local_fill(run, buffer)?;
        let bytes = u64::from(run.plan.slots.num_slots()) * run.pool.page_bytes(buffer);
        run.all_reduce(run.dense.get(buffer), 0, bytes)?;
    }
    Ok(())
}
