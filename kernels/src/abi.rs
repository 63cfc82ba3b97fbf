//! What host and kernel exchange: one parameter struct a kernel, `#[repr(C)]`, sizes asserted below.
//!
//! Addresses are `u64` device addresses whose provenance is exposed; 0 is "none" where a field says so.

/// A descriptor's base for a slot that is filled with zeros.
pub const BASE_ZERO: i32 = -1;
/// A descriptor's base for a slot whose bytes are in place already and stay untouched.
pub const BASE_KEEP: i32 = -2;
/// A row destination that is skipped.
pub const ROW_SKIP: i64 = -1;
/// A page inverse's entry for a page that has no destination.
pub const PAGE_NONE: i32 = -1;

/// Device-resident state of a rank's group, advanced by the barrier alone.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GroupState {
    /// Number of barriers passed since registration: the epoch of the barrier that comes next.
    pub epoch: u64,
}

/// Which of two halves an access uses: `(epoch - passed) mod 2`, `epoch` read from device memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct HalfSelect {
    /// Address of [`GroupState`]; 0: there is one half only.
    pub state: u64,
    /// Distance of the halves in bytes.
    pub stride: u64,
    /// 0 before the epoch's barrier (the half being filled), 1 after it (the half being read).
    pub passed: u64,
}

/// Parameters of the barrier.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BarrierParams {
    /// Table `[num_ranks]` of the ranks' [`SignalPad`](crate::signal::SignalPad) addresses.
    pub pads: u64,
    /// This rank's [`GroupState`].
    pub state: u64,
    /// Host-readable [`FaultRecord`](crate::signal::FaultRecord), written if the barrier is not passed.
    pub status: u64,
    /// A [`BarrierTiming`] that is written if the barrier is passed; 0: none.
    pub timing: u64,
    /// The wait gives up after this, in nanoseconds.
    pub timeout_ns: u64,
    /// This rank.
    pub rank: u32,
    /// Size of the group.
    pub num_ranks: u32,
    /// Polls before the waiting processor is given away (CPU only).
    pub num_spins: u32,
    /// What the caller calls this barrier, for the report (the layer, say).
    pub tag: u32,
}

/// When a rank was in a barrier, on the clock that all kernels of the machine (CPU) or of the device share.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BarrierTiming {
    /// Before its first add, in nanoseconds.
    pub entered_ns: u64,
    /// After it saw the last peer, in nanoseconds.
    pub left_ns: u64,
}

/// Parameters of the poison kernel: raises a fault on all ranks, and shows the host what stands in the own pad.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoisonParams {
    /// Table `[num_ranks]` of the ranks' [`SignalPad`](crate::signal::SignalPad) addresses.
    pub pads: u64,
    /// Host-readable [`FaultRecord`](crate::signal::FaultRecord): the own pad's record, if there is one.
    pub status: u64,
    /// The [`FaultRecord`](crate::signal::FaultRecord) to raise, where its word is
    /// [`FAULT_RECORDED`](crate::signal::FAULT_RECORDED) by the time the kernel runs; 0: only look.
    pub record: u64,
    /// This rank.
    pub rank: u32,
    /// Size of the group.
    pub num_ranks: u32,
}

/// Parameters of the byte-wise sum: `dst[i] += src[i]`, wrapping.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AddBytesParams {
    /// Sums, aligned to 16.
    pub dst: u64,
    /// Addends, aligned to 16, apart from `dst`.
    pub src: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// This rank's poison word; 0: none.
    pub poison: u64,
}

/// Where a dense slot comes from.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Index into the table of bases, or [`BASE_ZERO`], or [`BASE_KEEP`].
    pub base: i32,
    /// Page position behind that base.
    pub page: i32,
}

/// Parameters of the gather: `dst[slot] = bases[d.base][d.page]` for every slot's descriptor `d`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GatherParams {
    /// Destination, `[num_slots, page_bytes]`.
    pub dst: u64,
    /// `[num_slots]` of [`Descriptor`].
    pub descriptors: u64,
    /// Table of base addresses: first the peers' pools, then what is double-buffered (stagings or dense halves).
    pub bases: u64,
    /// Added to the bases before `first_halved`: the layer's place in every pool, in bytes.
    pub pool_offset: u64,
    /// The half of the bases from `first_halved` on.
    pub src_half: HalfSelect,
    /// The half of the destination.
    pub dst_half: HalfSelect,
    /// Bytes of a page, a multiple of 16.
    pub page_bytes: u64,
    /// This rank's poison word; 0: none.
    pub poison: u64,
    /// Number of slots.
    pub num_slots: u32,
    /// Index of the first double-buffered base.
    pub first_halved: u32,
}

/// How rows lie in pages: row `i` is at `i / page_size * page_bytes + offset + i % page_size * row_bytes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RowLayout {
    /// Distance of pages in bytes.
    pub page_bytes: u64,
    /// Where this part's rows start in a page, in bytes.
    pub offset: u64,
}

/// Parameters of the row scatter (`index_copy`): `dst[dst_rows[i]] = src[src_rows[i]]`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FillRowsParams {
    /// Source rows.
    pub src: u64,
    /// `[num_rows]` of `i64` source rows; 0: row `i` is source row `i`.
    pub src_rows: u64,
    /// Destination pages.
    pub dst: u64,
    /// `[num_rows]` of `i64` destination rows; [`ROW_SKIP`] skips.
    pub dst_rows: u64,
    /// How source rows lie.
    pub src_layout: RowLayout,
    /// How destination rows lie.
    pub dst_layout: RowLayout,
    /// The half of the destination.
    pub dst_half: HalfSelect,
    /// This rank's poison word; 0: none.
    pub poison: u64,
    /// Bytes copied a row.
    pub row_bytes: u64,
    /// Number of rows.
    pub num_rows: u32,
    /// Rows a page, on both sides.
    pub page_size: u32,
}

/// Parameters of the page scatter: `dst[inverse[pages[i]]] = src[src_pages[i]]`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FillPagesParams {
    /// Source pages.
    pub src: u64,
    /// `[num_pages]` of `i32` positions in `src`.
    pub src_pages: u64,
    /// `[num_pages]` of `i32` logical pages.
    pub pages: u64,
    /// `[inverse_len]` of `i32`: destination of logical page `first_page + k`, or [`PAGE_NONE`].
    pub inverse: u64,
    /// Destination pages.
    pub dst: u64,
    /// The half of the source.
    pub src_half: HalfSelect,
    /// The half of the destination.
    pub dst_half: HalfSelect,
    /// Bytes of a page, a multiple of 16.
    pub page_bytes: u64,
    /// This rank's poison word; 0: none.
    pub poison: u64,
    /// Logical page of the inverse's first entry.
    pub first_page: i32,
    /// Entries of the inverse.
    pub inverse_len: u32,
    /// Number of pages.
    pub num_pages: u32,
    /// Not used; keeps the size a multiple of 8.
    pub reserved: u32,
}

/// Parameters of the index-K fill: quantises `[num_rows, 128]` bf16 keys to fp8 with one f32 scale a row.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FillIndexKParams {
    /// `[num_rows, 128]` bf16.
    pub keys: u64,
    /// Destination pages: `page_size` x 128 bytes of keys, then `page_size` x 4 bytes of scales.
    pub dst: u64,
    /// `[num_rows]` of `i64` destination rows; [`ROW_SKIP`] skips.
    pub dst_rows: u64,
    /// The half of the destination.
    pub dst_half: HalfSelect,
    /// This rank's poison word; 0: none.
    pub poison: u64,
    /// Number of rows.
    pub num_rows: u32,
    /// Rows a page.
    pub page_size: u32,
}

/// A run of bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Parameters of zeroing: every range of `dst` becomes 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ZeroParams {
    /// What the ranges count from.
    pub dst: u64,
    /// `[num_ranges]` of [`ByteRange`].
    pub ranges: u64,
    /// The half of the destination.
    pub dst_half: HalfSelect,
    /// This rank's poison word; 0: none.
    pub poison: u64,
    /// Number of ranges.
    pub num_ranges: u32,
    /// Not used; keeps the size a multiple of 8.
    pub reserved: u32,
}

/// Parameters of the capability probe: adds 1 to every rank's probe word, `num_adds` times.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProbeParams {
    /// Table `[num_ranks]` of the ranks' probe words (`i32`).
    pub words: u64,
    /// Size of the group.
    pub num_ranks: u32,
    /// Adds to each word.
    pub num_adds: u32,
}

const _: () = {
    assert!(size_of::<ProbeParams>() == 16);
    assert!(size_of::<GroupState>() == 8);
    assert!(size_of::<HalfSelect>() == 24);
    assert!(size_of::<BarrierParams>() == 56);
    assert!(size_of::<BarrierTiming>() == 16);
    assert!(size_of::<PoisonParams>() == 32);
    assert!(size_of::<AddBytesParams>() == 32);
    assert!(size_of::<Descriptor>() == 8);
    assert!(size_of::<GatherParams>() == 104);
    assert!(core::mem::offset_of!(GatherParams, src_half) == 32);
    assert!(size_of::<RowLayout>() == 16);
    assert!(size_of::<FillRowsParams>() == 112);
    assert!(core::mem::offset_of!(FillRowsParams, dst_half) == 64);
    assert!(size_of::<FillPagesParams>() == 120);
    assert!(core::mem::offset_of!(FillPagesParams, first_page) == 104);
    assert!(size_of::<FillIndexKParams>() == 64);
    assert!(size_of::<ByteRange>() == 16);
    assert!(size_of::<ZeroParams>() == 56);
};
