//! Byte offsets past 2^31 and 2^32, where 32-bit arithmetic would go wrong.

use super::{pages, plan, shape};
use crate::pages::{BufferKind, BufferSpec};
use crate::plan::{Batch, PartialPage, RequestPages, Strategy, descriptors, zero_ranges};
use crate::units::PageId;

const PAGE_BYTES: u64 = 41_984;

fn mla() -> BufferSpec {
    BufferSpec::new(BufferKind::TokenKv { row_bytes: 656 }, 64).unwrap()
}

#[test]
fn ranges_to_zero_lie_right_past_two_and_four_gigabytes() {
    // The first page behind 2^31 and 2^32 bytes, the one before it, and the last there can be.
    for slot in [51_150, 51_151, 102_300, 102_301, 1 << 25, i32::MAX as u32] {
        let partial = [PartialPage { staging_slot: slot, dense_slot: 0, first_unfilled: 63 }];
        let ranges = zero_ranges(mla(), &partial, |page| page.staging_slot);
        let offset = u128::from(slot) * u128::from(PAGE_BYTES) + 63 * 656;
        assert_eq!((u128::from(ranges[0].offset), ranges[0].bytes), (offset, 656));
    }
    const { assert!(51_151 * PAGE_BYTES > 1 << 31 && 102_301 * PAGE_BYTES > 1 << 32) };
}

#[test]
fn a_plan_with_more_than_four_gigabytes_of_slots_names_every_place_right() {
    let num_prefix = 102_400;
    let request = RequestPages {
        prefix_tokens: num_prefix as u32 * 64,
        new_tokens: 65,
        prefix_pages: (0..num_prefix).map(PageId).collect(),
        current_pages: pages(&[num_prefix + 1, num_prefix]),
    };
    let batch = Batch { requests: vec![request], num_pad_slots: 0 };
    let plan = plan(shape(1, 64, num_prefix as u32 + 2), &batch);
    let ranges = zero_ranges(mla(), &plan.rows.partial_pages, |page| page.dense_slot);
    assert_eq!(ranges.len(), 1);
    assert_eq!(ranges[0].offset, (num_prefix as u64 + 1) * PAGE_BYTES + 656);
    assert_eq!(ranges[0].bytes, 63 * 656);
    let last_row = plan.rows.dense_rows[64];
    assert_eq!(last_row as u64 * 656, (num_prefix as u64 + 1) * PAGE_BYTES);
    let table = descriptors(&plan, Strategy::StagingFill);
    let source = |slot: i32| table[slot as usize].page as u64 * PAGE_BYTES;
    assert!(source(num_prefix - 1) > 1 << 32);
    assert_eq!(source(num_prefix - 1), (num_prefix as u64 - 1) * PAGE_BYTES);
}

#[test]
fn the_largest_page_id_keeps_its_place() {
    for (num_ranks, shard_idx) in [(1, i32::MAX), (8, i32::MAX / 8), (64, i32::MAX / 64)] {
        let request = RequestPages {
            prefix_tokens: 64,
            new_tokens: 1,
            prefix_pages: pages(&[i32::MAX]),
            current_pages: pages(&[i32::MAX - 1]),
        };
        let batch = Batch { requests: vec![request], num_pad_slots: 0 };
        let plan = plan(shape(num_ranks, 64, 1 << 31), &batch);
        let prefix = descriptors(&plan, Strategy::StagingFill)[0];
        assert_eq!((prefix.base, prefix.page), (i32::MAX % num_ranks as i32, shard_idx));
        assert_eq!(plan.slots.dense_inverse().get(PageId(i32::MAX - 1)), Some(1));
        assert_eq!(plan.slots.dense_inverse().get(PageId(i32::MAX)), None);
    }
}
