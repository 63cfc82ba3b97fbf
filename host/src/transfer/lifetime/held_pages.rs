//! Pages that transfers read: not free, whoever else is done with them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::transfer::RequestId;
use crate::units::PageId;

/// The pages that transfers of requests read. A page may be held by several requests: a shared prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldPages {
    requests: BTreeMap<RequestId, Held>,
    /// How many requests hold the page; never 0.
    num_holders: BTreeMap<PageId, u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    /// In the order in which they were first named.
    pages: Vec<PageId>,
    quarantined: bool,
}

impl HeldPages {
    /// Holds `pages` for `request`, beside those that it holds already. Padding is no page.
    pub fn hold(&mut self, request: RequestId, pages: &[PageId]) {
        let held = self.requests.entry(request).or_default();
        let mut known: BTreeSet<_> = held.pages.iter().copied().collect();
        for &page in pages.iter().filter(|page| !page.is_pad()) {
            if known.insert(page) {
                held.pages.push(page);
                *self.num_holders.entry(page).or_default() += 1;
            }
        }
    }

    /// Ends `request`, which no rank sends any more: the pages that nobody holds now, in the order in which it held them.
    /// None for a request that holds nothing.
    pub fn release(&mut self, request: RequestId) -> Vec<PageId> {
        let held = self.requests.remove(&request).unwrap_or_default();
        held.pages.into_iter().filter(|&page| self.let_go(page)).collect()
    }

    /// Whether `page` is held by a request. Such a page is not to be written, freed or evicted.
    pub fn is_held(&self, page: PageId) -> bool {
        self.num_holders.contains_key(&page)
    }

    /// Pages that are held.
    pub fn num_held(&self) -> usize {
        self.num_holders.len()
    }

    /// Marks `request` as one whose end could not be confirmed: its pages stay held, and are listed, until it is released.
    /// Nothing for a request that holds nothing.
    pub fn quarantine(&mut self, request: RequestId) {
        if let Some(held) = self.requests.get_mut(&request) {
            held.quarantined = true;
        }
    }

    /// The requests that are quarantined, ascending, with their pages in the order in which they were held.
    pub fn quarantined(&self) -> impl Iterator<Item = (RequestId, &[PageId])> {
        let quarantined = self.requests.iter().filter(|(_, held)| held.quarantined);
        quarantined.map(|(&request, held)| (request, held.pages.as_slice()))
    }

    /// Ends one holder's claim to `page`; says whether it was the last.
    fn let_go(&mut self, page: PageId) -> bool {
        let Some(num_holders) = self.num_holders.get_mut(&page) else { return false };
        *num_holders -= 1;
        let last = *num_holders == 0;
        if last {
            self.num_holders.remove(&page);
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn pages(ids: impl IntoIterator<Item = i32>) -> Vec<PageId> {
        ids.into_iter().map(PageId).collect()
    }

    #[test]
    fn a_shared_page_is_free_when_its_last_request_is() {
        let mut held = HeldPages::default();
        held.hold(RequestId(1), &pages([4, 5, 9]));
        held.hold(RequestId(2), &pages([4, 5, 2]));
        assert_eq!(held.release(RequestId(1)), pages([9]));
        assert!(held.is_held(PageId(4)) && !held.is_held(PageId(9)));
        assert_eq!(held.release(RequestId(1)), []);
        assert_eq!(held.release(RequestId(2)), pages([4, 5, 2]));
        assert_eq!(held, HeldPages::default());
    }

    #[test]
    fn chunks_add_pages_and_naming_one_again_or_padding_adds_none() {
        let mut held = HeldPages::default();
        held.hold(RequestId(1), &pages([7, -1, 7, 3]));
        held.hold(RequestId(1), &pages([3, 8, 7]));
        assert_eq!(held.num_held(), 3);
        assert!(!held.is_held(PageId::PAD));
        assert_eq!(held.release(RequestId(1)), pages([7, 3, 8]));
    }

    #[test]
    fn quarantined_requests_are_listed_and_keep_their_pages() {
        let mut held = HeldPages::default();
        held.hold(RequestId(6), &pages([3, 1]));
        held.hold(RequestId(5), &pages([2]));
        held.quarantine(RequestId(6));
        held.quarantine(RequestId(8));
        let expected = pages([3, 1]);
        assert!(held.quarantined().eq([(RequestId(6), expected.as_slice())]));
        assert!(held.is_held(PageId(1)));
        assert_eq!(held.release(RequestId(6)), expected);
        assert_eq!(held.quarantined().count(), 0);
    }

    proptest! {
        #[test]
        fn exactly_the_pages_of_live_requests_are_held(
            calls in vec((0..4_u64, vec(-1..10_i32, 0..5), any::<bool>()), 0..40),
        ) {
            let mut held = HeldPages::default();
            let mut model: BTreeMap<u64, BTreeSet<i32>> = BTreeMap::new();
            for (request, ids, is_release) in calls {
                let live = |model: &BTreeMap<u64, BTreeSet<i32>>| -> BTreeSet<i32> {
                    model.values().flatten().copied().collect()
                };
                if is_release {
                    let before = live(&model);
                    model.remove(&request);
                    let freed: BTreeSet<_> = held.release(RequestId(request)).iter().map(|page| page.0).collect();
                    prop_assert_eq!(freed, before.difference(&live(&model)).copied().collect());
                } else {
                    held.hold(RequestId(request), &pages(ids.clone()));
                    model.entry(request).or_default().extend(ids.into_iter().filter(|&id| id >= 0));
                }
                let expected = live(&model);
                prop_assert!((0..10).all(|id| held.is_held(PageId(id)) == expected.contains(&id)));
                prop_assert_eq!(held.num_held(), expected.len());
            }
        }
    }
}
