//! Spans: runs of dense slots of one kind of one request.

use std::ops::Range;

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
