//! Partial pages: filled rows and zeroed rows make a whole page.

use cpkv_kernels::abi::ByteRange;
use proptest::prelude::*;

use super::plans;
use super::random::{ANY, batches};
use crate::pages::{BufferKind, BufferSpec};
use crate::plan::{PartialPage, zero_ranges};

/// Where row `row` of a page lies, written out for both kinds.
fn row_bytes(kind: BufferKind, page_size: u64, row: u64) -> Vec<ByteRange> {
    match kind {
        BufferKind::TokenKv { row_bytes } => {
            let bytes = u64::from(row_bytes);
            vec![ByteRange { offset: row * bytes, bytes }]
        }
        BufferKind::IndexK => vec![
            ByteRange { offset: row * 128, bytes: 128 },
            ByteRange { offset: page_size * 128 + row * 4, bytes: 4 },
        ],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn filled_and_zeroed_rows_are_every_byte_of_a_written_page_once(
        (shape, batch) in batches(ANY),
        kind in prop_oneof![Just(BufferKind::TokenKv { row_bytes: 16 }), Just(BufferKind::IndexK)],
        to_staging in any::<bool>(),
    ) {
        let Ok(spec) = BufferSpec::new(kind, shape.page_size) else { return Ok(()) };
        let (page_bytes, page_size) = (spec.page_bytes(), u64::from(shape.page_size));
        for plan in plans(shape, &batch) {
            let slots = &plan.slots;
            let num_pages = if to_staging { slots.num_current() } else { slots.num_slots() };
            let mut times = vec![0u8; (u64::from(num_pages) * page_bytes) as usize];
            let mut touch = |range: ByteRange| {
                times[range.offset as usize..][..range.bytes as usize].iter_mut().for_each(|byte| *byte += 1);
            };
            let rows = if to_staging { &plan.rows.staging_rows } else { &plan.rows.dense_rows };
            for &row in rows {
                for part in row_bytes(kind, page_size, row as u64 % page_size) {
                    touch(ByteRange { offset: row as u64 / page_size * page_bytes + part.offset, ..part });
                }
            }
            let slot_of =
                |page: &PartialPage| if to_staging { page.staging_slot } else { page.dense_slot };
            zero_ranges(spec, &plan.rows.partial_pages, slot_of).into_iter().for_each(&mut touch);
            // The prefix rows of a straddling page come from elsewhere.
            for straddle in slots.straddles.iter() {
                let current = slots.current_slots.iter().position(|&slot| slot as u32 == straddle.slot).unwrap();
                if slots.writers[current] == plan.rank {
                    let page = if to_staging { current as u64 } else { u64::from(straddle.slot) };
                    for row in 0..u64::from(straddle.num_prefix_rows) {
                        for part in row_bytes(kind, page_size, row) {
                            touch(ByteRange { offset: page * page_bytes + part.offset, ..part });
                        }
                    }
                }
            }
            let mut expected = vec![0u8; times.len()];
            for &i in &plan.rows.current_idx {
                let page = if to_staging { i as usize } else { slots.current_slots[i as usize] as usize };
                expected[page * page_bytes as usize..][..page_bytes as usize].fill(1);
            }
            prop_assert!(times == expected);
        }
    }
}

#[test]
fn an_index_k_page_is_zeroed_in_keys_and_scales() {
    let spec = BufferSpec::new(BufferKind::IndexK, 64).unwrap();
    let partial = [PartialPage { staging_slot: 2, dense_slot: 7, first_unfilled: 60 }];
    let ranges = zero_ranges(spec, &partial, |page| page.staging_slot);
    let page = 2 * 8_448;
    assert_eq!(
        ranges,
        [
            ByteRange { offset: page + 60 * 128, bytes: 4 * 128 },
            ByteRange { offset: page + 64 * 128 + 60 * 4, bytes: 4 * 4 },
        ]
    );
}
