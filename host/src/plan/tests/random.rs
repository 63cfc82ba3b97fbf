//! Random batches that can be planned.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::shape;
use crate::plan::{Batch, PlanShape, RequestPages};
use crate::units::PageId;

/// How large random batches get, and whether prefixes may end inside a page that new tokens continue.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) page_size: u32,
    pub(super) new_pages: u32,
    pub(super) straddles: bool,
}

/// Batches for checks that look at each token a few times.
pub(super) const ANY: Limits = Limits { page_size: 64, new_pages: 40, straddles: true };

/// A request before it has pages.
#[derive(Clone, Debug)]
struct Outline {
    whole_prefix_pages: u32,
    prefix_tail: u32,
    new_pages: u32,
    cut: u32,
    shares_prefix: bool,
    /// Bit `k`: prefix page `k` is padding.
    padding: u8,
}

fn outlines(limits: Limits) -> impl Strategy<Value = Vec<Outline>> {
    let new_pages = prop_oneof![1 => Just(0), 2 => 1..=3u32, 3 => 1..=limits.new_pages];
    let tail = prop_oneof![2 => Just(0), 1 => 0..64u32];
    let padding = prop_oneof![2 => Just(0), 1 => any::<u8>()];
    let prefix = prop_oneof![2 => Just(0), 3 => 0..6u32];
    let outline = (prefix, tail, new_pages, 0..64u32, any::<bool>(), padding).prop_map(
        |(whole_prefix_pages, prefix_tail, new_pages, cut, shares_prefix, padding)| Outline {
            whole_prefix_pages,
            prefix_tail,
            new_pages,
            cut,
            shares_prefix,
            padding,
        },
    );
    vec(outline, 0..7)
}

/// A group, its pool and a batch: shuffled page ids, empty requests, padding, shared prefixes.
pub(super) fn batches(limits: Limits) -> impl Strategy<Value = (PlanShape, Batch)> {
    let num_ranks = prop_oneof![Just(1), Just(8), 1..=64u32];
    (num_ranks, 1..=limits.page_size, outlines(limits), 0..4u32, any::<u64>()).prop_map(
        move |(num_ranks, page_size, outlines, num_pad_slots, seed)| {
            let num_pages = 8 + outlines.iter().map(|outline| outline.new_pages + 16).sum::<u32>();
            let mut free = shuffled(num_pages, seed);
            let shared = free.split_off(free.len() - 8);
            let requests =
                outlines.iter().map(|outline| request(outline, page_size, limits, &shared, &mut free));
            let batch = Batch { requests: requests.collect(), num_pad_slots };
            (shape(num_ranks, page_size, num_pages), batch)
        },
    )
}

fn request(
    outline: &Outline,
    page_size: u32,
    limits: Limits,
    shared: &[PageId],
    free: &mut Vec<PageId>,
) -> RequestPages {
    let new_tokens = (outline.new_pages * page_size).saturating_sub(outline.cut % page_size);
    let straddles = limits.straddles || new_tokens == 0;
    let tail = if straddles { outline.prefix_tail % page_size } else { 0 };
    let prefix_tokens = outline.whole_prefix_pages * page_size + tail;
    let num_prefix = prefix_tokens.div_ceil(page_size) as usize;
    let mut prefix_pages = match outline.shares_prefix {
        true => shared[..num_prefix].to_vec(),
        false => free.split_off(free.len() - num_prefix),
    };
    for (position, page) in prefix_pages.iter_mut().enumerate().take(outline.whole_prefix_pages as usize) {
        if outline.padding >> position & 1 == 1 {
            *page = PageId::PAD;
        }
    }
    let first_written = u64::from(outline.whole_prefix_pages * page_size);
    let end = u64::from(prefix_tokens) + u64::from(new_tokens);
    let num_current =
        if new_tokens == 0 { 0 } else { (end - first_written).div_ceil(u64::from(page_size)) as usize };
    let current_pages = free.split_off(free.len() - num_current);
    RequestPages { prefix_tokens, new_tokens, prefix_pages, current_pages }
}

/// `0..num_pages` in an order that `seed` chooses.
fn shuffled(num_pages: u32, seed: u64) -> Vec<PageId> {
    let mut pages: Vec<_> = (0..num_pages as i32).map(PageId).collect();
    pages.sort_by_key(|page| {
        let mixed = (seed ^ page.0 as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    });
    pages
}

/// How many of 200 batches of `limits` are as `what` says.
fn count(limits: Limits, what: impl Fn(PlanShape, &Batch) -> bool) -> usize {
    let mut runner = TestRunner::deterministic();
    let samples = (0..200).map(|_| batches(limits).new_tree(&mut runner).unwrap().current());
    samples.filter(|(shape, batch)| what(*shape, batch)).count()
}

#[test]
fn random_batches_have_what_the_properties_are_about() {
    fn has(what: impl Fn(&RequestPages) -> bool) -> impl Fn(PlanShape, &Batch) -> bool {
        move |_, batch| batch.requests.iter().any(&what)
    }
    let aligned = |shape, batch: &Batch| super::plan(shape, batch).slots.page_aligned();
    let num_aligned = count(ANY, aligned);
    assert!((50..150).contains(&num_aligned), "{num_aligned}");
    assert_eq!(count(Limits { straddles: false, ..ANY }, aligned), 200);
    assert!(count(ANY, has(|request| request.prefix_pages.contains(&PageId::PAD))) > 50);
    assert!(count(ANY, has(|request| request.new_tokens == 0 && request.prefix_tokens == 0)) > 20);
    assert!(count(ANY, has(|request| request.current_pages.len() > 16)) > 50);
    assert!(count(ANY, |_, batch| batch.num_pad_slots > 0) > 50);
    assert!(count(ANY, |_, batch| batch.requests.is_empty()) > 5);
    let shares = |_, batch: &Batch| {
        let mut prefixes: Vec<_> = batch.requests.iter().flat_map(|request| &request.prefix_pages).collect();
        prefixes.retain(|page| !page.is_pad());
        let num_named = prefixes.len();
        prefixes.sort_unstable();
        prefixes.dedup();
        prefixes.len() < num_named
    };
    assert!(count(ANY, shares) > 50);
}
