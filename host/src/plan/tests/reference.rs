//! The plan's definition, token by token and with counters only: slow, serial, and without the plan's formulas.

use crate::plan::{Batch, PlanShape};
use crate::units::{PageId, Rank};

/// A page of the batch that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) idx: u32,
    pub(super) writer: Rank,
    /// Which of its request's segments it belongs to.
    pub(super) segment: u32,
    /// Where its first rows come from, if they are prefix.
    pub(super) original: Option<PageId>,
}

/// A dense slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// None behind the last request.
    pub(super) request: Option<u32>,
    pub(super) page: PageId,
    pub(super) current: Option<Current>,
    /// By row: whether a new token lives there.
    pub(super) new_rows: Vec<bool>,
    /// Rows that hold prefix tokens, for a slot that is current.
    pub(super) num_prefix_rows: u32,
}

/// A new token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) request: usize,
    pub(super) position: u32,
    pub(super) slot: u32,
    pub(super) row: u32,
    pub(super) page: PageId,
    pub(super) current: Current,
}

/// A batch laid out.
pub(super) struct Reference {
    pub(super) slots: Vec<Slot>,
    /// The new tokens, request by request, in sequence order.
    pub(super) tokens: Vec<Token>,
    /// Dense row of every token, prefix included, by request and position.
    pub(super) rows: Vec<Vec<u32>>,
}

impl Reference {
    pub(super) fn new(shape: PlanShape, batch: &Batch) -> Self {
        let mut layout = Self { slots: Vec::new(), tokens: Vec::new(), rows: Vec::new() };
        let mut num_current = 0;
        for request in 0..batch.requests.len() {
            layout.push_request(shape, batch, request, &mut num_current);
        }
        for _ in 0..batch.num_pad_slots {
            layout.slots.push(empty_slot(shape, None, PageId::PAD));
        }
        layout
    }

    fn push_request(&mut self, shape: PlanShape, batch: &Batch, request: usize, num_current: &mut u32) {
        let pages = &batch.requests[request];
        let writers = writers(pages.current_pages.len(), shape.group_size.get());
        let (mut prefix, mut current) = (pages.prefix_pages.iter(), pages.current_pages.iter().zip(writers));
        let mut rows = Vec::new();
        for position in 0..pages.prefix_tokens + pages.new_tokens {
            let is_new = position >= pages.prefix_tokens;
            let row = position % shape.page_size;
            if row == 0 {
                let ends_here = pages.prefix_tokens < position + shape.page_size;
                let slot = if is_new || (ends_here && pages.new_tokens > 0) {
                    let (&page, (segment, writer)) = current.next().unwrap();
                    let original = prefix.next().copied();
                    let mut slot = empty_slot(shape, Some(request as u32), page);
                    slot.current = Some(Current { idx: *num_current, writer, segment, original });
                    *num_current += 1;
                    slot
                } else {
                    empty_slot(shape, Some(request as u32), *prefix.next().unwrap())
                };
                self.slots.push(slot);
            }
            let slot_idx = self.slots.len() as u32 - 1;
            rows.push(slot_idx * shape.page_size + row);
            let slot = self.slots.last_mut().unwrap();
            match slot.current {
                Some(current) if is_new => {
                    slot.new_rows[row as usize] = true;
                    let page = slot.page;
                    self.tokens.push(Token { request, position, slot: slot_idx, row, page, current });
                }
                Some(_) => slot.num_prefix_rows += 1,
                None => {}
            }
        }
        assert!(prefix.next().is_none() && current.next().is_none(), "a page holds no token");
        self.rows.push(rows);
    }

    /// The tokens `rank` computes, in the order of its rows.
    pub(super) fn tokens_of(&self, rank: Rank) -> impl Iterator<Item = &Token> {
        self.tokens.iter().filter(move |token| token.current.writer == rank)
    }

    /// The current slots with their positions, in slot order.
    pub(super) fn current(&self) -> impl Iterator<Item = (u32, &Slot, Current)> {
        self.slots.iter().zip(0..).filter_map(|(slot, idx)| Some((idx, slot, slot.current?)))
    }
}

fn empty_slot(shape: PlanShape, request: Option<u32>, page: PageId) -> Slot {
    let new_rows = vec![false; shape.page_size as usize];
    Slot { request, page, current: None, new_rows, num_prefix_rows: 0 }
}

/// Each page's segment and who computes it: pages are counted out to `2R` segments in turn, then the segments laid end
/// to end and given to the ranks forth and back.
fn writers(num_pages: usize, num_ranks: u32) -> Vec<(u32, Rank)> {
    let forth_and_back: Vec<u32> = (0..num_ranks).chain((0..num_ranks).rev()).collect();
    let mut lengths = vec![0; forth_and_back.len()];
    for page in 0..num_pages {
        lengths[page % forth_and_back.len()] += 1;
    }
    let segments = (0..).zip(&forth_and_back).zip(lengths);
    segments
        .flat_map(|((segment, &rank), length)| std::iter::repeat_n((segment, Rank(rank)), length))
        .collect()
}
