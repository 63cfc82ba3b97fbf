//! The ragged index plan: what attention over a batch of unequal requests derives its own indices from.

use super::ragged_block::{BlockBuilder, RaggedSections};
use super::{PlanError, PlanShape, RaggedKey, RequestTokens, Section, SlotPlan};
use crate::pages::ZigzagSplit;
use crate::units::Rank;

/// What one rank computes, by segment: a request's new tokens are cut into `2R` segments, of which a rank computes
/// two. Request order, then segment order; empty segments are left out. All entries are int32, in one block of host
/// memory, so that one upload brings all of them.
///
/// Built with the batch's plan and never later: a call returns a part of the block, does not allocate, and costs the
/// same in every layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaggedPlan {
    key: RaggedKey,
    sections: RaggedSections,
    block: Vec<i32>,
}

/// A segment this rank computes, before its numbers go to their tables.
struct Segment {
    request: i32,
    segment: i32,
    q_start: i32,
    q_len: i32,
    k_base: i32,
    q_base: i32,
    current_base: i32,
}

impl RaggedPlan {
    /// The plan of `rank` for the batch that `slots` lays out. [`BatchPlan`](super::BatchPlan) has it.
    ///
    /// # Errors
    /// [`PlanError::RankOutOfRange`].
    pub fn build(slots: &SlotPlan, rank: Rank) -> Result<Self, PlanError> {
        slots.shape.check_rank(rank)?;
        let segments = segments_of(slots, rank);
        let num_rows = segments.last().map_or(0, |last| last.q_base + last.q_len) as usize;
        let mut block = BlockBuilder::with_capacity(segments.len(), num_rows);
        let sections = RaggedSections {
            q_starts: block.push(segments.iter().map(|segment| segment.q_start)),
            q_lens: block.push(segments.iter().map(|segment| segment.q_len)),
            kv_lens: block.push(segments.iter().map(|segment| segment.q_start + segment.q_len)),
            k_bases: block.push(segments.iter().map(|segment| segment.k_base)),
            q_bases: block.push(segments.iter().map(|segment| segment.q_base)),
            current_bases: block.push(segments.iter().map(|segment| segment.current_base)),
            segments: block.push(segments.iter().flat_map(|segment| [segment.request, segment.segment])),
            topk_offsets: block
                .push_runs(segments.iter().map(|segment| (segment.k_base, segment.q_len as usize))),
        };
        let key = RaggedKey::of_tokens(slots.shape, rank, slots.tokens.iter().copied());
        Ok(Self { key, sections, block: block.finish() })
    }

    /// What the plan derives from, as a key.
    pub const fn key(&self) -> RaggedKey {
        self.key
    }

    /// Whether this is the plan of the batch and rank whose key is `key` ([`RaggedKey::of`]). To be asked before a held
    /// plan is used for another batch: that the batch lies where the last one lay, or is as long, says nothing.
    pub fn matches(&self, key: &RaggedKey) -> bool {
        self.key == *key
    }

    /// Number of segments this rank computes: at most two a request.
    pub const fn num_segments(&self) -> u32 {
        self.sections.q_starts.len
    }

    /// Number of rows this rank computes, as [`RankRows`](super::RankRows) orders them.
    pub const fn num_rows(&self) -> u32 {
        self.sections.topk_offsets.len
    }

    /// `[num_segments]`: absolute position in the request, prefix included, of the segment's first new token.
    pub fn q_starts(&self) -> &[i32] {
        self.table(self.sections.q_starts)
    }

    /// `[num_segments]`: new tokens of the segment; never 0.
    pub fn q_lens(&self) -> &[i32] {
        self.table(self.sections.q_lens)
    }

    /// `[num_segments]`: tokens of the request, prefix included, up to the segment's end: what its last token may
    /// attend to.
    pub fn kv_lens(&self) -> &[i32] {
        self.table(self.sections.kv_lens)
    }

    /// `[num_segments]`: dense row of the request's first token.
    pub fn k_bases(&self) -> &[i32] {
        self.table(self.sections.k_bases)
    }

    /// `[num_segments]`: first row of the segment among this rank's query rows.
    pub fn q_bases(&self) -> &[i32] {
        self.table(self.sections.q_bases)
    }

    /// `[num_segments]`: row of the segment's first token among the new tokens of the whole batch, counted without
    /// the padding of partial pages.
    pub fn current_bases(&self) -> &[i32] {
        self.table(self.sections.current_bases)
    }

    /// `[num_segments]` of request and segment: position of the request in the batch, and which of its `2R` segments.
    pub fn segments(&self) -> &[[i32; 2]] {
        self.table(self.sections.segments).as_chunks().0
    }

    /// `[num_rows]`: for every query row of this rank, the dense row of its request's first token.
    pub fn topk_offsets(&self) -> &[i32] {
        self.table(self.sections.topk_offsets)
    }

    /// Where the tables lie in [`RaggedPlan::block`].
    pub const fn sections(&self) -> &RaggedSections {
        &self.sections
    }

    /// All tables, as they are uploaded.
    pub fn block(&self) -> &[i32] {
        &self.block
    }

    fn table(&self, section: Section) -> &[i32] {
        let first = section.offset as usize / size_of::<i32>();
        self.block.get(first..first + section.len as usize).unwrap_or_default()
    }
}

/// The segments of `rank` that hold a token. No sum overflows: `slots` has at most 2^31 dense rows, and every position
/// counted here is one of them or one behind.
fn segments_of(slots: &SlotPlan, rank: Rank) -> Vec<Segment> {
    let PlanShape { group_size, page_size, .. } = slots.shape;
    let mut segments = Vec::with_capacity(2 * slots.tokens.len());
    let (mut q_base, mut num_current_before) = (0, 0);
    for ((request, &RequestTokens { prefix, new }), &k_base) in
        (0..).zip(&slots.tokens).zip(&slots.dense_rows.bases)
    {
        let end = prefix + new;
        // A straddling page is current as a whole: its first rows are prefix, and the segment starts behind them.
        let first_position = prefix - prefix % page_size;
        let num_pages = if new == 0 { 0 } else { (end - first_position).div_ceil(page_size) };
        let split = ZigzagSplit::new(num_pages, group_size);
        for segment in split.segments_of(rank) {
            let in_pages = split.segment(segment);
            if in_pages.is_empty() {
                continue;
            }
            let q_start = (first_position + in_pages.start * page_size).max(prefix);
            let q_end = (first_position + in_pages.end * page_size).min(end);
            segments.push(Segment {
                request,
                segment: segment as i32,
                q_start: q_start as i32,
                q_len: (q_end - q_start) as i32,
                k_base: k_base as i32,
                q_base,
                current_base: (num_current_before + (q_start - prefix)) as i32,
            });
            q_base += (q_end - q_start) as i32;
        }
        num_current_before += new;
    }
    segments
}
