//! Spans: runs of dense slots of one kind of one request.

use std::ops::Range;

use super::SlotPlan;

/// What a span's slots hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Pages that were in the pool before.
    Prefix,
    /// Pages this forward writes.
    Current,
}

/// A run of slots of one kind of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Position of the request in the batch.
    pub request: u32,
    /// What its slots hold.
    pub kind: SpanKind,
    /// Its dense slots; never empty.
    pub slots: Range<u32>,
}

impl Span {
    /// Its rows in a dense buffer with pages of `page_size` tokens, the unfilled ones of a partial page included. Of a
    /// [`SlotPlan`], with its page size: no row is past 2^31.
    pub const fn dense_rows(&self, page_size: u32) -> Range<u32> {
        self.slots.start * page_size..self.slots.end * page_size
    }
}

impl SlotPlan {
    /// The batch's spans in slot order, each with its rows in the dense buffer. They were found when the plan was
    /// built: a layer only reads them.
    pub fn dense_spans(&self) -> impl ExactSizeIterator<Item = (&Span, Range<u32>)> {
        self.spans.iter().map(|span| (span, span.dense_rows(self.shape.page_size)))
    }
}
