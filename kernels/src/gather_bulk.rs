//! The slot-dense gather by the bulk copy engine: pages go through shared memory, and one thread drives them.
//!
//! A block takes whole slots, as the plain gather does. Lane 0 cuts their pages into chunks and sends chunk `i` through
//! stage `i mod 3`. The lanes from 32 on meanwhile write what the engine does not: zeros. The two never touch the same
//! slot, so they need not meet; lanes 1..32 share lane 0's warp and go home.
//!
//! | state of a stage | who may touch its bytes | ends when | lane 0 knows by |
//! |---|---|---|---|
//! | free | nobody | lane 0 announces a chunk's bytes and issues the copy in | - |
//! | loading | the engine, writing | all announced bytes have come: phase `i / 3` of the stage's mbarrier completes | `try_wait` with parity `i / 3 mod 2` |
//! | loaded | nobody | lane 0 issues the copy out, a group of its own | - |
//! | storing | the engine, reading | the group has read its source | `wait_group.read 1` after the next group was issued |
//!
//! At most two stages load and one stores:
//!
//! | step for chunk `i` | waits for |
//! |---|---|
//! | copy out chunk `i` | chunk `i` loaded |
//! | copy in chunk `i + 2`, into the stage of chunk `i - 1` | chunk `i - 1` read out: all groups but the latest, chunk `i`'s |
//!
//! Nothing but the engine touches a stage's bytes, and a copy that has completed is visible to the next one. Only the
//! fresh mbarriers are written by the thread, and source pages by kernels that ran before: the fence in front is for them.

/// Lanes a block of the bulk gather has.
pub const GATHER_BULK_LANES: u32 = 128;
/// Dynamic shared memory that a block of the bulk gather needs, in bytes.
pub const GATHER_BULK_SHARED_BYTES: u32 = MBARRIERS_OFFSET + MBARRIERS_BYTES;

/// Chunks in shared memory at a time.
const NUM_STAGES: u32 = 3;
/// Bytes of a stage, and of a chunk at most. With three of them two blocks fit on a multiprocessor.
const STAGE_BYTES: u32 = 32 * 1024;
/// The mbarriers stand behind the stages.
const MBARRIERS_OFFSET: u32 = NUM_STAGES * STAGE_BYTES;
/// 8 bytes a stage, rounded up.
const MBARRIERS_BYTES: u32 = 128;

const _: () = {
    assert!(GATHER_BULK_SHARED_BYTES <= 200 * 1024);
    assert!(NUM_STAGES * 8 <= MBARRIERS_BYTES);
    assert!(STAGE_BYTES.is_multiple_of(128));
};

#[cfg(target_arch = "nvptx64")]
pub(crate) use engine::gather_bulk;

#[cfg(target_arch = "nvptx64")]
mod engine {
    use core::ptr;

    use super::{MBARRIERS_OFFSET, NUM_STAGES, STAGE_BYTES};
    use crate::abi::GatherParams;
    use crate::arch::{Lanes, TEAM_LANES};
    use crate::gather::{SlotBytes, slot_bytes};
    use crate::{arch, signal};

    /// Chunks that load while one is stored.
    const NUM_LOADING: u32 = NUM_STAGES - 1;

    /// A chunk that has not come after this never will: a link is broken, and the grid ends with an error.
    const LOAD_TIMEOUT_NS: u64 = 20_000_000_000;

    /// Runs the gather.
    ///
    /// # Safety
    /// As [`gather`](crate::gather::gather). A block has [`GATHER_BULK_LANES`](super::GATHER_BULK_LANES) lanes and
    /// [`GATHER_BULK_SHARED_BYTES`](super::GATHER_BULK_SHARED_BYTES) of dynamic shared memory.
    pub(crate) unsafe fn gather_bulk(params: &GatherParams) {
        // Lanes may see different answers: none waits for another.
        // SAFETY: 0 or a poison word.
        if unsafe { signal::is_poisoned(params.poison) } {
            return;
        }
        // SAFETY: 0 or this rank's state.
        let src_half = unsafe { params.src_half.offset() };
        // SAFETY: 0 or this rank's state.
        let dst = params.dst + unsafe { params.dst_half.offset() };
        let (lane, num_lanes) = (arch::lane() as usize, arch::num_lanes() as usize);
        if num_lanes <= TEAM_LANES {
            // Nobody would write zeros.
            arch::trap();
        }
        if lane == 0 {
            // SAFETY: the caller's promise, and this is one thread of the block.
            unsafe { send_pages(Chunks::of_block(params, src_half, dst)) };
        } else if lane >= TEAM_LANES {
            let lanes = Lanes { lane: lane - TEAM_LANES, num_lanes: num_lanes - TEAM_LANES };
            // SAFETY: the caller's promise.
            unsafe { write_others(params, src_half, dst, lanes) };
        }
    }

    /// Whether the engine can copy a page: it copies multiples of 16 bytes between multiples of 16.
    fn is_for_engine(dst: u64, src: u64, bytes: u64) -> bool {
        (dst | src | bytes).is_multiple_of(16)
    }

    /// Sends the block's pages through the stages.
    ///
    /// # Safety
    /// As [`gather_bulk`]; one thread of a block calls it, once.
    #[inline(always)]
    unsafe fn send_pages(mut chunks: Chunks<'_>) {
        for stage in 0..NUM_STAGES {
            // SAFETY: this stage's own 8 bytes.
            unsafe { arch::mbarrier_init(Stage::of_chunk(stage).mbarrier) };
        }
        arch::fence_before_bulk();
        // SAFETY: stages 0 and 1 are free; so below, where the wait before says so.
        let mut current = unsafe { load(chunks.next(), Stage::of_chunk(0)) };
        // SAFETY: as above.
        let mut following = unsafe { load(chunks.next(), Stage::of_chunk(1)) };
        let mut i = 0;
        while let Some(chunk) = current {
            let stage = Stage::of_chunk(i);
            // SAFETY: chunk `i` was issued into this stage.
            unsafe { await_load(&stage) };
            // SAFETY: the stage is loaded; the slot is writable and nobody else's.
            unsafe { arch::bulk_store(chunk.to, stage.data, chunk.bytes) };
            current = following;
            // The latest store is chunk `i`'s: chunk `i - 1` has left the stage that chunk `i + 2` goes into.
            arch::bulk_wait_reads_but_one();
            // SAFETY: that stage is free.
            following = unsafe { load(chunks.next(), Stage::of_chunk(i + NUM_LOADING)) };
            i += 1;
        }
        // Shared memory must outlive the reads, and what follows on the stream needs the writes. A store only waits
        // for memory, which answers or ends the grid with an error: there is no bound to give.
        arch::bulk_wait_all();
    }

    /// Issues the copy of `chunk`, if there is one, into `stage`.
    ///
    /// # Safety
    /// The stage is free.
    #[inline(always)]
    unsafe fn load(chunk: Option<Chunk>, stage: Stage) -> Option<Chunk> {
        if let Some(Chunk { src, bytes, .. }) = chunk {
            // SAFETY: the chunk is readable behind its base, aligned as `is_for_engine` asks, and fits the free stage.
            unsafe { arch::bulk_load(stage.data, src, bytes, stage.mbarrier) };
        }
        chunk
    }

    /// Waits until `stage` is loaded.
    ///
    /// # Safety
    /// A copy into it was issued.
    #[inline(always)]
    unsafe fn await_load(stage: &Stage) {
        let mut since_ns = 0;
        // SAFETY: the mbarrier was made.
        while !unsafe { arch::mbarrier_try_wait(stage.mbarrier, stage.parity) } {
            let now_ns = arch::now_ns();
            if since_ns == 0 {
                since_ns = now_ns;
            } else if now_ns.saturating_sub(since_ns) >= LOAD_TIMEOUT_NS {
                arch::trap();
            }
        }
    }

    /// The stage a chunk goes through.
    struct Stage {
        /// Its bytes, in shared memory.
        data: u32,
        /// Its mbarrier, in shared memory.
        mbarrier: u32,
        /// Parity of the mbarrier's phase.
        parity: u32,
    }

    impl Stage {
        /// Of the block's chunk number `i`.
        #[inline(always)]
        fn of_chunk(i: u32) -> Self {
            let base = arch::shared_base();
            let (round, stage) = (i / NUM_STAGES, i % NUM_STAGES);
            Self {
                data: base + stage * STAGE_BYTES,
                mbarrier: base + MBARRIERS_OFFSET + stage * 8,
                parity: round % 2,
            }
        }
    }

    /// Bytes of a page that go through a stage together.
    #[derive(Clone, Copy)]
    struct Chunk {
        src: u64,
        to: u64,
        bytes: u32,
    }

    /// The chunks of the pages that a block copies with the engine, in order.
    struct Chunks<'a> {
        params: &'a GatherParams,
        src_half: u64,
        /// The destination, its half included.
        dst: u64,
        /// The slot to look at next.
        slot: u32,
        /// The rest of the page before it: source, destination, bytes.
        src: u64,
        to: u64,
        left: u64,
    }

    impl<'a> Chunks<'a> {
        #[inline(always)]
        fn of_block(params: &'a GatherParams, src_half: u64, dst: u64) -> Self {
            Self { params, src_half, dst, slot: arch::block(), src: 0, to: 0, left: 0 }
        }

        #[inline(always)]
        fn next(&mut self) -> Option<Chunk> {
            while self.left == 0 {
                if self.slot >= self.params.num_slots {
                    return None;
                }
                let to = self.dst + u64::from(self.slot) * self.params.page_bytes;
                // SAFETY: `slot` is below the number of slots.
                let bytes = unsafe { slot_bytes(self.params, self.slot, self.src_half) };
                if let SlotBytes::Page(src) = bytes
                    && is_for_engine(to, src, self.params.page_bytes)
                {
                    (self.src, self.to, self.left) = (src, to, self.params.page_bytes);
                }
                self.slot += arch::num_blocks();
            }
            let bytes = self.left.min(u64::from(STAGE_BYTES));
            let chunk = Chunk { src: self.src, to: self.to, bytes: bytes as u32 };
            (self.src, self.to, self.left) = (self.src + bytes, self.to + bytes, self.left - bytes);
            Some(chunk)
        }
    }

    /// Writes the block's slots that the engine does not: zeros, and pages it cannot copy.
    ///
    /// # Safety
    /// As [`gather_bulk`].
    #[inline(always)]
    unsafe fn write_others(params: &GatherParams, src_half: u64, dst: u64, lanes: Lanes) {
        let mut slot = arch::block();
        while slot < params.num_slots {
            let to = dst + u64::from(slot) * params.page_bytes;
            let bytes = params.page_bytes as usize;
            // SAFETY: `slot` is below the number of slots.
            match unsafe { slot_bytes(params, slot, src_half) } {
                SlotBytes::Zero => {
                    // SAFETY: the slot is writable.
                    unsafe { arch::zero_by(ptr::with_exposed_provenance_mut(to as usize), bytes, lanes) };
                }
                SlotBytes::Page(src) if !is_for_engine(to, src, params.page_bytes) => {
                    let src = ptr::with_exposed_provenance(src as usize);
                    // SAFETY: the page is readable behind its base, the slot writable, and they are different memory.
                    unsafe {
                        arch::copy_by(ptr::with_exposed_provenance_mut(to as usize), src, bytes, lanes)
                    };
                }
                SlotBytes::Keep | SlotBytes::Page(_) => {}
            }
            slot += arch::num_blocks();
        }
    }
}
