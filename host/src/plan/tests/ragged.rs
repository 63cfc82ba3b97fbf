//! The ragged index plan: small cases with their values stated, and random ones against the definition.

use proptest::prelude::*;

use super::random::{ANY, batches};
use super::reference::Reference;
use super::{fresh_batch, pages, plans, shape};
use crate::plan::{Batch, BatchPlan, PlanShape, RaggedPlan, RequestPages, Section};
use crate::units::Rank;

/// The tables, each written out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tables {
    q_starts: Vec<i32>,
    q_lens: Vec<i32>,
    kv_lens: Vec<i32>,
    k_bases: Vec<i32>,
    q_bases: Vec<i32>,
    current_bases: Vec<i32>,
    segments: Vec<[i32; 2]>,
    topk_offsets: Vec<i32>,
}

impl Tables {
    fn of(plan: &RaggedPlan) -> Self {
        Self {
            q_starts: plan.q_starts().to_vec(),
            q_lens: plan.q_lens().to_vec(),
            kv_lens: plan.kv_lens().to_vec(),
            k_bases: plan.k_bases().to_vec(),
            q_bases: plan.q_bases().to_vec(),
            current_bases: plan.current_bases().to_vec(),
            segments: plan.segments().to_vec(),
            topk_offsets: plan.topk_offsets().to_vec(),
        }
    }

    /// The definition, token by token: a token that continues no segment begins one.
    fn by_definition(reference: &Reference, rank: Rank) -> Self {
        let mut tables = Self::default();
        for (num_current, token) in reference.tokens.iter().enumerate() {
            if token.current.writer != rank {
                continue;
            }
            let segment = [token.request as i32, token.current.segment as i32];
            let first_row = reference.rows[token.request][0] as i32;
            if tables.segments.last() != Some(&segment) {
                tables.segments.push(segment);
                tables.q_starts.push(token.position as i32);
                tables.q_lens.push(0);
                tables.kv_lens.push(token.position as i32);
                tables.k_bases.push(first_row);
                tables.q_bases.push(tables.topk_offsets.len() as i32);
                tables.current_bases.push(num_current as i32);
            }
            *tables.q_lens.last_mut().unwrap() += 1;
            *tables.kv_lens.last_mut().unwrap() += 1;
            tables.topk_offsets.push(first_row);
        }
        tables
    }
}

fn tables(shape: PlanShape, batch: &Batch) -> Vec<Tables> {
    plans(shape, batch).iter().map(|plan| Tables::of(&plan.ragged)).collect()
}

fn batch(requests: Vec<RequestPages>) -> Batch {
    Batch { requests, num_pad_slots: 0 }
}

#[test]
fn a_request_with_a_partial_last_page_is_split_forth_and_back() {
    // Pages 0 to 4 go to segments 0, 1, 2 (rank 0, 1, 1) and 3 (rank 0): two, one, one and one of them.
    let [first, second] = &tables(shape(2, 4, 8), &fresh_batch(&[18], 4))[..] else { unreachable!() };
    let expected = Tables {
        q_starts: vec![0, 16],
        q_lens: vec![8, 2],
        kv_lens: vec![8, 18],
        k_bases: vec![0, 0],
        q_bases: vec![0, 8],
        current_bases: vec![0, 16],
        segments: vec![[0, 0], [0, 3]],
        topk_offsets: vec![0; 10],
    };
    assert_eq!(first, &expected);
    // Its two segments touch, and are two all the same.
    let expected = Tables {
        q_starts: vec![8, 12],
        q_lens: vec![4, 4],
        kv_lens: vec![12, 16],
        k_bases: vec![0, 0],
        q_bases: vec![0, 4],
        current_bases: vec![8, 12],
        segments: vec![[0, 1], [0, 2]],
        topk_offsets: vec![0; 8],
    };
    assert_eq!(second, &expected);
}

#[test]
fn a_segment_that_starts_in_a_straddling_page_starts_at_its_first_new_token() {
    // Rows 0 and 1 of page 20 are prefix. A request before it has 3 tokens in one page, and one between has none.
    let requests = vec![
        RequestPages { new_tokens: 3, current_pages: pages(&[10]), ..RequestPages::default() },
        RequestPages { prefix_tokens: 5, prefix_pages: pages(&[1, 2]), ..RequestPages::default() },
        RequestPages {
            prefix_tokens: 6,
            new_tokens: 9,
            prefix_pages: pages(&[3, 4]),
            current_pages: pages(&[20, 21, 22]),
        },
    ];
    let [first, second] = &tables(shape(2, 4, 32), &batch(requests))[..] else { unreachable!() };
    // Slots: one of request 0, two of request 1, then page 3 and the three current ones.
    let expected = Tables {
        q_starts: vec![0, 6],
        q_lens: vec![3, 2],
        kv_lens: vec![3, 8],
        k_bases: vec![0, 12],
        q_bases: vec![0, 3],
        current_bases: vec![0, 3],
        segments: vec![[0, 0], [2, 0]],
        topk_offsets: vec![0, 0, 0, 12, 12],
    };
    assert_eq!(first, &expected);
    let expected = Tables {
        q_starts: vec![8, 12],
        q_lens: vec![4, 3],
        kv_lens: vec![12, 15],
        k_bases: vec![12, 12],
        q_bases: vec![0, 4],
        current_bases: vec![5, 9],
        segments: vec![[2, 1], [2, 2]],
        topk_offsets: vec![12; 7],
    };
    assert_eq!(second, &expected);
}

#[test]
fn a_page_that_straddles_and_is_partial_holds_one_segment_inside_it() {
    let request = RequestPages {
        prefix_tokens: 5,
        new_tokens: 2,
        prefix_pages: pages(&[0, 1]),
        current_pages: pages(&[2]),
    };
    let plan = &tables(shape(1, 4, 4), &batch(vec![request]))[0];
    let expected = Tables {
        q_starts: vec![5],
        q_lens: vec![2],
        kv_lens: vec![7],
        k_bases: vec![0],
        q_bases: vec![0],
        current_bases: vec![0],
        segments: vec![[0, 0]],
        topk_offsets: vec![0, 0],
    };
    assert_eq!(plan, &expected);
}

#[test]
fn ranks_and_batches_without_tokens_have_empty_tables() {
    let single = tables(shape(8, 64, 16), &fresh_batch(&[1], 64));
    assert_eq!((&single[0].q_lens[..], &single[0].topk_offsets[..]), (&[1][..], &[0][..]));
    assert!(single[1..].iter().all(|tables| *tables == Tables::default()));
    for lengths in [&[][..], &[0, 0]] {
        let plans = plans(shape(8, 64, 16), &fresh_batch(lengths, 64));
        assert!(plans.iter().all(|plan| Tables::of(&plan.ragged) == Tables::default()));
        assert!(plans.iter().all(|plan| plan.ragged.num_segments() == 0 && plan.ragged.num_rows() == 0));
    }
}

/// Case 15: lengths 1, 64, 65, 513.
#[test]
fn every_request_has_its_own_bases() {
    let plan = &tables(shape(8, 64, 64), &fresh_batch(&[1, 64, 65, 513], 64))[0];
    assert_eq!(plan.segments, [[0, 0], [1, 0], [2, 0], [3, 0]]);
    assert_eq!(plan.k_bases, [0, 64, 128, 256]);
    assert_eq!(plan.current_bases, [0, 1, 65, 130]);
    assert_eq!(plan.q_bases, [0, 1, 65, 129]);
    assert_eq!(plan.kv_lens, [1, 64, 64, 64]);
}

fn entries(block: &[i32], section: Section) -> &[i32] {
    &block[section.offset as usize / 4..][..section.len as usize]
}

/// That the sections lead to the tables, each at a multiple of 16 bytes, in a block without room between.
fn check_block(plan: &RaggedPlan) {
    let (sections, block) = (plan.sections(), plan.block());
    let by_name = [
        (sections.q_starts, plan.q_starts()),
        (sections.q_lens, plan.q_lens()),
        (sections.kv_lens, plan.kv_lens()),
        (sections.k_bases, plan.k_bases()),
        (sections.q_bases, plan.q_bases()),
        (sections.current_bases, plan.current_bases()),
        (sections.segments, plan.segments().as_flattened()),
        (sections.topk_offsets, plan.topk_offsets()),
    ];
    let mut end = 0;
    for (section, table) in by_name {
        assert_eq!(section.offset, u64::next_multiple_of(end, 16));
        assert_eq!(entries(block, section), table);
        end = section.offset + 4 * u64::from(section.len);
    }
    assert_eq!(block.len() as u64 * 4, end);
}

fn check(shape: PlanShape, batch: &Batch) {
    let reference = Reference::new(shape, batch);
    for plan in plans(shape, batch) {
        let BatchPlan { rank, rows, ragged, .. } = &plan;
        assert_eq!(Tables::of(ragged), Tables::by_definition(&reference, *rank));
        assert_eq!(ragged.num_rows(), rows.num_rows());
        check_block(ragged);
        // Row j of a segment is the token at q_start + j: the dense row that the row list names.
        let dense_rows = ragged.k_bases().iter().zip(ragged.q_starts()).zip(ragged.q_lens());
        let dense_rows =
            dense_rows.flat_map(|((&base, &start), &len)| (0..len).map(move |j| base + start + j));
        assert!(dense_rows.map(i64::from).eq(rows.dense_rows.iter().copied()));
    }
}

/// Case 10.
#[test]
fn awkward_token_counts_are_as_defined() {
    check(shape(8, 64, 4_096), &fresh_batch(&[1, 63, 64, 65, 511, 512, 513, 4_097, 98_301], 64));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_batches_are_as_defined((shape, batch) in batches(ANY)) {
        check(shape, &batch);
    }
}
