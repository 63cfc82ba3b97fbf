//! What a plan allocates: everything when it is built, in proportion to the batch, and nothing when a layer reads it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use cpkv::plan::{Batch, BatchPlan, PlanShape, RaggedKey, RequestPages};
use cpkv::units::{GroupSize, PageId, Rank};

/// What this thread allocated. Tests run on several threads, and each looks at its own count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Allocated {
    num_calls: u64,
    bytes: u64,
}

thread_local! {
    static ALLOCATED: Cell<Allocated> = const { Cell::new(Allocated { num_calls: 0, bytes: 0 }) };
}

/// The system's allocator, counting.
struct Counting;

fn note(bytes: usize) {
    ALLOCATED.with(|allocated| {
        let Allocated { num_calls, bytes: before } = allocated.get();
        allocated.set(Allocated { num_calls: num_calls + 1, bytes: before + bytes as u64 });
    });
}

// SAFETY: every call goes to the system's allocator as it came; the count is a value without destructor, kept in
// memory that is not allocated.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises; `memory` came from the same allocator.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size);
        // SAFETY: as the caller promises; `memory` came from the same allocator.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `body` allocates.
fn allocated_by<T>(body: impl FnOnce() -> T) -> (T, Allocated) {
    let before = ALLOCATED.get();
    let result = body();
    let after = ALLOCATED.get();
    let num_calls = after.num_calls - before.num_calls;
    (result, Allocated { num_calls, bytes: after.bytes - before.bytes })
}

const PAGE_SIZE: u32 = 64;

fn shape() -> PlanShape {
    PlanShape { group_size: GroupSize::new(8).unwrap(), page_size: PAGE_SIZE, num_logical_pages: 1 << 16 }
}

/// `num_requests` requests that share `new_tokens` evenly, each behind a prefix of 100 tokens, a page and a part of one.
fn batch(num_requests: u32, new_tokens: u32) -> Batch {
    let mut pages = (0..).map(PageId);
    let requests = (0..num_requests).map(|_| {
        let (prefix_tokens, new_tokens) = (100, new_tokens / num_requests);
        let num_current = (prefix_tokens + new_tokens).div_ceil(PAGE_SIZE) - prefix_tokens / PAGE_SIZE;
        let mut take = |num_pages: u32| pages.by_ref().take(num_pages as usize).collect();
        RequestPages { prefix_tokens, new_tokens, prefix_pages: take(2), current_pages: take(num_current) }
    });
    Batch { requests: requests.collect(), num_pad_slots: 0 }
}

/// All a layer asks of its plan; returns a number that depends on all of it.
fn read(plan: &BatchPlan, key: &RaggedKey) -> i64 {
    let ragged = &plan.ragged;
    assert!(ragged.matches(key) && ragged.key() == *key);
    let tables = [
        ragged.q_starts(),
        ragged.q_lens(),
        ragged.kv_lens(),
        ragged.k_bases(),
        ragged.q_bases(),
        ragged.current_bases(),
        ragged.topk_offsets(),
        ragged.segments().as_flattened(),
        ragged.block(),
    ];
    let entries = tables.into_iter().flatten().map(|&entry| i64::from(entry)).sum::<i64>();
    let spans = plan.slots.dense_spans().map(|(span, rows)| i64::from(span.request + rows.end)).sum::<i64>();
    let sections = ragged.sections().within(ragged.sections().q_starts);
    entries
        + spans
        + i64::from(sections.topk_offsets.len)
        + i64::from(ragged.num_segments() + ragged.num_rows())
}

#[test]
fn a_layer_that_reads_the_plan_allocates_nothing() {
    let batch = batch(12, 44_600);
    let plan = BatchPlan::build(shape(), Rank(3), &batch).unwrap();
    let key = plan.ragged.key();
    let (sum, allocated) =
        allocated_by(|| (0..79).map(|_| black_box(read(black_box(&plan), &key))).sum::<i64>());
    assert!(sum > 0);
    assert_eq!(allocated, Allocated::default());
}

#[test]
fn asking_whether_a_held_plan_fits_allocates_nothing() {
    let batch = batch(12, 44_600);
    let plan = BatchPlan::build(shape(), Rank(3), &batch).unwrap();
    let (fits, allocated) =
        allocated_by(|| plan.ragged.matches(&RaggedKey::of(shape(), Rank(3), black_box(&batch))));
    assert!(fits);
    assert_eq!(allocated, Allocated::default());
}

#[test]
fn twice_the_tokens_take_at_most_twice_the_memory_and_a_little() {
    let build = |new_tokens| {
        let batch = batch(12, new_tokens);
        allocated_by(|| BatchPlan::build(shape(), Rank(3), &batch).unwrap()).1
    };
    let (half, whole) = (build(1 << 16), build(1 << 17));
    assert!(half.num_calls > 0 && half.bytes > 0, "the allocator counts: {half:?}");
    assert!(whole.bytes * 10 <= half.bytes * 22, "{half:?}, {whole:?}");
    assert!(whole.num_calls <= half.num_calls + 2, "{half:?}, {whole:?}");
}
