//! The rows one rank computes, and where they go.

use cpkv_kernels::abi::ByteRange;

use super::SlotPlan;
use crate::pages::BufferSpec;
use crate::units::Rank;

/// A page that its writer leaves partly unfilled, behind the request's last token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialPage {
    /// Its staging slot.
    pub staging_slot: u32,
    /// Its dense slot.
    pub dense_slot: u32,
    /// The first row that stays unfilled.
    pub first_unfilled: u32,
}

/// The rows of one rank: its pages in merged-span order, each page's rows in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankRows {
    /// Current indices of the pages this rank computes.
    pub current_idx: Vec<u32>,
    /// `[num_rows]`: staging slot x page size + row in the page.
    pub staging_rows: Vec<i64>,
    /// `[num_rows]`: dense slot x page size + row in the page.
    pub dense_rows: Vec<i64>,
    /// The pages whose last rows must be zeroed.
    pub partial_pages: Vec<PartialPage>,
}

impl RankRows {
    /// The rows of `rank`.
    pub(super) fn build(slots: &SlotPlan, rank: Rank) -> Self {
        let page_size = slots.shape.page_size;
        let current_idx: Vec<u32> =
            (0..slots.num_current()).filter(|&i| slots.writers[i as usize] == rank).collect();
        let num_page_rows = |&i: &u32| {
            let rows = slots.current_rows[i as usize];
            (rows.end_row - rows.first_row) as usize
        };
        let num_rows = current_idx.iter().map(num_page_rows).sum();
        let (mut staging_rows, mut dense_rows) = (Vec::with_capacity(num_rows), Vec::with_capacity(num_rows));
        let mut partial_pages = Vec::new();
        for &i in &current_idx {
            let (rows, dense_slot) = (slots.current_rows[i as usize], slots.current_slots[i as usize]);
            let (in_page, row_of) = (rows.first_row..rows.end_row, |slot: i64| slot * i64::from(page_size));
            let (staging_base, dense_base) = (row_of(i64::from(i)), row_of(i64::from(dense_slot)));
            staging_rows.extend(in_page.clone().map(|row| staging_base + i64::from(row)));
            dense_rows.extend(in_page.map(|row| dense_base + i64::from(row)));
            if rows.end_row < page_size {
                partial_pages.push(PartialPage {
                    staging_slot: i,
                    dense_slot: dense_slot as u32,
                    first_unfilled: rows.end_row,
                });
            }
        }
        Self { current_idx, staging_rows, dense_rows, partial_pages }
    }

    /// Number of rows this rank computes.
    pub fn num_rows(&self) -> u32 {
        self.staging_rows.len() as u32
    }
}

/// The byte ranges of the unfilled rows in a buffer whose pages are in `slot_of` order.
pub fn zero_ranges(
    spec: BufferSpec,
    partial_pages: &[PartialPage],
    slot_of: impl Fn(&PartialPage) -> u32,
) -> Vec<ByteRange> {
    let page_size = u64::from(spec.page_size());
    let ranges = partial_pages.iter().flat_map(|page| {
        let page_start = u64::from(slot_of(page)) * spec.page_bytes();
        let first = u64::from(page.first_unfilled);
        spec.row_parts().map(move |part| ByteRange {
            offset: page_start + part.offset + first * part.bytes,
            bytes: (page_size - first) * part.bytes,
        })
    });
    ranges.collect()
}
