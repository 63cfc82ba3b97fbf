//! Fills: bytes written a second, against a memcpy of as many.

use std::sync::Arc;

use cpkv::device::{CudaDevice, Device, DeviceBuffer, Keep};
use cpkv::plan::TablePacker;
use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{
    ByteRange, FillIndexKParams, FillPagesParams, FillRowsParams, HalfSelect, RowLayout, ZeroParams,
};

use super::samples::Samples;
use super::{gb_per_s, time_ns};
use crate::context::Context;
use crate::outcome::{Cell, Figures, Outcome, Problem};
use crate::pattern::Pattern;

const PAGE_SIZE: u64 = 64;
const ROW_BYTES: u64 = 656;
const TOKEN_PAGE: u64 = PAGE_SIZE * ROW_BYTES;
/// Keys and a scale of a row.
const KEY_ROW_BYTES: u64 = 132;
const WHOLE: HalfSelect = HalfSelect { state: 0, stride: 0, passed: 0 };

/// One fill, what it goes through, and what it writes.
struct Fill {
    kernel: Kernel,
    items: String,
    bytes: u64,
}

/// All fills, in turn.
pub(crate) fn run(context: &Context) -> Result<Outcome, Problem> {
    let gpu = context.open()?;
    let stream = gpu.stream()?;
    let num_pages = context.pick(2048, 3);
    let (src, dst) = (gpu.alloc(num_pages * TOKEN_PAGE)?, gpu.alloc(num_pages * TOKEN_PAGE)?);
    // Keys are finite: a quantised NaN costs no less, but says nothing.
    let keys: Vec<u8> = Pattern::new(5)
        .bytes((num_pages * PAGE_SIZE * 256) as usize)
        .chunks_exact(2)
        .flat_map(|key| [key[0], key[1] & 0x87 | 0x38])
        .collect();
    gpu.write(&keys, &src)?;
    let (tables, fills) = fills(&gpu, num_pages, &src, &dst)?;
    let keep: Keep = Arc::new((tables, src.clone(), dst.clone()));
    let rounds = context.pick(9, 3);
    let mut samples = vec![(Samples::default(), Samples::default()); fills.len()];
    for round in 0..=rounds {
        for (fill, (ours, memcpy)) in fills.iter().zip(&mut samples) {
            let copied = (src.slice(0..fill.bytes)?, dst.slice(0..fill.bytes)?);
            let memcpy_ns = time_ns(&*stream, || stream.copy(&copied.0, &copied.1))?;
            // SAFETY: tables, sources and destinations live in `keep`, and this stream alone uses them.
            let ours_ns = time_ns(&*stream, || unsafe { stream.launch(fill.kernel, &keep) })?;
            // The first round warms up.
            if round > 0 {
                ours.push(ours_ns);
                memcpy.push(memcpy_ns);
            }
        }
    }
    let mut figures = Figures::new(
        "Fills on one GPU: GB written a second",
        &["kernel", "items", "MB written", "us", "GB/s", "memcpy of as many", "of memcpy"],
    );
    for (fill, (ours, memcpy)) in fills.iter().zip(&samples) {
        let speeds = [ours, memcpy].map(|samples| gb_per_s(fill.bytes, samples.median()));
        let numbers =
            [fill.bytes as f64 / 1e6, ours.median() / 1e3, speeds[0], speeds[1], speeds[0] / speeds[1]];
        let words: [Cell; 2] = [fill.kernel.name().into(), fill.items.as_str().into()];
        figures.row(words.into_iter().chain(numbers.map(Cell::from)));
    }
    figures
        .notes
        .push(format!("medians of {rounds} rounds of one launch each; rows and pages in a shuffled order"));
    Ok(Outcome::Passed { detail: format!("{} fills measured", fills.len()), tables: vec![figures] })
}

/// The tables, and the fills that read them.
fn fills(
    gpu: &CudaDevice,
    num_pages: u64,
    src: &DeviceBuffer,
    dst: &DeviceBuffer,
) -> Result<(DeviceBuffer, Vec<Fill>), Problem> {
    let num_rows = num_pages * PAGE_SIZE;
    let mut packer = TablePacker::default();
    let order = Pattern::new(1).permutation(num_rows as usize);
    let rows = packer.push(&order.iter().map(|&row| i64::from(row)).collect::<Vec<_>>()).offset;
    let pages = packer.push(&(0..num_pages as i32).collect::<Vec<_>>()).offset;
    let inverse = packer.push(&Pattern::new(2).permutation(num_pages as usize)).offset;
    let each = |page| ByteRange { offset: page * TOKEN_PAGE, bytes: TOKEN_PAGE };
    let ranges = packer.push(&(0..num_pages).map(each).collect::<Vec<_>>()).offset;
    let bytes = packer.finish().bytes;
    let tables = gpu.alloc(bytes.len() as u64)?;
    gpu.write(&bytes, &tables)?;
    let at = |offset: u64| tables.addr() + offset;
    let layout = RowLayout { page_bytes: TOKEN_PAGE, offset: 0 };
    let rows_kernel = Kernel::FillRows(FillRowsParams {
        src: src.addr(),
        src_rows: 0,
        dst: dst.addr(),
        dst_rows: at(rows),
        src_layout: layout,
        dst_layout: layout,
        dst_half: WHOLE,
        poison: 0,
        row_bytes: ROW_BYTES,
        num_rows: num_rows as u32,
        page_size: PAGE_SIZE as u32,
    });
    let index_k = Kernel::FillIndexK(FillIndexKParams {
        keys: src.addr(),
        dst: dst.addr(),
        dst_rows: at(rows),
        dst_half: WHOLE,
        poison: 0,
        num_rows: num_rows as u32,
        page_size: PAGE_SIZE as u32,
    });
    let pages_kernel = Kernel::FillPages(FillPagesParams {
        src: src.addr(),
        src_pages: at(pages),
        pages: at(pages),
        inverse: at(inverse),
        dst: dst.addr(),
        src_half: WHOLE,
        dst_half: WHOLE,
        page_bytes: TOKEN_PAGE,
        poison: 0,
        first_page: 0,
        inverse_len: num_pages as u32,
        num_pages: num_pages as u32,
        reserved: 0,
    });
    let zero = Kernel::Zero(ZeroParams {
        dst: dst.addr(),
        ranges: at(ranges),
        dst_half: WHOLE,
        poison: 0,
        num_ranges: num_pages as u32,
        reserved: 0,
    });
    let (of_rows, of_pages) = (format!("{num_rows} rows"), format!("{num_pages} pages"));
    let page_bytes = num_pages * TOKEN_PAGE;
    let fills = vec![
        Fill {
            kernel: rows_kernel,
            items: format!("{of_rows} of {ROW_BYTES} B"),
            bytes: num_rows * ROW_BYTES,
        },
        Fill { kernel: index_k, items: format!("{of_rows} of 128 keys"), bytes: num_rows * KEY_ROW_BYTES },
        Fill { kernel: pages_kernel, items: format!("{of_pages} of {TOKEN_PAGE} B"), bytes: page_bytes },
        Fill { kernel: zero, items: format!("{of_pages} of {TOKEN_PAGE} B"), bytes: page_bytes },
    ];
    Ok((tables, fills))
}
