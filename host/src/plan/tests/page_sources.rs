//! Whose memory the gathers read: stated values, and the descriptors' own count.

use proptest::prelude::*;

use super::random::{ANY, batches};
use super::{fresh, fresh_batch, pages, plan, plans, shape};
use crate::plan::{Batch, BatchPlan, PageSources, RequestPages, Strategy, descriptors, skew};

fn sources(plan: &BatchPlan) -> PageSources {
    PageSources::of(&plan.slots, Strategy::StagingFill)
}

/// Two requests over two ranks: the first has five new tokens on pages of four behind the pages 3, 5 and 4, which the
/// second shares in part, beside a padding slot.
fn two_requests() -> Batch {
    let first = RequestPages {
        prefix_tokens: 12,
        new_tokens: 5,
        prefix_pages: pages(&[3, 5, 4]),
        current_pages: pages(&[8, 9]),
    };
    let second = RequestPages { prefix_tokens: 8, prefix_pages: pages(&[3, -1]), ..RequestPages::default() };
    Batch { requests: vec![first, second, fresh(20, 4, 10)], num_pad_slots: 1 }
}

#[test]
fn pages_count_for_their_owner_as_prefix_and_for_their_writer_as_current() {
    let plan = plan(shape(2, 4, 16), &two_requests());
    let of = |strategy| PageSources::of(&plan.slots, strategy);
    // Five pages in four segments of 2, 1, 1, 1 are the ranks' 0, 1, 1, 0.
    let whole = PageSources { prefix: vec![1, 3], current: vec![4, 3] };
    for strategy in [Strategy::StagingFill, Strategy::StagingPublish, Strategy::SymmDense] {
        assert_eq!(of(strategy), whole, "{strategy}");
    }
    assert_eq!((whole.pages(), whole.egress_pages()), (vec![5, 6], vec![5, 6]));
    let compact = PageSources { prefix: vec![1, 3], current: vec![0, 0] };
    assert_eq!(of(Strategy::GatherCompact), compact);
    for strategy in [Strategy::PerSpan, Strategy::FusedAllReduce] {
        assert_eq!(of(strategy).pages(), [0, 0], "{strategy}");
    }
}

#[test]
fn what_every_gather_reads_is_sent_once_to_each_peer() {
    // 17 pages over 8 ranks: 16 segments of one page, and one of two, rank 0's.
    let sources = sources(&plan(shape(8, 64, 100), &fresh_batch(&[17 * 64], 64)));
    assert_eq!(sources.pages(), [3, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!(sources.egress_pages(), [21, 14, 14, 14, 14, 14, 14, 14]);
    let alone = PageSources { prefix: vec![4], current: vec![2] };
    assert_eq!(alone.egress_pages(), [0]);
}

#[test]
fn skew_is_one_for_even_loads_and_the_number_of_ranks_where_one_has_all() {
    assert_eq!(skew(&[7, 7, 7]), 1.0);
    assert_eq!(skew(&[3, 2, 2, 1]), 1.5);
    assert_eq!(skew(&[0, 0, 9, 0, 0]), 5.0);
    for nothing in [&[][..], &[0, 0]] {
        assert_eq!(skew(nothing), 1.0);
    }
}

#[test]
fn all_pages_on_one_owner_are_a_skew_of_the_group_size() {
    let prefix_pages = pages(&[5, 13, 21, 29]);
    let request = RequestPages { prefix_tokens: 256, prefix_pages, ..RequestPages::default() };
    let batch = Batch { requests: vec![request], num_pad_slots: 0 };
    let sources = sources(&plan(shape(8, 64, 32), &batch));
    assert_eq!(sources.pages(), [0, 0, 0, 0, 0, 4, 0, 0]);
    assert_eq!(skew(&sources.egress_pages()), 8.0);
}

/// `[group_size]` slots that the gather of `plan` reads from each rank: a pool and what is published are two bases.
fn read_by_descriptors(plan: &BatchPlan, strategy: Strategy) -> Vec<u64> {
    let num_ranks = plan.slots.shape.group_size.len();
    let mut read = vec![0; num_ranks];
    for descriptor in descriptors(plan, strategy) {
        if let Ok(base) = usize::try_from(descriptor.base) {
            read[base % num_ranks] += 1;
        }
    }
    read
}

proptest! {
    #[test]
    fn the_sums_are_what_the_descriptors_read_from_peers((shape, batch) in batches(ANY)) {
        let plans = plans(shape, &batch);
        for strategy in Strategy::ALL {
            let sources = PageSources::of(&plans[0].slots, strategy);
            let mut egress = vec![0; plans.len()];
            for plan in &plans {
                let mut read = read_by_descriptors(plan, strategy);
                read[plan.rank.idx()] = 0;
                egress.iter_mut().zip(read).for_each(|(egress, read)| *egress += read);
            }
            prop_assert_eq!(sources.egress_pages(), egress, "{}", strategy);
        }
    }

    #[test]
    fn skew_lies_between_one_and_the_number_of_loads(loads in prop::collection::vec(0..1000u64, 1..64)) {
        let skew = skew(&loads);
        prop_assert!((1.0..=loads.len() as f64 + 1e-9).contains(&skew), "{}", skew);
    }
}
