//! A set of pages: one bit a page.

use crate::units::PageId;

/// Pages from a range fixed when it is made. Bits are 32 times smaller than a
/// [`PageInverse`](super::PageInverse) over the same range.
pub(super) struct PageSet {
    first_page: i32,
    words: Vec<u64>,
}

impl PageSet {
    /// An empty set that `pages`, none of them padding, may be put into.
    pub(super) fn for_pages(pages: &[i32]) -> Self {
        let Some((&first_page, &last_page)) = pages.iter().min().zip(pages.iter().max()) else {
            return Self { first_page: 0, words: Vec::new() };
        };
        Self { first_page, words: vec![0; (last_page - first_page) as usize / 64 + 1] }
    }

    /// Adds a page; `false` where it is in the set already.
    pub(super) fn insert(&mut self, page: PageId) -> bool {
        let Some((word, bit)) = self.place(page) else { return false };
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        is_new
    }

    /// Whether the set holds `page`.
    pub(super) fn contains(&self, page: PageId) -> bool {
        self.place(page).is_some_and(|(word, bit)| self.words[word] & bit != 0)
    }

    /// The page's word and its bit there; `None` outside the range.
    fn place(&self, page: PageId) -> Option<(usize, u64)> {
        let idx = usize::try_from(page.0.checked_sub(self.first_page)?).ok()?;
        (idx / 64 < self.words.len()).then(|| (idx / 64, 1 << (idx % 64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_new_once_and_pages_outside_the_range_are_never_in() {
        let mut set = PageSet::for_pages(&[70, 3, 67]);
        assert_eq!([70, 3, 70, 67].map(|page| set.insert(PageId(page))), [true, true, false, true]);
        assert_eq!(
            [3, 4, 66, 67, 70].map(|page| set.contains(PageId(page))),
            [true, false, false, true, true]
        );
        assert_eq!([-1, 2, 131, i32::MIN, i32::MAX].map(|page| set.contains(PageId(page))), [false; 5]);
        assert!(!PageSet::for_pages(&[]).contains(PageId(0)));
    }
}
