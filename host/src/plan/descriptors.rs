//! The gather's descriptors: for every dense slot, whose page to copy.

use cpkv_kernels::abi::{BASE_KEEP, BASE_ZERO, Descriptor};

use super::{BatchPlan, Strategy};
use crate::units::PageId;

/// `[num_slots]` descriptors of `strategy`'s gather. Bases `0..R` are the ranks' pools, `R..2R` what the ranks
/// publish: their stagings, or for `symm_dense` their dense buffers.
///
/// | slot | collective strategies (local fill) | `gather_compact` | `symm_dense` | `staging_publish` | `staging_fill` |
/// |---|---|---|---|---|---|
/// | prefix | own pool, else zero | owner's pool | owner's pool | owner's pool | owner's pool |
/// | current, own | zero | zero | keep | keep | own staging |
/// | current, a peer's | zero | zero | peer's dense, same slot | peer's staging | peer's staging |
/// | padding | zero | zero | zero | zero | zero |
pub fn descriptors(plan: &BatchPlan, strategy: Strategy) -> Vec<Descriptor> {
    let slots = &plan.slots;
    let local_only = !strategy.needs_peer_access();
    let mut table: Vec<_> = slots.pages.iter().map(|&page| prefix(plan, page, local_only)).collect();
    let group_size = slots.shape.group_size.get();
    for (i, (&slot, &writer)) in slots.current_slots.iter().zip(&slots.writers).enumerate() {
        let published = |page| Descriptor { base: (group_size + writer.0) as i32, page };
        let is_own = writer == plan.rank;
        table[slot as usize] = match strategy {
            Strategy::PerSpan | Strategy::FusedAllReduce | Strategy::GatherCompact => ZERO,
            Strategy::SymmDense | Strategy::StagingPublish if is_own => KEEP,
            Strategy::SymmDense => published(slot),
            Strategy::StagingPublish | Strategy::StagingFill => published(i as i32),
        };
    }
    table
}

const ZERO: Descriptor = Descriptor { base: BASE_ZERO, page: 0 };
const KEEP: Descriptor = Descriptor { base: BASE_KEEP, page: 0 };

/// The descriptor of a page in its owner's pool.
fn prefix(plan: &BatchPlan, page: PageId, local_only: bool) -> Descriptor {
    if page.is_pad() {
        return ZERO;
    }
    let ownership = plan.slots.ownership();
    let owner = ownership.owner(page);
    if local_only && owner != plan.rank {
        return ZERO;
    }
    Descriptor { base: owner.0 as i32, page: ownership.shard_idx(page) }
}
