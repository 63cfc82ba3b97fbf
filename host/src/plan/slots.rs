//! The dense slots of a batch, and its current pages in merged-span order: the same on every rank.

use super::page_set::PageSet;
use super::{Batch, Fingerprint, PageInverse, PlanError, PlanShape, RequestPages, Span, SpanKind};
use crate::pages::{Ownership, ZigzagSplit};
use crate::units::{PageId, Rank};

/// A slot whose first rows are prefix (from `original`) and whose other rows are new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Straddle {
    /// The dense slot, that of the request's first current page.
    pub slot: u32,
    /// The shared page the prefix rows come from; it is only read.
    pub original: PageId,
    /// How many rows are prefix: `0 < num_prefix_rows < page_size`.
    pub num_prefix_rows: u32,
}

/// A run of current rows of one writer in one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CurrentPage {
    /// Rows before it in the page: 0, or the prefix rows of a straddling page.
    pub(crate) first_row: u32,
    /// One past its last row; below the page size only in a request's last page.
    pub(crate) end_row: u32,
}

/// Where a request's tokens lie in the dense buffer: slots run request by request, so it is one base each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenseRows {
    /// `[num_requests]`: the dense row of each request's first token.
    pub bases: Vec<u32>,
}

impl DenseRows {
    /// The dense row of token `position` (prefix included) of request `request`.
    pub fn row(&self, request: usize, position: u32) -> Option<u32> {
        self.bases.get(request)?.checked_add(position)
    }
}

/// A request's tokens: the host's copy of its lengths, so that no layer asks the device for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTokens {
    /// Tokens whose KV is in the pool already.
    pub prefix: u32,
    /// Tokens this forward computes.
    pub new: u32,
}

/// What is the same on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotPlan {
    /// What the plan was built for.
    pub shape: PlanShape,
    /// `[num_slots]`: the logical page of each dense slot; [`PageId::PAD`] is padding.
    pub pages: Vec<PageId>,
    /// `[num_requests]`: the requests' lengths.
    pub tokens: Vec<RequestTokens>,
    /// Runs of slots, in slot order.
    pub spans: Vec<Span>,
    /// `[num_current]` logical pages in merged-span order: position `i` is the current index.
    pub current_pages: Vec<i32>,
    /// `[num_current]` dense slots.
    pub current_slots: Vec<i32>,
    /// `[num_current]` the rank that computes each.
    pub writers: Vec<Rank>,
    /// Slots that are prefix and current at once.
    pub straddles: Vec<Straddle>,
    /// Where the requests' tokens lie.
    pub dense_rows: DenseRows,
    /// Hash of the shape and the batch that it was built from.
    pub fingerprint: Fingerprint,
    pub(crate) current_rows: Vec<CurrentPage>,
}

impl SlotPlan {
    /// Lays out `batch`.
    ///
    /// # Errors
    /// As [`BatchPlan::build`](super::BatchPlan::build).
    pub fn build(shape: PlanShape, batch: &Batch) -> Result<Self, PlanError> {
        if shape.page_size == 0 {
            return Err(PlanError::NoPageSize);
        }
        let (num_slots, num_current) = count(shape, batch)?;
        let mut plan = Self {
            shape,
            pages: Vec::with_capacity(num_slots),
            tokens: batch.requests.iter().map(RequestPages::tokens).collect(),
            spans: Vec::with_capacity(2 * batch.requests.len()),
            current_pages: Vec::with_capacity(num_current),
            current_slots: Vec::with_capacity(num_current),
            writers: Vec::with_capacity(num_current),
            straddles: Vec::new(),
            dense_rows: DenseRows { bases: Vec::with_capacity(batch.requests.len()) },
            fingerprint: Fingerprint::of(shape, batch),
            current_rows: Vec::with_capacity(num_current),
        };
        for (idx, request) in batch.requests.iter().enumerate() {
            plan.push_request(idx, request)?;
        }
        plan.pages.resize(num_slots, PageId::PAD);
        plan.check_single_place(batch)?;
        Ok(plan)
    }

    /// Number of dense slots, padding included.
    pub fn num_slots(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Number of current pages: the staging slots the batch takes.
    pub fn num_current(&self) -> u32 {
        self.current_pages.len() as u32
    }

    /// Current page -> dense slot. Built here and not with the plan: its size follows how far apart the page ids
    /// lie, and not every strategy reads it.
    pub fn dense_inverse(&self) -> PageInverse {
        PageInverse::build(&self.current_pages, |i| self.current_slots[i])
    }

    /// Current page -> staging slot, which is its current index. Built here, as [`SlotPlan::dense_inverse`].
    pub fn staging_inverse(&self) -> PageInverse {
        PageInverse::build(&self.current_pages, |i| i as i32)
    }

    /// Whether every current page has exactly one producer.
    pub fn page_aligned(&self) -> bool {
        self.straddles.is_empty()
    }

    /// Where pages are stored.
    pub fn ownership(&self) -> Ownership {
        Ownership::new(self.shape.group_size)
    }

    fn push_request(&mut self, idx: usize, request: &RequestPages) -> Result<(), PlanError> {
        let page_size = self.shape.page_size;
        let num_straddling = usize::from(straddles(request, page_size));
        let first_slot = self.pages.len() as u32;
        self.dense_rows.bases.push(first_slot * page_size);
        let prefix_pages = &request.prefix_pages[..request.prefix_pages.len() - num_straddling];
        self.pages.extend_from_slice(prefix_pages);
        let first_current = self.pages.len() as u32;
        self.push_span(idx, SpanKind::Prefix, first_slot);
        if num_straddling == 1 {
            self.straddles.push(Straddle {
                slot: first_current,
                original: request.prefix_pages[prefix_pages.len()],
                num_prefix_rows: request.prefix_tokens % page_size,
            });
        }
        self.push_current(request, first_current);
        self.push_span(idx, SpanKind::Current, first_current);
        Ok(())
    }

    fn push_current(&mut self, request: &RequestPages, first_slot: u32) {
        let page_size = self.shape.page_size;
        let num_pages = request.current_pages.len() as u32;
        let split = ZigzagSplit::new(num_pages, self.shape.group_size);
        for segment in 0..split.num_segments() {
            let num_segment_pages = split.segment(segment).len();
            self.writers.extend(std::iter::repeat_n(split.writer_of_segment(segment), num_segment_pages));
        }
        self.pages.extend_from_slice(&request.current_pages);
        self.current_pages.extend(request.current_pages.iter().map(|page| page.0));
        self.current_slots.extend((first_slot..first_slot + num_pages).map(|slot| slot as i32));
        let whole = CurrentPage { first_row: 0, end_row: page_size };
        let first = self.current_rows.len();
        self.current_rows.resize(first + num_pages as usize, whole);
        if let [first, ..] = &mut self.current_rows[first..] {
            first.first_row = request.prefix_tokens % page_size;
        }
        if let [.., last] = &mut self.current_rows[first..] {
            let num_tokens = u64::from(request.prefix_tokens) + u64::from(request.new_tokens);
            last.end_row = ((num_tokens - 1) % u64::from(page_size)) as u32 + 1;
        }
    }

    fn push_span(&mut self, request: usize, kind: SpanKind, first_slot: u32) {
        let slots = first_slot..self.pages.len() as u32;
        if !slots.is_empty() {
            self.spans.push(Span { request: request as u32, kind, slots });
        }
    }

    /// A current page has one place, and is not prefix.
    fn check_single_place(&self, batch: &Batch) -> Result<(), PlanError> {
        let mut current = PageSet::for_pages(&self.current_pages);
        for (request, pages) in batch.requests.iter().enumerate() {
            if let Some(&page) = pages.current_pages.iter().find(|&&page| !current.insert(page)) {
                return Err(PlanError::CurrentTwice { page, request });
            }
        }
        for (request, pages) in batch.requests.iter().enumerate() {
            if let Some(&page) = pages.prefix_pages.iter().find(|&&page| current.contains(page)) {
                return Err(PlanError::CurrentIsPrefix { page, request });
            }
        }
        Ok(())
    }
}

/// Whether the request's prefix ends inside a page that new tokens continue.
fn straddles(request: &RequestPages, page_size: u32) -> bool {
    request.new_tokens > 0 && !request.prefix_tokens.is_multiple_of(page_size)
}

/// Dense slots and current pages of the batch, every list checked.
fn count(shape: PlanShape, batch: &Batch) -> Result<(usize, usize), PlanError> {
    let (mut num_slots, mut num_current) = (u64::from(batch.num_pad_slots), 0);
    for (idx, request) in batch.requests.iter().enumerate() {
        check_request(shape, idx, request)?;
        let num_straddling = u64::from(straddles(request, shape.page_size));
        num_slots += (request.prefix_pages.len() + request.current_pages.len()) as u64 - num_straddling;
        num_current += request.current_pages.len();
    }
    if num_slots.saturating_mul(u64::from(shape.page_size)) > i32::MAX as u64 {
        return Err(PlanError::TooLarge { num_slots, page_size: shape.page_size });
    }
    Ok((num_slots as usize, num_current))
}

fn check_request(shape: PlanShape, idx: usize, request: &RequestPages) -> Result<(), PlanError> {
    let page_size = u64::from(shape.page_size);
    let (prefix, new) = (u64::from(request.prefix_tokens), u64::from(request.new_tokens));
    let needed_prefix = prefix.div_ceil(page_size);
    let needed_current = if new == 0 { 0 } else { (prefix + new).div_ceil(page_size) - prefix / page_size };
    for (list, pages, expected) in [
        ("prefix", &request.prefix_pages, needed_prefix),
        ("current", &request.current_pages, needed_current),
    ] {
        if pages.len() as u64 != expected {
            return Err(PlanError::PageCount {
                request: idx,
                list,
                expected,
                got: pages.len(),
                prefix_tokens: request.prefix_tokens,
                new_tokens: request.new_tokens,
            });
        }
        let in_pool = |page: PageId| (0..i64::from(shape.num_logical_pages)).contains(&i64::from(page.0));
        let may_pad = list == "prefix";
        if let Some(position) = pages.iter().position(|&page| !(in_pool(page) || may_pad && page.is_pad())) {
            let page = pages[position];
            return Err(if page.is_pad() {
                PlanError::PadWithTokens { request: idx, list, position }
            } else {
                let num_logical_pages = shape.num_logical_pages;
                PlanError::PageOutOfRange { request: idx, list, position, page, num_logical_pages }
            });
        }
    }
    match request.prefix_pages.last() {
        Some(last) if last.is_pad() && straddles(request, shape.page_size) => Err(PlanError::PadWithTokens {
            request: idx,
            list: "prefix",
            position: request.prefix_pages.len() - 1,
        }),
        _ => Ok(()),
    }
}
