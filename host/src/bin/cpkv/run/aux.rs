//! Small extra buffers: for every transfer, each rank sends one worker 64 bytes that say what they are.

use cpkv::device::{Device, DeviceBuffer, DeviceError};
use cpkv::transfer::{AuxBlock, Block, Offer, RequestId, TransferEpoch};
use cpkv::units::Rank;

use super::job::{Lane, RunJob};

/// Bytes of one rank's buffer for one transfer.
pub(crate) const AUX_BYTES: u64 = 64;

/// Memory for all buffers: of all transfers, by entry, at a rank; and of all ranks at a worker.
pub(crate) struct AuxMemory {
    memory: DeviceBuffer,
    ranks_here: u64,
}

/// Which buffer a transfer has. Entries are used again, with other bytes.
pub(crate) const fn entry_of(request: RequestId) -> u32 {
    request.0 as u32
}

/// The worker that a transfer's buffers go to.
pub(crate) const fn aux_worker(request: RequestId, num_workers: u32) -> u32 {
    entry_of(request) % num_workers
}

/// What rank `rank` sends for a transfer. No two transfers send the same.
pub(crate) fn aux_bytes(epoch: TransferEpoch, rank: Rank) -> [u8; AUX_BYTES as usize] {
    let mut bytes = [0; AUX_BYTES as usize];
    for (word, i) in bytes.chunks_exact_mut(8).zip(1_u64..) {
        let value = (epoch.0 << 16 | u64::from(rank.0) << 8 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

impl AuxMemory {
    /// A rank's.
    pub(crate) fn of_rank(device: &dyn Device, job: &RunJob) -> Result<Self, DeviceError> {
        Self::alloc(device, job, 1)
    }

    /// A worker's.
    pub(crate) fn of_worker(device: &dyn Device, job: &RunJob) -> Result<Self, DeviceError> {
        Self::alloc(device, job, u64::from(job.base.group_size.get()))
    }

    fn alloc(device: &dyn Device, job: &RunJob, ranks_here: u64) -> Result<Self, DeviceError> {
        let num_entries = (job.roster.requests().len() * Lane::NUM) as u64;
        let memory = device.alloc(num_entries * ranks_here * AUX_BYTES)?;
        Ok(Self { memory, ranks_here })
    }

    /// All of it.
    pub(crate) const fn memory(&self) -> &DeviceBuffer {
        &self.memory
    }

    /// A buffer; `rank_here` is 0 at a rank.
    pub(crate) fn buffer(&self, entry: u32, rank_here: u32) -> Result<DeviceBuffer, DeviceError> {
        let start = (u64::from(entry) * self.ranks_here + u64::from(rank_here)) * AUX_BYTES;
        self.memory.slice(start..start + AUX_BYTES)
    }

    /// Writes what `rank` sends for `offer`, and says where it goes in the worker whose memory begins at `aux_addrs[worker]`.
    pub(crate) fn block(
        &self,
        device: &dyn Device,
        offer: &Offer,
        (rank, group_size): (Rank, u32),
        aux_addrs: &[u64],
    ) -> Result<Vec<AuxBlock>, DeviceError> {
        let entry = entry_of(offer.request);
        let src = self.buffer(entry, 0)?;
        device.write(&aux_bytes(offer.epoch, rank), &src)?;
        let worker = aux_worker(offer.request, aux_addrs.len().max(1) as u32);
        let to = aux_addrs.get(worker as usize).map(|addr| {
            let at = u64::from(entry) * u64::from(group_size) + u64::from(rank.0);
            AuxBlock {
                worker,
                block: Block { src: src.addr(), dst: addr + at * AUX_BYTES, bytes: AUX_BYTES },
            }
        });
        Ok(to.into_iter().collect())
    }
}
