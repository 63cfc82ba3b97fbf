//! The memory that kernels are measured on, and the kernels with their tables.

use std::ptr;

use cpkv::device::{CpuDevice, Device, DeviceBuffer, DeviceError};
use cpkv::pages::{BufferSpec, INDEX_K_DIM};
use cpkv_kernels::abi::{
    FillIndexKParams, FillPagesParams, FillRowsParams, GatherParams, GroupState, HalfSelect, RowLayout,
};
use cpkv_kernels::{Kernel, fp8};

/// Bytes of one row of keys, as the index-K fill reads it: bf16.
pub(crate) const KEY_ROW_BYTES: u64 = INDEX_K_DIM * size_of::<u16>() as u64;

/// Source and destination of one layer buffer. The destination has two halves, as staging has.
pub(crate) struct Desk {
    src: DeviceBuffer,
    dst: DeviceBuffer,
    half_bytes: u64,
}

/// A kernel with all that its parameters point to.
pub(crate) struct Case {
    kernel: Kernel,
    moves: Moves,
    src: DeviceBuffer,
    dst: DeviceBuffer,
    /// Held for the kernel, which has their addresses.
    _tables: Vec<DeviceBuffer>,
}

/// What a kernel must have done.
enum Moves {
    /// Bytes were copied: so many a unit, from and to these offsets.
    Copied { unit_bytes: u64, from_to: Vec<[u64; 2]> },
    /// Keys were quantised: rows of pages of so many tokens, in this order.
    Quantised { page_size: u64, rows: Vec<u64> },
}

impl Desk {
    /// A source of `src_bytes`, and a destination of two halves of `half_bytes`.
    pub(crate) fn new(src_bytes: u64, half_bytes: u64) -> Result<Self, DeviceError> {
        let (src, dst) = (CpuDevice.alloc(src_bytes)?, CpuDevice.alloc(2 * half_bytes)?);
        // Keys of bf16 between 0.5 and 8, of both signs.
        let key = |nth: u64| (nth.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u16;
        let keys: Vec<u8> =
            (0..src_bytes / 2).flat_map(|nth| ((key(nth) & 0x81FF) | 0x3F00).to_le_bytes()).collect();
        CpuDevice.write(&keys, &src)?;
        Ok(Self { src, dst, half_bytes })
    }

    /// A copy of as many bytes as a case writes: the baseline.
    pub(crate) fn memcpy(&self) {
        let bytes = self.half_bytes.min(self.src.bytes()) as usize;
        let src = ptr::with_exposed_provenance::<u8>(self.src.addr() as usize);
        let dst = ptr::with_exposed_provenance_mut::<u8>(self.dst.addr() as usize);
        // SAFETY: `bytes` bytes of two buffers that this desk holds; nothing else touches them meanwhile.
        unsafe { ptr::copy_nonoverlapping(src, dst, bytes) };
    }

    /// The slot-dense gather: slots in order, their pages in an order without neighbours.
    pub(crate) fn gather(&self, spec: BufferSpec) -> Result<Case, DeviceError> {
        let page_bytes = spec.page_bytes();
        let pages = shuffled(self.half_bytes / page_bytes);
        let descriptors = table(pages.iter().flat_map(|&page| [0, page as u32]).map(u32::to_le_bytes))?;
        let bases = table([self.src.addr().to_le_bytes()])?;
        let kernel = Kernel::Gather(GatherParams {
            dst: self.dst.addr(),
            descriptors: descriptors.addr(),
            bases: bases.addr(),
            pool_offset: 0,
            src_half: HalfSelect::default(),
            dst_half: HalfSelect::default(),
            page_bytes,
            poison: 0,
            num_slots: pages.len() as u32,
            first_halved: 1,
        });
        let from_to = (0..).zip(&pages).map(|(slot, page)| [page * page_bytes, slot * page_bytes]);
        let moves = Moves::Copied { unit_bytes: page_bytes, from_to: from_to.collect() };
        Ok(self.case(kernel, moves, vec![descriptors, bases]))
    }

    /// The publish of whole pages to staging: in order, to staging slots without neighbours.
    pub(crate) fn fill_pages(&self, spec: BufferSpec) -> Result<Case, DeviceError> {
        let page_bytes = spec.page_bytes();
        let slots = shuffled(self.half_bytes / page_bytes);
        let pages = table((0..slots.len() as i32).map(i32::to_le_bytes))?;
        let inverse = table(slots.iter().map(|&slot| (slot as i32).to_le_bytes()))?;
        let (dst_half, state) = self.second_half()?;
        let kernel = Kernel::FillPages(FillPagesParams {
            src: self.src.addr(),
            src_pages: pages.addr(),
            pages: pages.addr(),
            inverse: inverse.addr(),
            dst: self.dst.addr(),
            src_half: HalfSelect::default(),
            dst_half,
            page_bytes,
            poison: 0,
            first_page: 0,
            inverse_len: slots.len() as u32,
            num_pages: slots.len() as u32,
            reserved: 0,
        });
        let to = |slot: u64| self.half_bytes + slot * page_bytes;
        let from_to = (0..).zip(&slots).map(|(page, &slot)| [page * page_bytes, to(slot)]);
        let moves = Moves::Copied { unit_bytes: page_bytes, from_to: from_to.collect() };
        Ok(self.case(kernel, moves, vec![pages, inverse, state]))
    }

    /// The fill of staging: rows in order, their pages at staging slots without neighbours.
    pub(crate) fn fill_staging_rows(&self, spec: BufferSpec) -> Result<Case, DeviceError> {
        self.fill_rows(spec, &staging_rows(spec, self.half_bytes / spec.row_bytes()))
    }

    /// The fill of rows that lie apart: no two have neighbouring destinations.
    pub(crate) fn fill_rows_apart(&self, spec: BufferSpec) -> Result<Case, DeviceError> {
        self.fill_rows(spec, &shuffled(self.half_bytes / spec.row_bytes()))
    }

    fn fill_rows(&self, spec: BufferSpec, rows: &[u64]) -> Result<Case, DeviceError> {
        let row_bytes = spec.row_bytes();
        let layout = RowLayout { page_bytes: spec.page_bytes(), offset: 0 };
        let dst_rows = table(rows.iter().map(|row| row.to_le_bytes()))?;
        let (dst_half, state) = self.second_half()?;
        let kernel = Kernel::FillRows(FillRowsParams {
            src: self.src.addr(),
            src_rows: 0,
            dst: self.dst.addr(),
            dst_rows: dst_rows.addr(),
            src_layout: layout,
            dst_layout: layout,
            dst_half,
            poison: 0,
            row_bytes,
            num_rows: rows.len() as u32,
            page_size: spec.page_size(),
        });
        let to = |row: u64| self.half_bytes + row * row_bytes;
        let from_to = (0..).zip(rows).map(|(nth, &row)| [nth * row_bytes, to(row)]);
        let moves = Moves::Copied { unit_bytes: row_bytes, from_to: from_to.collect() };
        Ok(self.case(kernel, moves, vec![dst_rows, state]))
    }

    /// The index-K fill of staging: rows as [`Desk::fill_staging_rows`] has them.
    pub(crate) fn fill_index_k(&self, spec: BufferSpec) -> Result<Case, DeviceError> {
        let rows = staging_rows(spec, self.half_bytes / spec.row_bytes());
        let dst_rows = table(rows.iter().map(|row| row.to_le_bytes()))?;
        let (dst_half, state) = self.second_half()?;
        let kernel = Kernel::FillIndexK(FillIndexKParams {
            keys: self.src.addr(),
            dst: self.dst.addr(),
            dst_rows: dst_rows.addr(),
            dst_half,
            poison: 0,
            num_rows: rows.len() as u32,
            page_size: spec.page_size(),
        });
        let moves = Moves::Quantised { page_size: u64::from(spec.page_size()), rows };
        Ok(self.case(kernel, moves, vec![dst_rows, state]))
    }

    /// The destination's second half, as an epoch in memory selects it.
    fn second_half(&self) -> Result<(HalfSelect, DeviceBuffer), DeviceError> {
        let state = table([GroupState { epoch: 1 }.epoch.to_le_bytes()])?;
        Ok((HalfSelect { state: state.addr(), stride: self.half_bytes, passed: 0 }, state))
    }

    fn case(&self, kernel: Kernel, moves: Moves, tables: Vec<DeviceBuffer>) -> Case {
        Case { kernel, moves, src: self.src.clone(), dst: self.dst.clone(), _tables: tables }
    }
}

impl Case {
    /// Runs the kernel's body on this thread.
    pub(crate) fn run(&self) {
        // SAFETY: `Desk` made the parameters of buffers that this case holds, and the tables name units inside them, each
        // destination once. Nothing else touches them meanwhile.
        unsafe { self.kernel.run() };
    }

    /// Runs the kernel once on a destination that is zeroed before. Whether every unit then is where it belongs.
    pub(crate) fn is_exact(&self) -> Result<bool, DeviceError> {
        let (mut src, mut dst) = (vec![0; self.src.bytes() as usize], vec![0; self.dst.bytes() as usize]);
        CpuDevice.write(&dst, &self.dst)?;
        self.run();
        CpuDevice.read(&self.src, &mut src)?;
        CpuDevice.read(&self.dst, &mut dst)?;
        Ok(match &self.moves {
            Moves::Copied { unit_bytes, from_to } => {
                let unit = |bytes: &[u8], at: u64| bytes[at as usize..(at + unit_bytes) as usize].to_vec();
                from_to.iter().all(|&[from, to]| unit(&src, from) == unit(&dst, to))
            }
            Moves::Quantised { page_size, rows } => {
                let half = &dst[dst.len() / 2..];
                let keys = src.chunks_exact(KEY_ROW_BYTES as usize);
                keys.zip(rows).all(|(keys, &row)| is_quantised(keys, half, *page_size, row))
            }
        })
    }
}

/// Whether row `row` of the pages at `pages` has the codes and the scale of `keys`.
fn is_quantised(keys: &[u8], pages: &[u8], page_size: u64, row: u64) -> bool {
    let keys: Vec<u16> = keys.as_chunks().0.iter().map(|key| u16::from_le_bytes(*key)).collect();
    let scale = fp8::scale_of(keys.iter().map(|&key| fp8::finite_magnitude(key)).max().unwrap_or(0));
    let codes: Vec<u8> = keys.iter().map(|&key| fp8::quantise(key, scale)).collect();
    let (dim, scale_bytes) = (INDEX_K_DIM as usize, size_of::<f32>());
    let (page_size, row) = (page_size as usize, row as usize);
    let page = &pages[row / page_size * page_size * (dim + scale_bytes)..];
    let (codes_at, scale_at) = (row % page_size * dim, page_size * dim + row % page_size * scale_bytes);
    page[codes_at..codes_at + dim] == codes && page[scale_at..scale_at + scale_bytes] == scale.to_le_bytes()
}

/// Where the rows of pages in order go, whose staging slots have no neighbours.
fn staging_rows(spec: BufferSpec, num_rows: u64) -> Vec<u64> {
    let page_size = u64::from(spec.page_size());
    let slots = shuffled(num_rows / page_size).into_iter();
    slots.flat_map(|slot| slot * page_size..(slot + 1) * page_size).collect()
}

/// `0..num` in an order without neighbours: steps of a third and a bit, which meet every number once.
fn shuffled(num: u64) -> Vec<u64> {
    const fn gcd(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    let step = (num * 3 / 8 + 1..).find(|&step| gcd(step, num) == 1).unwrap_or(1);
    (0..num).map(|nth| nth * step % num).collect()
}

/// `entries` in memory of the device.
fn table<const N: usize>(entries: impl IntoIterator<Item = [u8; N]>) -> Result<DeviceBuffer, DeviceError> {
    let bytes: Vec<u8> = entries.into_iter().flatten().collect();
    let table = CpuDevice.alloc(bytes.len() as u64)?;
    CpuDevice.write(&bytes, &table)?;
    Ok(table)
}
