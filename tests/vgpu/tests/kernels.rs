//! The kernels that ship, interpreted, against their CPU bodies: the same bytes from the same random inputs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod support;

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{
    AddBytesParams, BASE_KEEP, BASE_ZERO, ByteRange, Descriptor, FillIndexKParams, FillPagesParams,
    FillRowsParams, GatherParams, GroupState, HalfSelect, PAGE_NONE, ROW_SKIP, RowLayout, ZeroParams,
};
use cpkv_kernels::signal::FaultRecord;
use cpkv_vgpu::exec::{Execution, FaultKind};
use cpkv_vgpu::machine::Sharing;
use proptest::prelude::*;
use support::shipped::{STRICT, shipped};
use support::{TestMemory, bytes_of, finish, launch};

const WHOLE: HalfSelect = HalfSelect { state: 0, stride: 0, passed: 0 };
/// The bulk gather's dynamic shared memory, with room to spare.
const BULK_SHARED: u32 = 128 * 1024;

/// Where buffers are made: in this process for the body, in virtual memory for the PTX.
trait World {
    fn buffer(&mut self, data: &[u8]) -> u64;
}

#[derive(Default)]
struct Host {
    buffers: Vec<Vec<u128>>,
}

impl World for Host {
    fn buffer(&mut self, data: &[u8]) -> u64 {
        let mut words = vec![0u128; data.len().div_ceil(16).max(1)];
        // SAFETY: the words are at least as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), words.as_mut_ptr().cast(), data.len()) };
        self.buffers.push(words);
        self.buffers.last_mut().unwrap().as_mut_ptr().expose_provenance() as u64
    }
}

impl World for TestMemory {
    fn buffer(&mut self, data: &[u8]) -> u64 {
        self.holding(data, Sharing::Exported)
    }
}

fn table<T: Copy>(world: &mut dyn World, entries: &[T]) -> u64 {
    world.buffer(bytes_of(entries))
}

fn params_of(kernel: &Kernel) -> Vec<u8> {
    match kernel {
        Kernel::Barrier(params) => bytes_of(std::slice::from_ref(params)).to_vec(),
        Kernel::Gather(params) | Kernel::GatherBulk(params) => {
            bytes_of(std::slice::from_ref(params)).to_vec()
        }
        Kernel::FillRows(params) => bytes_of(std::slice::from_ref(params)).to_vec(),
        Kernel::FillPages(params) => bytes_of(std::slice::from_ref(params)).to_vec(),
        Kernel::FillIndexK(params) => bytes_of(std::slice::from_ref(params)).to_vec(),
        Kernel::Zero(params) => bytes_of(std::slice::from_ref(params)).to_vec(),
        Kernel::Probe(params) => bytes_of(std::slice::from_ref(params)).to_vec(),
        Kernel::Poison(params) => bytes_of(std::slice::from_ref(params)).to_vec(),
        Kernel::AddBytes(params) => bytes_of(std::slice::from_ref(params)).to_vec(),
    }
}

/// Runs the body and the PTX of what `build` makes; compares the `bytes` at the address it returns.
fn same(
    name: &str,
    shape: (u32, u32),
    bytes: usize,
    build: impl Fn(&mut dyn World) -> (Kernel, u64),
) -> Result<(), TestCaseError> {
    let module = shipped();
    let mut host = Host::default();
    let (kernel, dst) = build(&mut host);
    // SAFETY: the host keeps every buffer.
    unsafe { kernel.run() };
    // SAFETY: the destination has as many bytes, and nothing else touches it.
    let expected =
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(dst as usize), bytes) };

    let mut memory = TestMemory::default();
    let (kernel, dst) = build(&mut memory);
    let mut launch = launch(shape.0, shape.1, &params_of(&kernel));
    if name == "cpkv_gather_bulk" {
        launch.dynamic_shared_bytes = BULK_SHARED;
    }
    let mut execution = Execution::new(module, name, launch, STRICT).unwrap();
    if let Err(fault) = finish(&mut execution, &memory) {
        return Err(TestCaseError::fail(fault.to_string()));
    }
    let found = memory.read(dst, bytes);
    let differs = (0..bytes).find(|&at| found[at] != expected[at]);
    prop_assert!(
        differs.is_none(),
        "byte {} is {:?}, not {:?}",
        differs.unwrap(),
        differs.map(|at| found[at]),
        differs.map(|at| expected[at])
    );
    Ok(())
}

/// Bytes that differ everywhere nearby.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let byte =
        |i: u64| ((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ seed.wrapping_mul(0xA24B_AED4)) >> 56) as u8;
    (0..len as u64).map(byte).collect()
}

fn shapes() -> impl Strategy<Value = (u32, u32)> {
    (1u32..5, 1u32..5).prop_map(|(blocks, warps)| (blocks, warps * 32))
}

fn half(world: &mut dyn World, epoch: u64, stride: u64, passed: u64) -> HalfSelect {
    HalfSelect { state: table(world, &[GroupState { epoch }]), stride, passed }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gathers_copy_what_the_body_copies(
        shape in shapes(),
        page_bytes in prop_oneof![Just(16usize), Just(48), Just(52), Just(4080), Just(4112), Just(33_024), Just(70_000)],
        slots in prop::collection::vec((-2i32..4, 0i32..3), 1..6),
        epoch in 1u64..4,
        first_halved in 0u32..5,
        seed: u64,
    ) {
        for name in ["cpkv_gather", "cpkv_gather_bulk"] {
            // One warp of the bulk gather copies nothing: it drives the copy engine.
            let shape = if name == "cpkv_gather_bulk" { (shape.0, shape.1 + 32) } else { shape };
            let slots = slots.clone();
            same(name, shape, slots.len() * page_bytes * 2, move |world| {
                let descriptors: Vec<_> = slots.iter().map(|&(base, page)| Descriptor { base, page }).collect();
                let bases: Vec<u64> =
                    (0..4).map(|base| world.buffer(&pattern(seed ^ base, 8 * page_bytes))).collect();
                let dst = world.buffer(&pattern(!seed, descriptors.len() * page_bytes * 2));
                let params = GatherParams {
                    dst,
                    descriptors: table(world, &descriptors),
                    bases: table(world, &bases),
                    pool_offset: 4 * page_bytes as u64,
                    src_half: half(world, epoch, 3 * page_bytes as u64, 1),
                    dst_half: half(world, epoch, (descriptors.len() * page_bytes) as u64, 0),
                    page_bytes: page_bytes as u64,
                    poison: table(world, &[FaultRecord::default()]),
                    num_slots: descriptors.len() as u32,
                    first_halved,
                };
                assert!(descriptors.iter().all(|d| d.base >= BASE_KEEP && BASE_ZERO > BASE_KEEP));
                (Kernel::Gather(params), dst)
            })?;
        }
    }

    #[test]
    fn rows_are_filled_as_the_body_fills_them(
        shape in shapes(),
        row_bytes in prop_oneof![Just(16usize), Just(20), Just(576), Just(1152), Just(33)],
        rows in prop::collection::vec((0i64..8, any::<bool>()), 1..8),
        order in Just((0..16i64).collect::<Vec<_>>()).prop_shuffle(),
        epoch in 0u64..3,
        named: bool,
        seed: u64,
    ) {
        // Pages of 4 rows with a gap before them.
        let page = 4 * row_bytes + 32;
        same("cpkv_fill_rows", shape, 2 * 4 * page, move |world| {
            let dst_rows: Vec<i64> =
                rows.iter().zip(&order).map(|((_, skip), row)| if *skip { ROW_SKIP } else { *row }).collect();
            let src_rows: Vec<i64> = rows.iter().map(|(row, _)| *row).collect();
            let src = world.buffer(&pattern(seed, 8 * row_bytes));
            let dst = world.buffer(&pattern(!seed, 2 * 4 * page));
            let params = FillRowsParams {
                src,
                src_rows: if named { table(world, &src_rows) } else { 0 },
                dst,
                dst_rows: table(world, &dst_rows),
                src_layout: RowLayout { page_bytes: 4 * row_bytes as u64, offset: 0 },
                dst_layout: RowLayout { page_bytes: page as u64, offset: 16 },
                dst_half: half(world, epoch, 4 * page as u64, 0),
                poison: 0,
                row_bytes: row_bytes as u64,
                num_rows: rows.len() as u32,
                page_size: 4,
            };
            (Kernel::FillRows(params), dst)
        })?;
    }

    #[test]
    fn pages_are_filled_as_the_body_fills_them(
        shape in shapes(),
        page_bytes in prop_oneof![Just(16usize), Just(2112), Just(8448)],
        inverse in Just(vec![0, 1, 2, PAGE_NONE, PAGE_NONE]).prop_shuffle(),
        pages in Just((0..9i32).collect::<Vec<_>>()).prop_shuffle(),
        seed: u64,
    ) {
        same("cpkv_fill_pages", shape, 3 * page_bytes, move |world| {
            let dst = world.buffer(&pattern(!seed, 3 * page_bytes));
            let params = FillPagesParams {
                src: world.buffer(&pattern(seed, 9 * page_bytes)),
                src_pages: table(world, &[0, 1, 2, 3, 4, 5, 6, 7, 8]),
                pages: table(world, &pages),
                inverse: table(world, &inverse),
                dst,
                src_half: WHOLE,
                dst_half: WHOLE,
                page_bytes: page_bytes as u64,
                poison: 0,
                first_page: 2,
                inverse_len: inverse.len() as u32,
                num_pages: pages.len() as u32,
                reserved: 0,
            };
            (Kernel::FillPages(params), dst)
        })?;
    }

    #[test]
    fn index_k_is_quantised_as_the_body_quantises_it(
        shape in shapes(),
        rows in prop::collection::vec((prop::collection::vec(any::<u16>(), 128), 0u16..5, any::<bool>()), 1..6),
        order in Just((0..8i64).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        same("cpkv_fill_index_k", shape, 2 * 4 * 132, move |world| {
            // Rows of any bits, of finite numbers close together, of zeros, of infinities and NaN, of subnormals.
            let shaped = rows.iter().flat_map(|(keys, kind, _)| {
                keys.iter().map(move |&key| match kind {
                    0 => key,
                    1 => key & 0x81FF | 0x3E00,
                    2 => key & 0x8000,
                    3 => key | 0x7F80,
                    _ => key & 0x807F,
                })
            });
            let keys: Vec<u16> = shaped.collect();
            let dst_rows: Vec<i64> =
                rows.iter().zip(&order).map(|((.., skip), row)| if *skip { ROW_SKIP } else { *row }).collect();
            let dst = world.buffer(&pattern(9, 2 * 4 * 132));
            let params = FillIndexKParams {
                keys: table(world, &keys),
                dst,
                dst_rows: table(world, &dst_rows),
                dst_half: WHOLE,
                poison: 0,
                num_rows: rows.len() as u32,
                page_size: 4,
            };
            (Kernel::FillIndexK(params), dst)
        })?;
    }

    #[test]
    fn bytes_are_added_as_the_body_adds_them(shape in shapes(), bytes in 0usize..5000, seed: u64) {
        same("cpkv_add_bytes", shape, bytes, move |world| {
            let dst = world.buffer(&pattern(seed, bytes.max(1)));
            let src = world.buffer(&pattern(!seed, bytes.max(1)));
            (Kernel::AddBytes(AddBytesParams { dst, src, bytes: bytes as u64, poison: 0 }), dst)
        })?;
    }

    #[test]
    fn ranges_are_zeroed_as_the_body_zeroes_them(
        shape in shapes(),
        ranges in prop::collection::vec((0u64..5000, 0u64..5000), 1..5),
        seed: u64,
    ) {
        same("cpkv_zero", shape, 10_000, move |world| {
            let ranges: Vec<_> = ranges.iter().map(|&(offset, bytes)| ByteRange { offset, bytes }).collect();
            let dst = world.buffer(&pattern(seed, 10_000));
            let params = ZeroParams {
                dst,
                ranges: table(world, &ranges),
                dst_half: WHOLE,
                poison: 0,
                num_ranges: ranges.len() as u32,
                reserved: 0,
            };
            (Kernel::Zero(params), dst)
        })?;
    }
}

#[test]
fn a_host_pointer_in_the_parameters_is_an_illegal_address() {
    let module = shipped();
    let mut memory = TestMemory::default();
    let on_the_stack = [ByteRange { offset: 0, bytes: 16 }];
    let params = ZeroParams {
        dst: memory.allocate(64, Sharing::Private),
        ranges: on_the_stack.as_ptr().addr() as u64,
        dst_half: WHOLE,
        poison: 0,
        num_ranges: 1,
        reserved: 0,
    };
    let mut execution =
        Execution::new(module, "cpkv_zero", launch(1, 32, bytes_of(&[params])), STRICT).unwrap();
    let fault = finish(&mut execution, &memory).unwrap_err();
    assert_eq!(fault.kind(), FaultKind::IllegalAddress, "{fault}");
}
