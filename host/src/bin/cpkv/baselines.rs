//! What the strategies are measured against: a plain memcpy, and the MPI library's own collectives.

use std::ptr;
use std::sync::Arc;

use cpkv::device::{DeviceBuffer, DeviceError, HostCall, Stream};
use cpkv::group::Bootstrap;
use cpkv::model::BufferId;
use cpkv::plan::BatchPlan;
use cpkv::units::GroupSize;

/// The library that started the ranks, as a user would call it himself.
pub(crate) trait PeerLibrary: Send + Sync {
    /// How it copies between ranks of this machine.
    fn copy_mechanism(&self) -> String;
    /// Rank r's `send` lands at the r-th place of every rank's `recv`, as `counts` says.
    fn all_gather(&self, send: &[u8], recv: &mut [u8], counts: &[i32]) -> Result<(), DeviceError>;
    /// The sum of every rank's `bytes`, in place.
    fn all_reduce(&self, bytes: &mut [u8]) -> Result<(), DeviceError>;
    /// The first `size` ranks as a group of their own; `None` on the others. Collective, without a deadline of its own.
    fn first(&self, size: GroupSize) -> Result<Option<Part>, DeviceError>;
    /// Passes its barrier so often; how long each took, in nanoseconds.
    fn time_barriers(&self, num_barriers: u32) -> Result<Vec<u64>, DeviceError>;
}

/// Some of the ranks, by themselves.
pub(crate) struct Part {
    pub(crate) bootstrap: Arc<dyn Bootstrap>,
    pub(crate) library: Arc<dyn PeerLibrary>,
}

#[cfg(feature = "mpi")]
mod mpi {
    use std::sync::Arc;

    use cpkv::collective::mpi::{allgatherv_bytes, allreduce_bytes, time_barriers};
    use cpkv::device::DeviceError;
    use cpkv::group::mpi::{MpiBootstrap, MpiError, MpiWorld, same_host_copy};
    use cpkv::units::GroupSize;

    use super::{Part, PeerLibrary};

    impl PeerLibrary for MpiWorld {
        fn copy_mechanism(&self) -> String {
            same_host_copy(self)
        }

        fn all_gather(&self, send: &[u8], recv: &mut [u8], counts: &[i32]) -> Result<(), DeviceError> {
            let displs: Vec<i32> = counts
                .iter()
                .scan(0, |end, count| {
                    *end += count;
                    Some(*end - count)
                })
                .collect();
            allgatherv_bytes(self, send, recv, counts, &displs).map_err(|error| failed(self, &error))
        }

        fn all_reduce(&self, bytes: &mut [u8]) -> Result<(), DeviceError> {
            allreduce_bytes(self, bytes).map_err(|error| failed(self, &error))
        }

        fn first(&self, size: GroupSize) -> Result<Option<Part>, DeviceError> {
            let part = Self::first(self, size).map_err(|error| failed(self, &error))?;
            Ok(part.map(|world| Part {
                bootstrap: Arc::new(MpiBootstrap::new(Arc::clone(&world))),
                library: world,
            }))
        }

        fn time_barriers(&self, num_barriers: u32) -> Result<Vec<u64>, DeviceError> {
            time_barriers(self, num_barriers).map_err(|error| failed(self, &error))
        }
    }

    fn failed(world: &MpiWorld, error: &MpiError) -> DeviceError {
        let code = match error {
            MpiError::Call { code, .. } => i64::from(*code),
            _ => 0,
        };
        DeviceError::HostCall { call: "MPI baseline", code, rank: world.rank().0 }
    }
}

/// Memory of the baselines, as large as the largest dense buffer.
#[derive(Clone)]
pub(crate) struct Scratch {
    pub(crate) src: DeviceBuffer,
    pub(crate) dst: DeviceBuffer,
}

/// The bytes every rank contributes to the dense buffer: prefix slots it owns, current slots it computes.
pub(crate) fn contributions(plan: &BatchPlan, size: GroupSize, page_bytes: u64) -> Vec<i32> {
    let slots = &plan.slots;
    let mut num_pages = vec![0u64; size.len()];
    for page in slots.pages.iter().filter(|page| !page.is_pad()) {
        num_pages[slots.ownership().owner(*page).idx()] += 1;
    }
    for (&page, writer) in slots.current_pages.iter().zip(&slots.writers) {
        num_pages[slots.ownership().owner(cpkv::units::PageId(page)).idx()] -= 1;
        num_pages[writer.idx()] += 1;
    }
    num_pages.into_iter().map(|pages| i32::try_from(pages * page_bytes).unwrap_or(i32::MAX)).collect()
}

/// A call that gathers a dense buffer of `counts` bytes.
pub(crate) fn all_gather(
    library: &Arc<dyn PeerLibrary>,
    scratch: &Scratch,
    rank: usize,
    counts: Vec<i32>,
) -> HostCall {
    let (library, mut scratch) = (Arc::clone(library), scratch.clone());
    Box::new(move || {
        let total = counts.iter().map(|&count| count as u64).sum();
        // SAFETY: the scratch belongs to the one baseline that runs on the stream.
        let send = unsafe { bytes_of(&mut scratch.src, counts[rank] as u64) };
        // SAFETY: as above; the two buffers are different memory.
        let recv = unsafe { bytes_of(&mut scratch.dst, total) };
        library.all_gather(send, recv, &counts)
    })
}

/// A call that sums `bytes` bytes.
pub(crate) fn all_reduce(library: &Arc<dyn PeerLibrary>, scratch: &Scratch, bytes: u64) -> HostCall {
    let (library, mut scratch) = (Arc::clone(library), scratch.clone());
    // SAFETY: the scratch belongs to the one baseline that runs on the stream.
    Box::new(move || library.all_reduce(unsafe { bytes_of(&mut scratch.dst, bytes) }))
}

/// Queues a copy of `bytes` bytes within this rank.
pub(crate) fn memcpy(stream: &dyn Stream, scratch: &Scratch, bytes: u64) -> Result<(), DeviceError> {
    stream.copy(&scratch.src.slice(0..bytes)?, &scratch.dst)
}

/// The first `bytes` bytes of host-addressable device memory.
///
/// # Safety
/// Nothing else touches them while the slice lives.
unsafe fn bytes_of(buffer: &mut DeviceBuffer, bytes: u64) -> &mut [u8] {
    let len = bytes.min(buffer.bytes()) as usize;
    let start = ptr::with_exposed_provenance_mut::<u8>(buffer.addr() as usize);
    // SAFETY: the buffer keeps its range alive, and the caller promised that it is unshared.
    unsafe { std::slice::from_raw_parts_mut(start, len) }
}

/// Bytes of a layer's dense buffers, by buffer it has.
pub(crate) fn dense_bytes(
    plan: &BatchPlan,
    model: &cpkv::model::ModelSpec,
    layer: usize,
) -> Vec<(BufferId, u64)> {
    let slots = u64::from(plan.slots.num_slots());
    let buffers = model.buffers_of(layer).iter();
    buffers.map(|&id| (id, slots * model.buffers[id.idx()].spec.page_bytes())).collect()
}
