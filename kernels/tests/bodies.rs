//! The kernel bodies on the CPU, against plain loops: every byte of guarded, poisoned destinations.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{
    AddBytesParams, BASE_KEEP, BASE_ZERO, ByteRange, Descriptor, FillIndexKParams, FillPagesParams,
    FillRowsParams, GatherParams, GroupState, HalfSelect, PAGE_NONE, ROW_SKIP, RowLayout, ZeroParams,
};
use cpkv_kernels::fp8;
use cpkv_kernels::signal::{FAULT_RECORDED, FaultRecord};

const GUARD: usize = 64;
const POISON: u8 = 0xC3;
const GUARD_BYTE: u8 = 0xA5;
const WHOLE: HalfSelect = HalfSelect { state: 0, stride: 0, passed: 0 };

/// 16-byte aligned memory with guards on both sides.
struct Memory {
    words: Vec<u128>,
    bytes: usize,
}

impl Memory {
    fn new(bytes: usize) -> Self {
        let words = vec![0; (bytes + 2 * GUARD).div_ceil(16)];
        let mut memory = Self { words, bytes };
        memory.all().fill(GUARD_BYTE);
        memory.data().fill(POISON);
        memory
    }

    fn of(data: &[u8]) -> Self {
        let mut memory = Self::new(data.len());
        memory.data().copy_from_slice(data);
        memory
    }

    fn all(&mut self) -> &mut [u8] {
        let len = self.words.len() * 16;
        // SAFETY: the words are as many bytes, and bytes have no alignment.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), len) }
    }

    fn data(&mut self) -> &mut [u8] {
        let bytes = self.bytes;
        &mut self.all()[GUARD..GUARD + bytes]
    }

    fn addr(&mut self) -> u64 {
        self.data().as_mut_ptr().expose_provenance() as u64
    }

    fn assert_holds(&mut self, expected: &[u8]) {
        assert!(self.data() == expected, "bytes differ");
        let end = GUARD + self.bytes;
        let all = self.all();
        assert!(
            all[..GUARD].iter().chain(&all[end..]).all(|&byte| byte == GUARD_BYTE),
            "a guard was overwritten"
        );
    }
}

fn table<T>(entries: &[T]) -> u64 {
    entries.as_ptr().expose_provenance() as u64
}

/// Bytes that differ everywhere nearby.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let byte =
        |i: u64| ((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ seed.wrapping_mul(0xA24B_AED4)) >> 56) as u8;
    (0..len as u64).map(byte).collect()
}

fn run(kernel: Kernel) {
    // SAFETY: every test passes addresses of memory that lives longer than the call.
    unsafe { kernel.run() };
}

/// A poison word of a group that gave up.
fn poisoned() -> Box<FaultRecord> {
    Box::new(FaultRecord { word: FAULT_RECORDED, ..FaultRecord::default() })
}

#[test]
fn gather_copies_zeroes_and_keeps_slot_by_slot() {
    for page_bytes in [16, 48, 4080, 4096, 4112, 8448, 41_984] {
        let mut pools = [Memory::of(&pattern(1, 3 * page_bytes)), Memory::of(&pattern(2, 3 * page_bytes))];
        let bases = [pools[0].addr(), pools[1].addr()];
        let slots = [(1, 2), (BASE_ZERO, 0), (0, 0), (BASE_KEEP, 0), (0, 0), (1, 0)];
        let descriptors = slots.map(|(base, page)| Descriptor { base, page });
        let mut dst = Memory::new(slots.len() * page_bytes);
        let params = GatherParams {
            dst: dst.addr(),
            descriptors: table(&descriptors),
            bases: table(&bases),
            pool_offset: 0,
            src_half: WHOLE,
            dst_half: WHOLE,
            page_bytes: page_bytes as u64,
            poison: 0,
            num_slots: slots.len() as u32,
            first_halved: 2,
        };
        run(Kernel::Gather(params));
        let page = |(base, page): (i32, i32)| match base {
            BASE_ZERO => vec![0; page_bytes],
            BASE_KEEP => vec![POISON; page_bytes],
            base => {
                pattern(base as u64 + 1, 3 * page_bytes)[page as usize * page_bytes..][..page_bytes].to_vec()
            }
        };
        dst.assert_holds(&slots.map(page).concat());

        let mut untouched = Memory::new(slots.len() * page_bytes);
        let word = poisoned();
        let poison = table(std::slice::from_ref(&*word));
        run(Kernel::Gather(GatherParams { dst: untouched.addr(), poison, ..params }));
        untouched.assert_holds(&vec![POISON; slots.len() * page_bytes]);
    }
}

#[test]
fn gather_reads_the_half_that_was_passed_and_the_layer_of_the_pool() {
    const PAGE: usize = 32;
    let mut pool = Memory::of(&pattern(1, 4 * PAGE));
    let mut staging = Memory::of(&pattern(2, 4 * PAGE));
    let bases = [pool.addr(), staging.addr()];
    let descriptors = [Descriptor { base: 0, page: 1 }, Descriptor { base: 1, page: 1 }];
    for epoch in 1..=4 {
        let state = [GroupState { epoch }];
        let mut dst = Memory::new(2 * PAGE);
        run(Kernel::Gather(GatherParams {
            dst: dst.addr(),
            descriptors: table(&descriptors),
            bases: table(&bases),
            pool_offset: 2 * PAGE as u64,
            src_half: HalfSelect { state: table(&state), stride: 2 * PAGE as u64, passed: 1 },
            dst_half: WHOLE,
            page_bytes: PAGE as u64,
            poison: 0,
            num_slots: 2,
            first_halved: 1,
        }));
        let half = (epoch as usize - 1) % 2;
        let expected =
            [&pattern(1, 4 * PAGE)[3 * PAGE..], &pattern(2, 4 * PAGE)[(2 * half + 1) * PAGE..][..PAGE]];
        dst.assert_holds(&expected.concat());
    }
}

#[test]
fn rows_go_where_the_table_says_in_the_half_being_filled() {
    const ROW: usize = 20;
    // Pages of 4 rows with 8 bytes before and after them.
    let layout = RowLayout { page_bytes: 96, offset: 8 };
    let packed = RowLayout { page_bytes: 4 * ROW as u64, offset: 0 };
    let mut src = Memory::of(&pattern(3, 5 * ROW));
    let (src_rows, dst_rows) = ([4i64, 0, 1, 3], [7i64, ROW_SKIP, 0, 2]);
    for (epoch, named) in [(6u64, false), (7, true)] {
        let state = [GroupState { epoch }];
        let mut dst = Memory::new(2 * 2 * 96);
        let params = FillRowsParams {
            src: src.addr(),
            src_rows: if named { table(&src_rows) } else { 0 },
            dst: dst.addr(),
            dst_rows: table(&dst_rows),
            src_layout: packed,
            dst_layout: layout,
            dst_half: HalfSelect { state: table(&state), stride: 192, passed: 0 },
            poison: 0,
            row_bytes: ROW as u64,
            num_rows: 4,
            page_size: 4,
        };
        run(Kernel::FillRows(params));
        let mut expected = vec![POISON; 2 * 2 * 96];
        for (i, dst_row) in dst_rows.into_iter().enumerate().filter(|(_, row)| *row != ROW_SKIP) {
            let src_row = if named { src_rows[i] as usize } else { i };
            let at = (epoch as usize % 2) * 192 + dst_row as usize / 4 * 96 + 8 + dst_row as usize % 4 * ROW;
            expected[at..at + ROW].copy_from_slice(&pattern(3, 5 * ROW)[src_row * ROW..][..ROW]);
        }
        dst.assert_holds(&expected);

        let word = poisoned();
        let mut untouched = Memory::new(2 * 2 * 96);
        let poison = table(std::slice::from_ref(&*word));
        run(Kernel::FillRows(FillRowsParams { dst: untouched.addr(), poison, ..params }));
        untouched.assert_holds(&vec![POISON; 2 * 2 * 96]);
    }
}

#[test]
fn pages_go_where_the_inverse_says_and_pages_outside_it_nowhere() {
    for page in [16, 4096, 8448] {
        let mut src = Memory::of(&pattern(4, 5 * page));
        let (pages, src_pages) = ([12, 9, 10, 11, 3], [0, 1, 2, 3, 4]);
        let inverse = [2, PAGE_NONE, 0];
        let mut dst = Memory::new(3 * page);
        let params = FillPagesParams {
            src: src.addr(),
            src_pages: table(&src_pages),
            pages: table(&pages),
            inverse: table(&inverse),
            dst: dst.addr(),
            src_half: WHOLE,
            dst_half: WHOLE,
            page_bytes: page as u64,
            poison: 0,
            first_page: 10,
            inverse_len: 3,
            num_pages: 5,
            reserved: 0,
        };
        run(Kernel::FillPages(params));
        // Page 10 goes to 2, page 12 to 0; 11 has no place, 9 and 3 are outside.
        let source = pattern(4, 5 * page);
        let expected = [&source[..page], &vec![POISON; page], &source[2 * page..3 * page]];
        dst.assert_holds(&expected.concat());

        let word = poisoned();
        let mut untouched = Memory::new(3 * page);
        let poison = table(std::slice::from_ref(&*word));
        run(Kernel::FillPages(FillPagesParams { dst: untouched.addr(), poison, ..params }));
        untouched.assert_holds(&vec![POISON; 3 * page]);
    }
}

#[test]
fn index_k_rows_are_quantised_into_keys_then_scales() {
    const PAGE_SIZE: usize = 4;
    const PAGE: usize = PAGE_SIZE * 132;
    let keys: Vec<u16> =
        pattern(5, 3 * 256).chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    let dst_rows = [6i64, ROW_SKIP, 1];
    let mut dst = Memory::new(2 * PAGE);
    let params = FillIndexKParams {
        keys: table(&keys),
        dst: dst.addr(),
        dst_rows: table(&dst_rows),
        dst_half: WHOLE,
        poison: 0,
        num_rows: 3,
        page_size: PAGE_SIZE as u32,
    };
    run(Kernel::FillIndexK(params));
    let mut expected = vec![POISON; 2 * PAGE];
    for (i, row) in [(0, 6), (2, 1)] {
        let row_keys: &[u16; 128] = keys[i * 128..][..128].try_into().unwrap();
        let finite = row_keys.iter().map(|&key| fp8::bf16_to_f32(key).abs()).filter(|key| key.is_finite());
        let scale = finite.fold(0.0, f32::max) / 448.0;
        let (page, row) = (row / PAGE_SIZE * PAGE, row % PAGE_SIZE);
        for (k, &key) in row_keys.iter().enumerate() {
            expected[page + row * 128 + k] = fp8::f32_to_e4m3(fp8::bf16_to_f32(key) / scale);
        }
        expected[page + PAGE_SIZE * 128 + 4 * row..][..4].copy_from_slice(&scale.to_le_bytes());
    }
    dst.assert_holds(&expected);

    let word = poisoned();
    let mut untouched = Memory::new(2 * PAGE);
    let poison = table(std::slice::from_ref(&*word));
    run(Kernel::FillIndexK(FillIndexKParams { dst: untouched.addr(), poison, ..params }));
    untouched.assert_holds(&vec![POISON; 2 * PAGE]);
}

#[test]
fn zero_clears_ranges_of_any_alignment_and_nothing_else() {
    let bytes = 3 * 8192;
    let ranges = [(0, 1), (17, 5), (48, 4096), (5001, 8200), (16_384, 8192)];
    let ranges = ranges.map(|(offset, bytes)| ByteRange { offset, bytes });
    let mut dst = Memory::new(bytes);
    let params = ZeroParams {
        dst: dst.addr(),
        ranges: table(&ranges),
        dst_half: WHOLE,
        poison: 0,
        num_ranges: ranges.len() as u32,
        reserved: 0,
    };
    run(Kernel::Zero(params));
    let mut expected = vec![POISON; bytes];
    for range in ranges {
        expected[range.offset as usize..][..range.bytes as usize].fill(0);
    }
    dst.assert_holds(&expected);

    let word = poisoned();
    let mut untouched = Memory::new(bytes);
    let poison = table(std::slice::from_ref(&*word));
    run(Kernel::Zero(ZeroParams { dst: untouched.addr(), poison, ..params }));
    untouched.assert_holds(&vec![POISON; bytes]);
}

#[test]
fn bytes_are_added_one_by_one_and_wrap() {
    for len in [0, 1, 7, 8, 16, 17, 1000, 4099] {
        let (sums, addends) = (pattern(1, len), pattern(2, len));
        let mut dst = Memory::of(&sums);
        let mut src = Memory::of(&addends);
        let params = AddBytesParams { dst: dst.addr(), src: src.addr(), bytes: len as u64, poison: 0 };
        let word = poisoned();
        let poison = table(std::slice::from_ref(&*word));
        run(Kernel::AddBytes(AddBytesParams { poison, ..params }));
        dst.assert_holds(&sums);
        run(Kernel::AddBytes(params));
        let expected: Vec<_> = sums.iter().zip(&addends).map(|(a, b)| a.wrapping_add(*b)).collect();
        dst.assert_holds(&expected);
        src.assert_holds(&addends);
    }
}
