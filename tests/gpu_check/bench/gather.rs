//! Gathers against a device-to-device memcpy of the same bytes, in turn.

use std::sync::Arc;

use cpkv::device::{Device, DeviceBuffer, Keep, Stream};
use cpkv::plan::TablePacker;
use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{Descriptor, GatherParams, HalfSelect};

use super::samples::Samples;
use super::{gb_per_s, time_ns};
use crate::context::Context;
use crate::outcome::{Cell, Figures, Outcome, Problem};
use crate::pattern::Pattern;

/// Index-K; token-KV of 656 bytes; token-KV of 1152 bytes: 64 tokens each.
const PAGE_BYTES: [u64; 3] = [8448, 41_984, 73_728];
/// A measurement moves this many bytes at least, by repetition.
const MIN_BYTES: u64 = 64 << 20;
/// Results of this many bytes at most are compared on the host.
const MAX_COMPARED: u64 = 128 << 20;
/// What a gather is to reach of the memcpy, where pages have 41,984 bytes and are shuffled.
const AIM: f64 = 0.9;
const AIMED_AT: u64 = 41_984;
const WHOLE: HalfSelect = HalfSelect { state: 0, stride: 0, passed: 0 };

/// The memory of all cases.
struct Bench<'a> {
    device: &'a dyn Device,
    stream: Arc<dyn Stream>,
    src: DeviceBuffer,
    dst: DeviceBuffer,
    /// What `src` holds.
    content: Vec<u8>,
    rounds: usize,
    repeats: bool,
}

/// One case.
#[derive(Clone, Copy)]
struct Case {
    page_bytes: u64,
    num_pages: u64,
    is_shuffled: bool,
}

/// All page sizes, numbers of pages and orders.
pub(crate) fn run(context: &Context) -> Result<Outcome, Problem> {
    let gpu = context.open()?;
    let counts: &[u64] = if context.quick { &[4, 12] } else { &[256, 1024, 4096, 8192] };
    let page_sizes = if context.quick { &PAGE_BYTES[..2] } else { &PAGE_BYTES[..] };
    let most = counts.iter().max().unwrap_or(&0) * page_sizes.iter().max().unwrap_or(&0);
    let (src, dst) = (gpu.alloc(most)?, gpu.alloc(most)?);
    let content = Pattern::new(3).bytes(most as usize);
    gpu.write(&content, &src)?;
    let (rounds, repeats) = (context.pick(9, 3), !context.quick);
    let bench = Bench { device: &gpu, stream: gpu.stream()?, src, dst, content, rounds, repeats };
    let mut figures = Figures::new(
        "Gather on one GPU: GB gathered a second (a page read and written counts once)",
        &["page bytes", "pages", "order", "memcpy", "vector", "of memcpy", "bulk", "of memcpy", "aim"],
    );
    for &page_bytes in page_sizes {
        for &num_pages in counts {
            for is_shuffled in [false, true] {
                bench.case(&mut figures, Case { page_bytes, num_pages, is_shuffled })?;
            }
        }
    }
    figures.notes.push(format!(
        "medians of {rounds} rounds, in each of which memcpy, vector and bulk take turns; small cases are repeated up \
         to 32 times in a measurement, so those that fit the L2 cache are served from it, memcpy's as well"
    ));
    figures.notes.push(format!(
        "aim: the better gather reaches {:.0} % of memcpy, pages of {AIMED_AT} bytes, shuffled",
        100.0 * AIM
    ));
    let num = figures.rows.len();
    let detail = format!("{num} cases, bytes compared up to {} MiB", MAX_COMPARED >> 20);
    Ok(Outcome::Passed { detail, tables: vec![figures] })
}

impl Bench<'_> {
    fn case(&self, figures: &mut Figures, case: Case) -> Result<(), Problem> {
        let bytes = case.page_bytes * case.num_pages;
        let order = match case.is_shuffled {
            true => Pattern::new(case.num_pages).permutation(case.num_pages as usize),
            false => (0..case.num_pages as i32).collect(),
        };
        let (tables, params) = self.prepare(case, &order)?;
        let (src, dst) = (self.src.slice(0..bytes)?, self.dst.slice(0..bytes)?);
        let keep: Keep = Arc::new((tables, src.clone(), dst.clone()));
        let repeats = if self.repeats { (MIN_BYTES / bytes).clamp(1, 32) } else { 1 };
        let mut samples: [Samples; 3] = Default::default();
        // One round to warm up.
        for round in 0..=self.rounds {
            for (kind, samples) in samples.iter_mut().enumerate() {
                let ns = time_ns(&*self.stream, || {
                    for _ in 0..repeats {
                        let kernel = match kind {
                            0 => {
                                self.stream.copy(&src, &dst)?;
                                continue;
                            }
                            1 => Kernel::Gather(params),
                            _ => Kernel::GatherBulk(params),
                        };
                        // SAFETY: tables, source and destination live in `keep`, and this stream alone uses them.
                        unsafe { self.stream.launch(kernel, &keep) }?;
                    }
                    Ok(())
                })?;
                if round > 0 {
                    samples.push(gb_per_s(repeats * bytes, ns));
                }
                if round == 0 && kind > 0 && bytes <= MAX_COMPARED {
                    self.compare(case, &order, &dst)?;
                }
            }
        }
        let [memcpy, vector, bulk] = samples.map(|samples| samples.median());
        let ratios = [vector / memcpy, bulk / memcpy];
        let aim = match (case.page_bytes == AIMED_AT && case.is_shuffled, ratios[0].max(ratios[1]) >= AIM) {
            (false, _) => "",
            (true, true) => "met",
            (true, false) => "missed",
        };
        let order = if case.is_shuffled { "shuffled" } else { "in order" };
        let size: [Cell; 3] = [case.page_bytes.into(), case.num_pages.into(), order.into()];
        let speeds = [memcpy, vector, ratios[0], bulk, ratios[1]].map(Cell::from);
        figures.row(size.into_iter().chain(speeds).chain([aim.into()]));
        Ok(())
    }

    /// The gather's tables, and its parameters.
    fn prepare(&self, case: Case, order: &[i32]) -> Result<(DeviceBuffer, GatherParams), Problem> {
        let mut packer = TablePacker::default();
        let slots: Vec<_> = order.iter().map(|&page| Descriptor { base: 0, page }).collect();
        let descriptors = packer.push(&slots).offset;
        let bases = packer.push(&[self.src.addr()]).offset;
        let bytes = packer.finish().bytes;
        let tables = self.device.alloc(bytes.len() as u64)?;
        self.device.write(&bytes, &tables)?;
        let params = GatherParams {
            dst: self.dst.addr(),
            descriptors: tables.addr() + descriptors,
            bases: tables.addr() + bases,
            pool_offset: 0,
            src_half: WHOLE,
            dst_half: WHOLE,
            page_bytes: case.page_bytes,
            poison: 0,
            num_slots: case.num_pages as u32,
            first_halved: 1,
        };
        Ok((tables, params))
    }

    /// Compares the slots with the pages they were gathered from, and overwrites them.
    fn compare(&self, case: Case, order: &[i32], dst: &DeviceBuffer) -> Result<(), Problem> {
        let mut got = vec![0; dst.bytes() as usize];
        self.device.read(dst, &mut got)?;
        let page_bytes = case.page_bytes as usize;
        for (slot, (got, &page)) in got.chunks_exact(page_bytes).zip(order).enumerate() {
            if *got != self.content[page as usize * page_bytes..][..page_bytes] {
                return Err(format!("slot {slot} does not hold page {page}, of {page_bytes} bytes").into());
            }
        }
        got.fill(0);
        Ok(self.device.write(&got, dst)?)
    }
}
