//! Transfer by block size: one batch of scattered blocks from its submit to its completion, against a memcpy of as many bytes.

use std::time::{Duration, Instant};

use cpkv::deadline::Deadline;
use cpkv::device::{CpuDevice, Device, DeviceBuffer, Stream};
use cpkv::transfer::{Block, PeerId};

use super::batches::shuffled;
use super::copies::CopySamples;
use super::engines::{self, EnginePair};
use super::report::{CopyRow, LeftOut};
use super::rounds;
use crate::error::RunError;

/// Bytes of a block.
const BLOCK_BYTES: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Longest wait for one batch.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An engine with its memory on both sides.
struct Link {
    pair: EnginePair,
    peer: PeerId,
    src: DeviceBuffer,
    dst: DeviceBuffer,
}

/// Batches of one block size over one engine.
struct Bench {
    link_idx: usize,
    blocks: Vec<Block>,
    samples: CopySamples,
}

/// Measures every engine there is. `sample_bytes` are sent each time.
pub(crate) fn measure(sample_bytes: u64, share: Duration) -> Result<(Vec<CopyRow>, Vec<LeftOut>), RunError> {
    let (mut links, mut left_out) = (vec![Link::open(engines::in_process()?, sample_bytes)?], Vec::new());
    match engines::nixl() {
        Ok(pair) => match Link::open(pair, sample_bytes) {
            Ok(link) => links.push(link),
            Err(error) => left_out.push(LeftOut::new("transfer over NIXL", error.to_string())),
        },
        Err(missing) => left_out.push(missing),
    }
    let mut benches = Vec::new();
    for (link_idx, link) in links.iter().enumerate() {
        for bytes in BLOCK_BYTES.into_iter().filter(|bytes| *bytes <= sample_bytes) {
            let samples = CopySamples::new(link.pair.name, bytes, sample_bytes);
            benches.push(Bench { link_idx, blocks: link.blocks(&samples), samples });
        }
    }
    let stream = CpuDevice.stream()?;
    rounds::run(share, |counts| -> Result<(), RunError> {
        for bench in &mut benches {
            let Some(link) = links.get(bench.link_idx) else { continue };
            let ours = link.time_batch(&bench.blocks)?;
            let memcpy = link.time_memcpy(&*stream, bench.samples.bytes)?;
            if counts {
                bench.samples.ours.push(ours);
                bench.samples.memcpy.push(memcpy);
            }
        }
        Ok(())
    })?;
    Ok((benches.iter().filter_map(|bench| bench.samples.row()).collect(), left_out))
}

impl Link {
    fn open(pair: EnginePair, bytes: u64) -> Result<Self, RunError> {
        let (src, dst) = (CpuDevice.alloc(bytes)?, CpuDevice.alloc(bytes)?);
        // Pages that were never written may all be one page of zeros.
        CpuDevice.write(&vec![0x5A; bytes as usize], &src)?;
        pair.sender.register(&src)?;
        pair.receiver.register(&dst)?;
        let peer = pair.sender.add_peer(&pair.receiver.metadata()?)?;
        Ok(Self { pair, peer, src, dst })
    }

    /// Blocks that cover all of a sample, none beside its neighbour on both sides: engines cannot merge them.
    fn blocks(&self, samples: &CopySamples) -> Vec<Block> {
        let bytes = samples.unit_bytes;
        let order = shuffled(samples.num_units(), bytes);
        let block = |(from, to): (u64, u32)| Block {
            src: self.src.addr() + from * bytes,
            dst: self.dst.addr() + u64::from(to) * bytes,
            bytes,
        };
        (0..).zip(order).map(block).collect()
    }

    /// Milliseconds from the submit to the completion.
    fn time_batch(&self, blocks: &[Block]) -> Result<f64, RunError> {
        let begun = Instant::now();
        let batch = self.pair.sender.submit(self.peer, blocks)?;
        self.pair.sender.wait(batch, Deadline::after(TIMEOUT))?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }

    /// Milliseconds of a copy on a stream, waited for in the same way.
    fn time_memcpy(&self, stream: &dyn Stream, bytes: u64) -> Result<f64, RunError> {
        let src = self.src.slice(0..bytes)?;
        let begun = Instant::now();
        stream.copy(&src, &self.dst)?;
        stream.synchronize(Deadline::after(TIMEOUT))?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_arrive_where_they_are_to_go() {
        let bytes = 64 << 10;
        let link = Link::open(engines::in_process().unwrap(), bytes).unwrap();
        let samples = CopySamples::new("in-process", 4096, bytes);
        let blocks = link.blocks(&samples);
        assert_eq!(blocks.len(), 16);
        let pattern: Vec<u8> = (0..bytes).map(|at| (at / 4096) as u8 + 1).collect();
        CpuDevice.write(&pattern, &link.src).unwrap();
        assert!(link.time_batch(&blocks).unwrap() > 0.0);
        let mut arrived = vec![0; bytes as usize];
        CpuDevice.read(&link.dst, &mut arrived).unwrap();
        for block in blocks {
            let from = (block.src - link.src.addr()) as usize;
            let to = (block.dst - link.dst.addr()) as usize;
            assert_eq!(arrived[to..to + 4096], pattern[from..from + 4096]);
        }
    }

    #[test]
    fn every_block_size_that_fits_has_a_row() {
        let (rows, _) = measure(64 << 10, Duration::ZERO).unwrap();
        let ours = rows.iter().filter(|row| row.name == "in-process");
        let sizes: Vec<_> = ours.map(|row| row.unit_bytes).collect();
        assert_eq!(sizes, [4 << 10, 16 << 10, 64 << 10]);
        assert!(rows.iter().all(|row| row.samples == 3 && row.gb_per_s > 0.0 && row.memcpy_gb_per_s > 0.0));
    }
}
