//! Whose each page of the decode group is, and which free one is handed out next. Pure.

use std::collections::VecDeque;

use crate::transfer::RequestId;
use crate::units::PageId;

/// Whose a page is.
///
/// | from | call | to |
/// |---|---|---|
/// | free | [`PageStates::take`] | of a transfer |
/// | of a transfer | [`PageStates::hand_over`] | held |
/// | of a transfer | [`PageStates::free`] | free |
/// | held | [`PageStates::free`] | free |
///
/// Whether a transfer's pages are still written, or drain, is the transfer's state: all of its pages share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageState {
    Free,
    OfTransfer(RequestId),
    /// Of the caller.
    Held,
}

/// The states of pages `0..num_pages`.
#[derive(Clone, Debug)]
pub(super) struct PageStates {
    states: Vec<PageState>,
    /// Pages that were never used, in order; then freed ones, longest free first.
    free: VecDeque<PageId>,
    num_held: u32,
}

impl PageStates {
    pub(super) fn new(num_pages: u32) -> Self {
        let states = vec![PageState::Free; num_pages as usize];
        Self { states, free: (0..num_pages as i32).map(PageId).collect(), num_held: 0 }
    }

    pub(super) fn num_free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Pages of the caller.
    pub(super) const fn num_held(&self) -> u32 {
        self.num_held
    }

    /// The state of `page`, which is one of these.
    pub(super) fn state(&self, page: PageId) -> PageState {
        self.states.get(page.0 as usize).copied().unwrap_or(PageState::Free)
    }

    /// `num_pages` free pages for the transfer of `request`; `None`, and nothing taken, where there are fewer.
    pub(super) fn take(&mut self, request: RequestId, num_pages: u32) -> Option<Vec<PageId>> {
        if self.num_free() < num_pages {
            return None;
        }
        let pages: Vec<_> = self.free.drain(..num_pages as usize).collect();
        self.set(&pages, PageState::OfTransfer(request));
        Some(pages)
    }

    /// Gives a transfer's pages to the caller.
    pub(super) fn hand_over(&mut self, pages: &[PageId]) {
        self.set(pages, PageState::Held);
        self.num_held += pages.len() as u32;
    }

    /// Takes pages back: all of one transfer, or all held.
    pub(super) fn free(&mut self, pages: &[PageId]) {
        let held = pages.iter().filter(|&&page| self.state(page) == PageState::Held).count();
        self.num_held -= held as u32;
        self.set(pages, PageState::Free);
        self.free.extend(pages);
    }

    fn set(&mut self, pages: &[PageId], state: PageState) {
        for page in pages {
            if let Some(place) = self.states.get_mut(page.0 as usize) {
                *place = state;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(pages: &[PageId]) -> Vec<i32> {
        pages.iter().map(|page| page.0).collect()
    }

    #[test]
    fn fresh_pages_come_first_then_the_longest_free() {
        let mut pages = PageStates::new(5);
        let first = pages.take(RequestId(1), 3).unwrap();
        assert_eq!(ids(&first), [0, 1, 2]);
        pages.free(&[first[2], first[0]]);
        assert_eq!(ids(&pages.take(RequestId(2), 3).unwrap()), [3, 4, 2]);
        assert_eq!(ids(&pages.take(RequestId(2), 1).unwrap()), [0]);
        assert_eq!(pages.take(RequestId(2), 1), None);
    }

    #[test]
    fn states_and_counts_follow_the_calls() {
        let mut pages = PageStates::new(4);
        let taken = pages.take(RequestId(1), 2).unwrap();
        assert_eq!(pages.state(taken[0]), PageState::OfTransfer(RequestId(1)));
        pages.hand_over(&taken);
        assert_eq!((pages.state(taken[1]), pages.num_held(), pages.num_free()), (PageState::Held, 2, 2));
        pages.free(&taken[..1]);
        assert_eq!((pages.state(taken[0]), pages.num_held(), pages.num_free()), (PageState::Free, 1, 3));
    }
}
