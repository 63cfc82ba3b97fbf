//! A block: its threads, and the memory they share.

use super::bar::Bars;
use super::copies::{PendingLoad, Stores};
use super::fault::{Cause, FaultKind};
use super::mbarrier::Mbarriers;
use super::thread::Thread;
use super::warp::Meeting;
use super::window::SHARED_BASE;

/// Bytes of shared memory whose last writer is remembered together.
const GRANULE: usize = 16;

/// A block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) threads: Vec<Thread>,
    pub(crate) common: Common,
    pub(crate) bars: Bars,
    /// For every warp, the lanes that wait for others.
    pub(crate) meetings: Vec<Meeting>,
    /// Threads that have not exited.
    pub(crate) num_live: u32,
}

/// What the threads of a block share.
#[derive(Debug)]
pub(crate) struct Common {
    shared: Vec<u8>,
    pub(crate) mbarriers: Mbarriers,
    /// Bulk copies into shared memory that have not been made.
    pub(crate) loads: Vec<PendingLoad>,
    /// Bulk copies out of shared memory that have not been made, by thread.
    pub(crate) stores: Vec<Stores>,
    /// Copies out of shared memory whose source was not read yet.
    pub(crate) num_unread: usize,
    /// For every granule, when and by whom it was last written by an ordinary store; empty where no bulk copy
    /// reads shared memory.
    writes: Vec<(u64, u32)>,
    /// When every thread last fenced the asynchronous proxy.
    pub(crate) proxy_fences: Vec<u64>,
}

impl Common {
    /// `bytes` of shared memory of `num_threads` threads; `tracks_writes`: bulk copies read from it.
    pub(crate) fn new(bytes: usize, num_threads: usize, tracks_writes: bool) -> Self {
        let writes = if tracks_writes { vec![(0, 0); bytes.div_ceil(GRANULE)] } else { Vec::new() };
        Self {
            shared: vec![0; bytes],
            mbarriers: Mbarriers::default(),
            loads: Vec::new(),
            stores: vec![Stores::default(); num_threads],
            num_unread: 0,
            writes,
            proxy_fences: vec![0; num_threads],
        }
    }

    /// The bytes at shared address `address`.
    pub(crate) fn bytes(&self, address: u64, bytes: u64, align: u64) -> Result<&[u8], Box<Cause>> {
        let range =
            range(self.shared.len(), SHARED_BASE, address, bytes, align, "the block's shared memory")?;
        Ok(&self.shared[range])
    }

    /// The same, to write.
    pub(crate) fn bytes_mut(
        &mut self,
        address: u64,
        bytes: u64,
        align: u64,
    ) -> Result<&mut [u8], Box<Cause>> {
        let range =
            range(self.shared.len(), SHARED_BASE, address, bytes, align, "the block's shared memory")?;
        Ok(&mut self.shared[range])
    }

    /// Refuses an ordinary access to an `mbarrier`, or to what a pending copy writes.
    pub(crate) fn check_load(&self, address: u64, bytes: u64) -> Result<(), Box<Cause>> {
        if self.mbarriers.overlap(address, bytes) {
            return Err(Cause::at(
                FaultKind::Other,
                address,
                "an ordinary access to an mbarrier, which is opaque",
            ));
        }
        if self.loads.iter().any(|load| overlap(address, bytes, load.dst, load.bytes)) {
            let what =
                "shared memory is accessed while a bulk copy into it is pending: wait for its mbarrier";
            return Err(Cause::at(FaultKind::Ordering, address, what));
        }
        Ok(())
    }

    /// Refuses in addition to overwrite what a pending copy reads.
    pub(crate) fn check_store(&self, address: u64, bytes: u64) -> Result<(), Box<Cause>> {
        self.check_load(address, bytes)?;
        if self.num_unread == 0 {
            return Ok(());
        }
        let mut unread = self.stores.iter().flat_map(Stores::unread);
        if unread.any(|store| overlap(address, bytes, store.src, store.bytes)) {
            let what = "shared memory is overwritten while a bulk copy may still read it: wait for its group";
            return Err(Cause::at(FaultKind::Ordering, address, what));
        }
        Ok(())
    }

    /// Notes an ordinary store, which lies in shared memory.
    pub(crate) fn note_write(&mut self, address: u64, bytes: u64, now: u64, thread: u32) {
        if self.writes.is_empty() {
            return;
        }
        let first = (address - SHARED_BASE) as usize;
        for granule in first / GRANULE..=(first + bytes as usize - 1) / GRANULE {
            self.writes[granule] = (now, thread);
        }
    }

    /// The ordinary stores to a range that lies in shared memory: when, and by which thread.
    pub(crate) fn writes(&self, address: u64, bytes: u64) -> &[(u64, u32)] {
        let first = (address - SHARED_BASE) as usize;
        &self.writes[first / GRANULE..(first + bytes as usize).div_ceil(GRANULE)]
    }
}

/// Whether two ranges, each an address and a number of bytes, have a byte in common.
const fn overlap(a: u64, a_bytes: u64, b: u64, b_bytes: u64) -> bool {
    a < b + b_bytes && b < a.saturating_add(a_bytes)
}

/// The indices of `bytes` bytes at `address` in memory of `len` bytes that starts at address `base`; `align` is a power
/// of two.
pub(crate) fn range(
    len: usize,
    base: u64,
    address: u64,
    bytes: u64,
    align: u64,
    what: &str,
) -> Result<std::ops::Range<usize>, Box<Cause>> {
    let start = address.wrapping_sub(base);
    if start >= len as u64 || bytes > len as u64 - start {
        let what = format!("{bytes} bytes are accessed outside {what}, which has {len}");
        return Err(Cause::at(FaultKind::IllegalAddress, address, what));
    }
    if address & (align - 1) != 0 {
        let what = format!("the access needs an address that is a multiple of {align}");
        return Err(Cause::at(FaultKind::Misaligned, address, what));
    }
    Ok(start as usize..(start + bytes) as usize)
}
