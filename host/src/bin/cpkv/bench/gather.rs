//! The gather kernel by page size, and the fill of rows, each against a copy of as many bytes on the same stream: one rank,
//! its own memory.

use std::sync::Arc;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::device::{Device, DeviceBuffer, Keep, Stream};
use cpkv::model::ModelSpec;
use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{FillRowsParams, GatherParams, HalfSelect, RowLayout};

use super::batches::shuffled;
use super::copies::CopySamples;
use super::report::CopyRow;
use super::rounds;
use crate::error::RunError;

/// Page sizes beside the model's own, in bytes.
const PAGE_BYTES: [u64; 6] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Longest wait for one copy.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Memory and tables of the kernels.
struct Arena {
    stream: Arc<dyn Stream>,
    src: DeviceBuffer,
    dst: DeviceBuffer,
    /// `[1]` base address: `src`.
    bases: DeviceBuffer,
    keep: Keep,
}

/// A kernel with its samples.
struct Bench {
    samples: CopySamples,
    kernel: Kernel,
}

/// Measures. `sample_bytes` are copied each time.
pub(crate) fn measure(
    device: &dyn Device,
    model: &ModelSpec,
    sample_bytes: u64,
    share: Duration,
) -> Result<Vec<CopyRow>, RunError> {
    let mut arena = Arena::new(device, sample_bytes)?;
    let mut page_bytes: Vec<u64> = PAGE_BYTES.to_vec();
    page_bytes.extend(model.buffers.iter().map(|buffer| buffer.spec.page_bytes()));
    page_bytes.sort_unstable();
    page_bytes.dedup();
    let mut benches = Vec::new();
    for bytes in page_bytes.into_iter().filter(|bytes| *bytes <= sample_bytes) {
        benches.push(arena.gather(device, CopySamples::new("gather", bytes, sample_bytes))?);
    }
    if let Some(buffer) = model.buffers.first() {
        let row_bytes = buffer.spec.row_bytes();
        benches.push(arena.fill_rows(device, CopySamples::new("fill_rows", row_bytes, sample_bytes))?);
    }
    rounds::run(share, |counts| -> Result<(), RunError> {
        for bench in &mut benches {
            let ours = arena.time_kernel(bench.kernel)?;
            let memcpy = arena.time_memcpy(bench.samples.bytes)?;
            if counts {
                bench.samples.ours.push(ours);
                bench.samples.memcpy.push(memcpy);
            }
        }
        Ok(())
    })?;
    Ok(benches.iter().filter_map(|bench| bench.samples.row()).collect())
}

impl Arena {
    fn new(device: &dyn Device, bytes: u64) -> Result<Self, RunError> {
        let (src, dst) = (device.alloc(bytes)?, device.alloc(bytes)?);
        let bases = device.alloc(8)?;
        device.write(&src.addr().to_le_bytes(), &bases)?;
        // Pages that were never written may all be one page of zeros.
        device.write(&vec![0x5A; bytes as usize], &src)?;
        let keep: Keep = Arc::new((src.clone(), dst.clone(), bases.clone()));
        Ok(Self { stream: device.stream()?, src, dst, bases, keep })
    }

    /// `bytes` in memory that every later kernel keeps alive.
    fn table(&mut self, device: &dyn Device, bytes: &[u8]) -> Result<u64, RunError> {
        let table = device.alloc(bytes.len() as u64)?;
        device.write(bytes, &table)?;
        let addr = table.addr();
        self.keep = Arc::new((Arc::clone(&self.keep), table));
        Ok(addr)
    }

    /// A gather of all pages, in an order without neighbours.
    fn gather(&mut self, device: &dyn Device, samples: CopySamples) -> Result<Bench, RunError> {
        let num_slots = samples.num_units();
        let descriptors = shuffled(num_slots, samples.unit_bytes).into_iter().flat_map(|page| [0, page]);
        let descriptors: Vec<u8> = descriptors.flat_map(u32::to_le_bytes).collect();
        let kernel = Kernel::Gather(GatherParams {
            dst: self.dst.addr(),
            descriptors: self.table(device, &descriptors)?,
            bases: self.bases.addr(),
            pool_offset: 0,
            src_half: HalfSelect::default(),
            dst_half: HalfSelect::default(),
            page_bytes: samples.unit_bytes,
            poison: 0,
            num_slots,
            first_halved: 1,
        });
        Ok(Bench { samples, kernel })
    }

    /// A scatter of all rows, in an order without neighbours.
    fn fill_rows(&mut self, device: &dyn Device, samples: CopySamples) -> Result<Bench, RunError> {
        let num_rows = samples.num_units();
        let rows: Vec<u8> = shuffled(num_rows, samples.unit_bytes)
            .into_iter()
            .map(i64::from)
            .flat_map(i64::to_le_bytes)
            .collect();
        // Pages of one row.
        let layout = RowLayout { page_bytes: samples.unit_bytes, offset: 0 };
        let kernel = Kernel::FillRows(FillRowsParams {
            src: self.src.addr(),
            src_rows: 0,
            dst: self.dst.addr(),
            dst_rows: self.table(device, &rows)?,
            src_layout: layout,
            dst_layout: layout,
            dst_half: HalfSelect::default(),
            poison: 0,
            row_bytes: samples.unit_bytes,
            num_rows,
            page_size: 1,
        });
        Ok(Bench { samples, kernel })
    }

    /// Milliseconds of one launch.
    fn time_kernel(&self, kernel: Kernel) -> Result<f64, RunError> {
        self.time(|stream| {
            // SAFETY: tables, source and destination are kept alive, and hold every unit that the tables name once; this
            // stream alone touches them, one launch after the other.
            Ok(unsafe { stream.launch(kernel, &self.keep) }?)
        })
    }

    /// Milliseconds of a copy of `bytes` bytes.
    fn time_memcpy(&self, bytes: u64) -> Result<f64, RunError> {
        let src = self.src.slice(0..bytes)?;
        self.time(|stream| Ok(stream.copy(&src, &self.dst)?))
    }

    fn time(&self, work: impl FnOnce(&dyn Stream) -> Result<(), RunError>) -> Result<f64, RunError> {
        let start = self.stream.record()?;
        work(&*self.stream)?;
        let end = self.stream.record()?;
        self.stream.synchronize(Deadline::after(TIMEOUT))?;
        let [start, end] = [start, end].map(|event| event.fired_at_ns().unwrap_or(0));
        Ok(end.saturating_sub(start) as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use cpkv::device::CpuDevice;

    use super::*;

    #[test]
    fn kernels_copy_every_unit_once() {
        let bytes = 12 * 1024;
        let mut arena = Arena::new(&CpuDevice, bytes).unwrap();
        // No two stretches are alike, and none is alike backwards.
        let pattern: Vec<u8> = (0..bytes).map(|at| (at / 256 + 7 * at) as u8).collect();
        CpuDevice.write(&pattern, &arena.src).unwrap();
        let gather = arena.gather(&CpuDevice, CopySamples::new("gather", 1024, bytes)).unwrap();
        let fill = arena.fill_rows(&CpuDevice, CopySamples::new("fill_rows", 512, bytes)).unwrap();
        for Bench { samples, kernel } in [gather, fill] {
            CpuDevice.write(&vec![0xFF; bytes as usize], &arena.dst).unwrap();
            arena.time_kernel(kernel).unwrap();
            let mut copied = vec![0; bytes as usize];
            CpuDevice.read(&arena.dst, &mut copied).unwrap();
            assert_ne!(copied, pattern);
            let units = |bytes: &[u8]| {
                let mut units: Vec<_> =
                    bytes.chunks(samples.unit_bytes as usize).map(<[u8]>::to_vec).collect();
                units.sort_unstable();
                units
            };
            assert_eq!(units(&copied), units(&pattern), "whole units, each once");
        }
    }

    #[test]
    fn every_page_size_has_a_row_and_the_rows_a_fill() {
        let model = ModelSpec::preset("tiny").unwrap();
        let rows = measure(&CpuDevice, &model, 64 << 10, Duration::ZERO).unwrap();
        let sizes: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.unit_bytes)).collect();
        let gather = |bytes| ("gather", bytes);
        let expected = [
            gather(128),
            gather(528),
            gather(1024),
            gather(4096),
            gather(16_384),
            gather(65_536),
            ("fill_rows", 32),
        ];
        assert_eq!(sizes, expected);
        assert!(rows.iter().all(|row| row.samples == 3 && row.ms_median > 0.0));
    }
}
