//! What a compose reads from each rank. Pure.

use cpkv::model::ModelSpec;
use cpkv::plan::{BatchPlan, Strategy, descriptors};

use super::report::Egress;

/// By rank: bytes that its peers read from it with `staging_fill`, over all layers. The same whichever rank's plan it is: every
/// rank gathers all slots, its own from itself.
pub(crate) fn by_rank(plan: &BatchPlan, model: &ModelSpec) -> Vec<Egress> {
    let group_size = plan.slots.shape.group_size;
    let mut num_pages = vec![(0u64, 0u64); group_size.len()];
    for descriptor in descriptors(plan, Strategy::StagingFill) {
        // Padding has a base below 0.
        let Ok(base) = usize::try_from(descriptor.base) else { continue };
        let is_current = base >= group_size.len();
        let Some(pages) = num_pages.get_mut(base % group_size.len()) else { continue };
        if is_current {
            pages.1 += 1;
        } else {
            pages.0 += 1;
        }
    }
    let num_peers = u64::from(group_size.get()) - 1;
    let page_bytes = num_peers * model.page_bytes_all_layers();
    let egress = num_pages.into_iter().map(|(prefix, current)| Egress {
        prefix_bytes: prefix * page_bytes,
        current_bytes: current * page_bytes,
    });
    egress.collect()
}

#[cfg(test)]
mod tests {
    use cpkv::plan::{Batch, PlanShape, RequestPages};
    use cpkv::units::{GroupSize, PageId, Rank};

    use super::super::figures::skew;
    use super::*;

    /// Two ranks, pages of 4 tokens; prefix pages 0, 2, 4 are all rank 0's, the two current pages one each.
    #[test]
    fn prefix_pages_count_for_their_owner_and_current_pages_for_their_writer() {
        let model = ModelSpec::preset("tiny").unwrap();
        let shape = PlanShape { group_size: GroupSize::new(2).unwrap(), page_size: 4, num_logical_pages: 16 };
        let pages = |ids: &[i32]| ids.iter().copied().map(PageId).collect::<Vec<_>>();
        let request = RequestPages {
            prefix_tokens: 12,
            new_tokens: 8,
            prefix_pages: pages(&[0, 2, 4]),
            current_pages: pages(&[6, 8]),
        };
        let batch = Batch { requests: vec![request], num_pad_slots: 3 };
        let page_bytes = model.page_bytes_all_layers();
        for rank in [0, 1] {
            let plan = BatchPlan::build(shape, Rank(rank), &batch).unwrap();
            let egress = by_rank(&plan, &model);
            let expected = [(3, 1), (0, 1)].map(|(prefix, current)| Egress {
                prefix_bytes: prefix * page_bytes,
                current_bytes: current * page_bytes,
            });
            assert_eq!(egress, expected);
            let totals: Vec<_> =
                egress.iter().map(|egress| egress.prefix_bytes + egress.current_bytes).collect();
            assert_eq!(skew(&totals), 1.6);
        }
    }
}
