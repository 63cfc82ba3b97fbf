//! A page inverse: logical page -> destination page, for current pages.

use cpkv_kernels::abi::PAGE_NONE;

use crate::units::PageId;

/// Where each current page goes. Covers the pages from the smallest to the largest current one, so its size
/// follows how far apart they lie: at most the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageInverse {
    /// The logical page of the first entry.
    pub first_page: i32,
    /// `[largest - smallest + 1]` destinations; [`PAGE_NONE`] for a page that is not current.
    pub destinations: Vec<i32>,
}

impl PageInverse {
    /// The inverse of `pages`, sending `pages[i]` to `destination(i)`.
    pub fn build(pages: &[i32], destination: impl Fn(usize) -> i32) -> Self {
        let Some((&first_page, &last_page)) = pages.iter().min().zip(pages.iter().max()) else {
            return Self::default();
        };
        let mut destinations = vec![PAGE_NONE; (last_page - first_page) as usize + 1];
        for (i, &page) in pages.iter().enumerate() {
            destinations[(page - first_page) as usize] = destination(i);
        }
        Self { first_page, destinations }
    }

    /// Where `page` goes; `None` where it is not current.
    pub fn get(&self, page: PageId) -> Option<i32> {
        let at = usize::try_from(page.0.checked_sub(self.first_page)?).ok()?;
        self.destinations.get(at).copied().filter(|&destination| destination != PAGE_NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_lead_to_their_destination_and_others_nowhere() {
        let inverse = PageInverse::build(&[7, 3, 5], |i| i as i32 * 10);
        assert_eq!(inverse.destinations.len(), 5);
        assert_eq!([3, 4, 5, 7].map(|page| inverse.get(PageId(page))), [Some(10), None, Some(20), Some(0)]);
        assert_eq!([-1, 2, 8, i32::MIN, i32::MAX].map(|page| inverse.get(PageId(page))), [None; 5]);
        assert_eq!(PageInverse::build(&[], |_| 0).get(PageId(0)), None);
    }
}
