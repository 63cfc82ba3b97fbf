//! The baseline: a layer's ragged tables and spans, built from the batch's lists alone.

#![allow(dead_code, reason = "each bench uses its part")]

use std::ops::Range;

use cpkv::pages::ZigzagSplit;
use cpkv::plan::{Batch, PlanShape};
use cpkv::units::Rank;

/// The tables, one vector each.
#[derive(Default)]
pub(crate) struct PerLayer {
    q_starts: Vec<i32>,
    q_lens: Vec<i32>,
    kv_lens: Vec<i32>,
    k_bases: Vec<i32>,
    q_bases: Vec<i32>,
    current_bases: Vec<i32>,
    segments: Vec<[i32; 2]>,
    topk_offsets: Vec<i32>,
}

impl PerLayer {
    /// The tables of `rank`, from lists alone.
    pub(crate) fn rebuild(shape: PlanShape, rank: Rank, batch: &Batch) -> Self {
        let page_size = shape.page_size as i32;
        let mut tables = Self::default();
        let (mut num_slots, mut num_current) = (0, 0);
        for (request, pages) in batch.requests.iter().enumerate() {
            let (prefix, new) = (pages.prefix_tokens as i32, pages.new_tokens as i32);
            let first_position = prefix - prefix % page_size;
            let split = ZigzagSplit::new(pages.current_pages.len() as u32, shape.group_size);
            for segment in split.segments_of(rank) {
                let in_pages = split.segment(segment);
                if in_pages.is_empty() {
                    continue;
                }
                let start = (first_position + in_pages.start as i32 * page_size).max(prefix);
                let end = (first_position + in_pages.end as i32 * page_size).min(prefix + new);
                tables.q_starts.push(start);
                tables.q_lens.push(end - start);
                tables.kv_lens.push(end);
                tables.k_bases.push(num_slots * page_size);
                tables.q_bases.push(tables.topk_offsets.len() as i32);
                tables.current_bases.push(num_current + start - prefix);
                tables.segments.push([request as i32, segment as i32]);
                tables.topk_offsets.extend((start..end).map(|_| num_slots * page_size));
            }
            num_slots += num_slots_of(page_size, prefix, new);
            num_current += new;
        }
        tables
    }

    /// The tables, in the order of the plan's.
    pub(crate) fn tables(&self) -> [&[i32]; 8] {
        [
            &self.q_starts,
            &self.q_lens,
            &self.kv_lens,
            &self.k_bases,
            &self.q_bases,
            &self.current_bases,
            self.segments.as_flattened(),
            &self.topk_offsets,
        ]
    }
}

/// The rows of the batch's spans.
pub(crate) fn spans(page_size: u32, batch: &Batch) -> Vec<Range<u32>> {
    let (mut spans, mut first) = (Vec::new(), 0);
    for pages in &batch.requests {
        let straddles = pages.new_tokens > 0 && !pages.prefix_tokens.is_multiple_of(page_size);
        let num_prefix = pages.prefix_pages.len() as u32 - u32::from(straddles);
        for num_pages in [num_prefix, pages.current_pages.len() as u32] {
            if num_pages > 0 {
                spans.push(first..first + num_pages * page_size);
            }
            first += num_pages * page_size;
        }
    }
    spans
}

fn num_slots_of(page_size: i32, prefix: i32, new: i32) -> i32 {
    (prefix + new + page_size - 1) / page_size
}
