//! Which of a request's destination pages each position gets, so that neighbours stay neighbours. Pure.

use super::placement::Placement;
use crate::units::PageId;

/// Puts `pages`, one for each of the `wanted` positions, into an order in which pages that lie side by side in a prefill
/// rank's shard go side by side into a worker's. `sources[position]` is the page of a prefill group of `group_size` ranks.
pub(super) fn along(
    placement: Placement,
    group_size: u32,
    sources: &[PageId],
    pages: &mut [PageId],
    wanted: &[u32],
) {
    // In the order of their places on either side: rank by rank, worker by worker.
    let source = |idx: &usize| {
        let position = wanted.get(*idx).map_or(usize::MAX, |position| *position as usize);
        let page = sources.get(position).map_or(0, |page| page.0.max(0) as u32);
        (page % group_size.max(1), page / group_size.max(1))
    };
    let mut by_source: Vec<usize> = (0..pages.len()).collect();
    by_source.sort_by_key(source);
    let mut places = pages.to_vec();
    places.sort_by_key(|&page| placement.destination(page));
    for (idx, place) in by_source.into_iter().zip(places) {
        if let Some(page) = pages.get_mut(idx) {
            *page = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::GroupSize;

    #[test]
    fn neighbours_in_a_ranks_shard_get_neighbouring_places() {
        // Two workers of 12 pages; a group of 4 ranks whose pages 8..24 are at positions 0..16, of which 3 is cached.
        let placement = Placement::new(GroupSize::new(2).unwrap(), 24);
        let sources: Vec<PageId> = (8..24).map(PageId).collect();
        let wanted: Vec<u32> = (0..16).filter(|position| *position != 3).collect();
        let before: Vec<PageId> = (2..17).map(PageId).collect();
        let mut pages = before.clone();
        along(placement, 4, &sources, &mut pages, &wanted);
        let mut sorted = pages.clone();
        sorted.sort();
        assert_eq!(sorted, before, "the same pages");
        let mut runs = 0;
        for rank in 0..4 {
            let mut last = None;
            for (&position, &page) in wanted.iter().zip(&pages) {
                if sources[position as usize].0 % 4 == rank {
                    let place = placement.destination(page);
                    let next =
                        last.is_some_and(|(worker, idx)| (worker, idx + 1) == (place.worker, place.page_idx));
                    runs += u32::from(!next);
                    last = Some((place.worker, place.page_idx));
                }
            }
        }
        // One for each rank, and one more where the first worker's places end.
        assert!(runs <= 5, "{runs} runs");
    }
}
