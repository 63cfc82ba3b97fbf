//! A symbolic machine: every rank's memory as rows that say what they are, driven by nothing but plan tables.

use cpkv_kernels::abi::{BASE_KEEP, BASE_ZERO, Descriptor};

use super::reference::{Reference, Token};
use crate::pages::{BufferKind, BufferSpec};
use crate::plan::{BatchPlan, PartialPage, zero_ranges};
use crate::units::PageId;

/// What a row of memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Zero,
    /// What memory held before: must not reach anybody.
    Poison,
    /// Row of a page as an earlier batch left it.
    Old(i32, u32),
    /// Row of a page that this batch computes.
    New(i32, u32),
}

impl Cell {
    /// The byte sum of two rows, which is exact where one of them is zero.
    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Zero, cell) | (cell, Self::Zero) => cell,
            _ => panic!("two producers: {self:?} and {other:?}"),
        }
    }
}

/// Pages of rows.
pub(super) type Memory = Vec<Cell>;

/// One rank.
pub(super) struct Node {
    pub(super) plan: BatchPlan,
    inputs: Memory,
    pub(super) pool: Memory,
    pub(super) dense: Memory,
    pub(super) staging: Memory,
    page_size: usize,
}

impl Node {
    /// A rank before the batch: pool full of old pages, everything else poison.
    pub(super) fn new(plan: BatchPlan, reference: &Reference) -> Self {
        let (shape, rank) = (plan.slots.shape, plan.rank);
        let page_size = shape.page_size;
        let rows = |num_pages: u32| (num_pages * page_size) as usize;
        let owned = (0..shape.num_logical_pages).filter(|page| page % shape.group_size.get() == rank.0);
        let pool = owned.flat_map(|page| (0..page_size).map(move |row| Cell::Old(page as i32, row)));
        let input = |token: &Token| Cell::New(token.page.0, token.row);
        Self {
            inputs: reference.tokens_of(rank).map(input).collect(),
            pool: pool.collect(),
            dense: vec![Cell::Poison; rows(plan.slots.num_slots())],
            staging: vec![Cell::Poison; rows(plan.slots.num_current())],
            page_size: page_size as usize,
            plan,
        }
    }

    pub(super) fn fill_dense(&mut self) {
        for (&row, &cell) in self.plan.rows.dense_rows.iter().zip(&self.inputs) {
            self.dense[row as usize] = cell;
        }
    }

    pub(super) fn fill_staging(&mut self) {
        for (&row, &cell) in self.plan.rows.staging_rows.iter().zip(&self.inputs) {
            self.staging[row as usize] = cell;
        }
    }

    pub(super) fn zero_unfilled_dense(&mut self) {
        for row in self.unfilled(|page| page.dense_slot) {
            self.dense[row] = Cell::Zero;
        }
    }

    pub(super) fn zero_unfilled_staging(&mut self) {
        for row in self.unfilled(|page| page.staging_slot) {
            self.staging[row] = Cell::Zero;
        }
    }

    /// The rows that the byte ranges to zero cover, where a row has 16 bytes.
    fn unfilled(&self, slot_of: impl Fn(&PartialPage) -> u32) -> Vec<usize> {
        let spec = BufferSpec::new(BufferKind::TokenKv { row_bytes: 16 }, self.page_size as u32).unwrap();
        let ranges = zero_ranges(spec, &self.plan.rows.partial_pages, slot_of);
        ranges
            .iter()
            .flat_map(|range| range.offset / 16..(range.offset + range.bytes) / 16)
            .map(|row| row as usize)
            .collect()
    }

    /// Copies the prefix rows of straddling pages whose original lies in this rank's shard.
    pub(super) fn fill_straddles(&mut self) {
        let ownership = self.plan.slots.ownership();
        for straddle in &self.plan.slots.straddles {
            if ownership.owner(straddle.original) == self.plan.rank {
                let src = ownership.shard_idx(straddle.original) as usize * self.page_size;
                let dst = straddle.slot as usize * self.page_size;
                let num_rows = straddle.num_prefix_rows as usize;
                self.dense[dst..dst + num_rows].copy_from_slice(&self.pool[src..src + num_rows]);
            }
        }
    }

    /// Copies own pages from the dense buffer to staging.
    pub(super) fn publish(&mut self) {
        let inverse = self.plan.slots.staging_inverse();
        for &i in &self.plan.rows.current_idx {
            let page = PageId(self.plan.slots.current_pages[i as usize]);
            let src = self.plan.slots.current_slots[i as usize] as usize * self.page_size;
            let dst = inverse.get(page).unwrap() as usize * self.page_size;
            self.staging[dst..dst + self.page_size].copy_from_slice(&self.dense[src..src + self.page_size]);
        }
    }

    /// Copies the current pages, packed in `packed`, to their dense slots.
    pub(super) fn unpack(&mut self, packed: &Memory) {
        let inverse = self.plan.slots.dense_inverse();
        for (&page, rows) in self.plan.slots.current_pages.iter().zip(packed.chunks_exact(self.page_size)) {
            let dst = inverse.get(PageId(page)).unwrap() as usize * self.page_size;
            self.dense[dst..dst + self.page_size].copy_from_slice(rows);
        }
    }

    /// Copies the current pages this rank owns to its shard.
    pub(super) fn persist(&mut self) {
        let ownership = self.plan.slots.ownership();
        for (&page, &slot) in self.plan.slots.current_pages.iter().zip(&self.plan.slots.current_slots) {
            if ownership.owner(PageId(page)) == self.plan.rank {
                let src = slot as usize * self.page_size;
                let dst = ownership.shard_idx(PageId(page)) as usize * self.page_size;
                self.pool[dst..dst + self.page_size].copy_from_slice(&self.dense[src..src + self.page_size]);
            }
        }
    }

    /// Gathers every slot; `bases` are what the barrier made visible.
    pub(super) fn gather(&mut self, table: &[Descriptor], bases: &[&Memory]) {
        for (descriptor, slot) in table.iter().zip(self.dense.chunks_exact_mut(self.page_size)) {
            match descriptor.base {
                BASE_KEEP => {}
                BASE_ZERO => slot.fill(Cell::Zero),
                base => {
                    let src = descriptor.page as usize * self.page_size;
                    slot.copy_from_slice(&bases[base as usize][src..src + self.page_size]);
                }
            }
        }
    }
}

/// Sums rows `range` of a memory of every rank into all of them.
pub(super) fn all_reduce(
    nodes: &mut [Node],
    memory: impl Fn(&mut Node) -> &mut Memory,
    range: std::ops::Range<usize>,
) {
    let mut sum = vec![Cell::Zero; range.len()];
    for node in &mut *nodes {
        for (sum, &cell) in sum.iter_mut().zip(&memory(node)[range.clone()]) {
            *sum = sum.plus(cell);
        }
    }
    for node in nodes {
        memory(node)[range.clone()].copy_from_slice(&sum);
    }
}
