//! What there is to show of a batch, as numbers. Its JSON is what `--json` prints.

use std::ops::Range;

use cpkv::compose::{ComposeError, expected_path};
use cpkv::model::ModelSpec;
use cpkv::pages::ZigzagSplit;
use cpkv::plan::{
    BatchPlan, PageSources, PlanShape, RequestPages, SlotPlan, StagingCapacity, Strategy, skew,
};
use cpkv::units::{PageId, Rank};
use cpkv::workload::{BatchRequest, PlannedBatch};
use serde::Serialize;

use super::rank_view::RankView;
use crate::error::RunError;

/// A batch.
#[derive(Serialize)]
pub(crate) struct PlanView {
    pub(crate) batch: u64,
    pub(crate) model: String,
    pub(crate) group_size: u32,
    pub(crate) page_size: u32,
    pub(crate) pool_pages: u32,
    pub(crate) new_tokens: u64,
    pub(crate) prefix_tokens: u64,
    pub(crate) dense_slots: u32,
    /// Of all buffers of all layers.
    pub(crate) dense_bytes: u64,
    /// One a current page, in each of two halves.
    pub(crate) staging_slots: u32,
    pub(crate) staging_capacity: u64,
    pub(crate) strategy: Strategy,
    /// Why not the default; empty where it is.
    pub(crate) strategy_reason: String,
    /// Busiest over mean.
    pub(crate) egress_skew: f64,
    pub(crate) requests: Vec<RequestView>,
    pub(crate) ranks: Vec<RankView>,
}

/// A request of the batch.
#[derive(Serialize)]
pub(crate) struct RequestView {
    pub(crate) trace_line: u64,
    pub(crate) chunk: u32,
    pub(crate) is_last_chunk: bool,
    pub(crate) input_length: u32,
    pub(crate) prefix_tokens: u32,
    pub(crate) new_tokens: u32,
    pub(crate) prefix_pages: u32,
    pub(crate) current_pages: u32,
    /// First and one past the last.
    pub(crate) dense_slots: Range<u32>,
    pub(crate) staging_slots: Range<u32>,
    /// The `2R` segments of the current pages, but for empty ones.
    pub(crate) segments: Vec<SegmentView>,
    /// By dense slot.
    pub(crate) pages: Vec<PageView>,
}

/// A run of pages that one rank computes.
#[derive(Serialize)]
pub(crate) struct SegmentView {
    pub(crate) segment: u32,
    pub(crate) writer: u32,
    pub(crate) staging_slots: Range<u32>,
}

/// A page in its dense slot.
#[derive(Serialize)]
pub(crate) struct PageView {
    pub(crate) page: i32,
    /// The rank that stores it.
    pub(crate) owner: u32,
    /// The rank that computes it, where it is current.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) writer: Option<u32>,
}

impl PlanView {
    /// Plans `planned` for every rank of `shape`.
    pub(crate) fn new(
        planned: &PlannedBatch,
        shape: PlanShape,
        model: &ModelSpec,
        capacity: StagingCapacity,
    ) -> Result<Self, RunError> {
        let batch = &planned.batch;
        let plans = shape.group_size.ranks().map(|rank| BatchPlan::build(shape, rank, batch));
        let plans: Vec<BatchPlan> = plans.collect::<Result<_, _>>().map_err(ComposeError::from)?;
        let slots = SlotPlan::build(shape, batch).map_err(ComposeError::from)?;
        let path = expected_path(&slots)?;
        let sources = PageSources::of(&slots, path.strategy);
        let page_bytes = model.page_bytes_all_layers();
        let mut end = Place::default();
        let requests = batch.requests.iter().zip(&planned.requests);
        Ok(Self {
            batch: planned.batch_idx,
            model: model.name.clone(),
            group_size: shape.group_size.get(),
            page_size: shape.page_size,
            pool_pages: shape.num_logical_pages,
            new_tokens: batch.new_tokens(),
            prefix_tokens: batch.prefix_tokens(),
            dense_slots: slots.num_slots(),
            dense_bytes: u64::from(slots.num_slots()) * page_bytes,
            staging_slots: slots.num_current(),
            staging_capacity: capacity.num_pages,
            strategy: path.strategy,
            strategy_reason: path.reason,
            egress_skew: skew(&sources.egress_pages()),
            requests: requests.map(|(pages, request)| end.request(&slots, pages, *request)).collect(),
            ranks: plans.iter().map(|plan| RankView::new(plan, &sources, page_bytes)).collect(),
        })
    }

    /// Whether the current pages fit staging.
    pub(crate) fn fits(&self) -> bool {
        u64::from(self.staging_slots) <= self.staging_capacity
    }
}

/// Where the next request begins.
#[derive(Default)]
struct Place {
    dense_slot: u32,
    staging_slot: u32,
}

impl Place {
    fn request(&mut self, slots: &SlotPlan, pages: &RequestPages, request: BatchRequest) -> RequestView {
        let num_current = pages.current_pages.len() as u32;
        // A straddling page is prefix and current, in one slot.
        let num_prefix = pages.prefix_tokens / slots.shape.page_size;
        let num_prefix = if num_current == 0 { pages.prefix_pages.len() as u32 } else { num_prefix };
        let dense_slots = self.dense_slot..self.dense_slot + num_prefix + num_current;
        let staging_slots = self.staging_slot..self.staging_slot + num_current;
        (self.dense_slot, self.staging_slot) = (dense_slots.end, staging_slots.end);
        let in_slots = slots.pages.get(dense_slots.start as usize..dense_slots.end as usize);
        let writers = slots.writers.get(staging_slots.start as usize..staging_slots.end as usize);
        let writers = std::iter::repeat_n(None, num_prefix as usize)
            .chain(writers.unwrap_or_default().iter().map(|writer| Some(writer.0)));
        let page_view = |(&page, writer): (&PageId, Option<u32>)| PageView {
            page: page.0,
            owner: slots.ownership().owner(page).0,
            writer,
        };
        RequestView {
            trace_line: request.line,
            chunk: request.chunk_idx,
            is_last_chunk: request.is_last,
            input_length: request.input_length,
            prefix_tokens: pages.prefix_tokens,
            new_tokens: pages.new_tokens,
            prefix_pages: num_prefix,
            current_pages: num_current,
            segments: segments(slots, num_current, staging_slots.start),
            pages: in_slots.unwrap_or_default().iter().zip(writers).map(page_view).collect(),
            dense_slots,
            staging_slots,
        }
    }
}

fn segments(slots: &SlotPlan, num_pages: u32, first_staging_slot: u32) -> Vec<SegmentView> {
    let split = ZigzagSplit::new(num_pages, slots.shape.group_size);
    let segments = (0..split.num_segments()).filter(|&segment| !split.segment(segment).is_empty());
    segments
        .map(|segment| {
            let Rank(writer) = split.writer_of_segment(segment);
            let Range { start, end } = split.segment(segment);
            let staging_slots = first_staging_slot + start..first_staging_slot + end;
            SegmentView { segment, writer, staging_slots }
        })
        .collect()
}
