//! The two ways a gather runs give the same bytes.

use std::sync::Arc;

use cpkv::device::cuda::GatherVariant;
use cpkv::device::{Device, Keep};
use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{BASE_KEEP, BASE_ZERO, Descriptor, GatherParams, HalfSelect};

use crate::lab::{Lab, soon};
use crate::vgpu::{faults, in_child};

/// A gather of `pages` pages of `page_bytes` from two bases; what the destination held and holds.
fn gathered(lab: &Lab, page_bytes: u64, make: fn(GatherParams) -> Kernel) -> (Vec<u8>, Vec<u8>) {
    let slots = [(0, 2), (1, 0), (BASE_ZERO, 0), (0, 0), (BASE_KEEP, 0), (1, 1), (0, 1), (1, 2)];
    let page = |base: u64, page: u64| -> Vec<u8> {
        (0..page_bytes).map(|at| (at * 7 + at / 256 + 31 * base + 101 * page + 1) as u8).collect()
    };
    let bases: Vec<_> = (0..2)
        .map(|base| {
            let bytes: Vec<u8> = (0..3).flat_map(|idx| page(base, idx)).collect();
            lab.holding(&bytes)
        })
        .collect();
    let base_table: Vec<u8> = bases.iter().flat_map(|base| base.addr().to_le_bytes()).collect();
    let descriptors = slots.map(|(base, page)| Descriptor { base, page });
    let descriptors: Vec<u8> = descriptors
        .iter()
        .flat_map(|slot| [slot.base.to_le_bytes(), slot.page.to_le_bytes()].concat())
        .collect();
    let (base_table, descriptors) = (lab.holding(&base_table), lab.holding(&descriptors));
    let dst = lab.holding(&vec![0xC3; slots.len() * page_bytes as usize]);
    let params = GatherParams {
        dst: dst.addr(),
        descriptors: descriptors.addr(),
        bases: base_table.addr(),
        pool_offset: 0,
        src_half: HalfSelect::default(),
        dst_half: HalfSelect::default(),
        page_bytes,
        poison: 0,
        num_slots: slots.len() as u32,
        first_halved: slots.len() as u32,
    };
    let keep: Keep = Arc::new((bases, base_table, descriptors, dst.clone()));
    // SAFETY: tables, bases and destination live in `keep`, and nothing else uses them.
    unsafe { lab.stream.launch(make(params), &keep) }.unwrap();
    let mut bytes = vec![0; dst.bytes() as usize];
    lab.stream.download(&dst, &mut bytes, soon()).unwrap();
    let expected = slots.iter().flat_map(|&(base, idx)| match base {
        BASE_ZERO => vec![0; page_bytes as usize],
        BASE_KEEP => vec![0xC3; page_bytes as usize],
        base => page(base as u64, idx as u64),
    });
    (expected.collect(), bytes)
}

#[test]
fn both_variants_of_the_gather_give_the_same_bytes() {
    let stderr = in_child(&[], || {
        let lab = Lab::open();
        for page_bytes in [16, 160, 4096, 40_000] {
            for variant in [GatherVariant::Vector, GatherVariant::Bulk] {
                lab.device.set_gather_variant(variant);
                let (expected, got) = gathered(&lab, page_bytes, Kernel::Gather);
                assert!(expected == got, "{variant:?}, pages of {page_bytes} bytes");
            }
            lab.device.set_gather_variant(GatherVariant::Vector);
            let (expected, got) = gathered(&lab, page_bytes, Kernel::GatherBulk);
            assert!(expected == got, "asked for by the kernel, pages of {page_bytes} bytes");
        }
        assert!(lab.device.name().contains("cuda:0"));
    });
    assert_eq!(faults(&stderr), [""; 0]);
}
