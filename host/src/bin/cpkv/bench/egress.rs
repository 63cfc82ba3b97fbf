//! What a compose reads from each rank. Pure.

use cpkv::model::ModelSpec;
use cpkv::plan::{BatchPlan, PageSources, Strategy};

use super::report::Egress;

/// By rank: bytes that its peers read from it with `staging_fill`, over all layers. The same whichever rank's plan it is: every
/// rank gathers all slots, its own from itself.
pub(crate) fn by_rank(plan: &BatchPlan, model: &ModelSpec) -> Vec<Egress> {
    let PageSources { prefix, current } = PageSources::of(&plan.slots, Strategy::StagingFill);
    let num_peers = prefix.len().saturating_sub(1) as u64;
    let page_bytes = num_peers * model.page_bytes_all_layers();
    let egress = prefix.into_iter().zip(current).map(|(prefix, current)| Egress {
        prefix_bytes: prefix * page_bytes,
        current_bytes: current * page_bytes,
    });
    egress.collect()
}

#[cfg(test)]
mod tests {
    use cpkv::plan::{Batch, PlanShape, RequestPages, skew};
    use cpkv::units::{GroupSize, PageId, Rank};

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
