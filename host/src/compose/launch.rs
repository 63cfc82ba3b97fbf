//! The launches a layer is made of. Strategies say which, in what order.

use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{
    ByteRange, FillIndexKParams, FillPagesParams, FillRowsParams, GatherParams, HalfSelect, RowLayout,
    ZeroParams,
};

use super::ComposeError;
use super::dense::DenseBuffers;
use super::in_flight::{LayerInputs, Mark};
use super::pool::SharedPool;
use super::staging::{Published, Staging};
use super::tables::{BatchTables, InverseTable};
use crate::collective::{Collective, CollectiveError};
use crate::device::{DeviceBuffer, DeviceError, Keep};
use crate::group::Group;
use crate::model::BufferId;
use crate::pages::{BufferKind, BufferSpec, RowPart};
use crate::plan::{BatchPlan, Section, Strategy};

/// Memory of this rank that pages are written to or read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The rank-local dense buffer.
    Dense,
    /// The symmetric dense buffer, in the half of the epoch.
    SymmDense,
    /// Staging, in the half of the epoch.
    Staging,
    /// The packed current pages.
    Packed,
}

/// One layer of a batch on this rank.
pub(super) struct LayerRun<'a> {
    pub(super) group: &'a mut Group,
    pub(super) pool: &'a SharedPool,
    pub(super) staging: Option<&'a Staging>,
    pub(super) collective: Option<&'a dyn Collective>,
    pub(super) dense: &'a DenseBuffers,
    pub(super) packed: Option<&'a DeviceBuffer>,
    pub(super) plan: &'a BatchPlan,
    pub(super) tables: &'a BatchTables,
    pub(super) inputs: &'a LayerInputs,
    pub(super) layer: usize,
    pub(super) strategy: Strategy,
    pub(super) keep: Keep,
    pub(super) marks: Option<&'a mut Vec<Mark>>,
}

impl LayerRun<'_> {
    /// The buffers this layer has.
    pub(super) fn buffers(&self) -> Vec<BufferId> {
        self.pool.model().buffers_of(self.layer).to_vec()
    }

    fn spec(&self, buffer: BufferId) -> BufferSpec {
        self.pool.model().buffers[buffer.idx()].spec
    }

    /// Fills this rank's rows of `buffer` into `place`.
    pub(super) fn fill_current(&mut self, buffer: BufferId, place: Place) -> Result<(), ComposeError> {
        let num_rows = self.plan.rows.num_rows();
        let Some(input) = self.inputs.get(buffer).filter(|_| num_rows > 0) else { return Ok(()) };
        let (src, spec, (dst, dst_half)) = (input.addr(), self.spec(buffer), self.place(buffer, place, 0));
        let dst_rows = self.tables.addr(self.tables.sections.rows);
        let (poison, page_size) = (self.group.poison_addr(), spec.page_size());
        self.launch(match spec.kind() {
            BufferKind::TokenKv { .. } => {
                let layout = RowLayout { page_bytes: spec.page_bytes(), offset: 0 };
                Kernel::FillRows(FillRowsParams {
                    src,
                    src_rows: 0,
                    dst,
                    dst_rows,
                    src_layout: layout,
                    dst_layout: layout,
                    dst_half,
                    poison,
                    row_bytes: spec.row_bytes(),
                    num_rows,
                    page_size,
                })
            }
            BufferKind::IndexK => Kernel::FillIndexK(FillIndexKParams {
                keys: src,
                dst,
                dst_rows,
                dst_half,
                poison,
                num_rows,
                page_size,
            }),
        })
    }

    /// Zeroes the rows this rank's partial pages leave unfilled in `place`.
    pub(super) fn zero_unfilled(&mut self, buffer: BufferId, place: Place) -> Result<(), ComposeError> {
        let ranges = self.tables.sections.unfilled[buffer.idx()];
        let (dst, dst_half) = self.place(buffer, place, 0);
        self.zero(dst, dst_half, ranges)
    }

    /// Zeroes the packed current pages of the layer's buffers.
    pub(super) fn zero_packed(&mut self) -> Result<(), ComposeError> {
        let dst = self.packed.map_or(0, DeviceBuffer::addr);
        for BufferId(id) in self.buffers() {
            let range = self.tables.sections.packed_ranges.part::<ByteRange>(id..id + 1);
            self.zero(dst, HalfSelect::default(), range)?;
        }
        Ok(())
    }

    fn zero(&mut self, dst: u64, dst_half: HalfSelect, ranges: Section) -> Result<(), ComposeError> {
        if ranges.len == 0 {
            return Ok(());
        }
        self.launch(Kernel::Zero(ZeroParams {
            dst,
            ranges: self.tables.addr(ranges),
            dst_half,
            poison: self.group.poison_addr(),
            num_ranges: ranges.len,
            reserved: 0,
        }))
    }

    /// The barrier: all fills of this epoch come before it, all reads of peers after it.
    pub(super) fn barrier(&mut self) -> Result<(), ComposeError> {
        Ok(self.group.layer_barrier(self.layer as u32)?)
    }

    /// Gathers every slot of `buffer` into `place`, reading what peers published as `published`.
    pub(super) fn gather(
        &mut self,
        buffer: BufferId,
        place: Place,
        published: Option<Published>,
    ) -> Result<(), ComposeError> {
        self.gather_half(buffer, place, published, 1)
    }

    /// [`LayerRun::gather`] without a barrier before it: from the half that was just filled.
    pub(super) fn gather_unsynchronised(
        &mut self,
        buffer: BufferId,
        place: Place,
        published: Option<Published>,
    ) -> Result<(), ComposeError> {
        self.gather_half(buffer, place, published, 0)
    }

    fn gather_half(
        &mut self,
        buffer: BufferId,
        place: Place,
        published: Option<Published>,
        passed: u64,
    ) -> Result<(), ComposeError> {
        let num_slots = self.plan.slots.num_slots();
        if num_slots == 0 {
            return Ok(());
        }
        let src_half = match (self.staging, published) {
            (Some(staging), Some(what)) => self.group.half(staging.stride(what, buffer), passed),
            _ => HalfSelect::default(),
        };
        let (dst, dst_half) = self.place(buffer, place, passed);
        let sections = &self.tables.sections;
        self.launch(Kernel::Gather(GatherParams {
            dst,
            descriptors: self.tables.addr(sections.descriptors),
            bases: self.tables.addr(sections.bases[buffer.idx()]),
            pool_offset: self.pool_offset(buffer),
            src_half,
            dst_half,
            page_bytes: self.spec(buffer).page_bytes(),
            poison: self.group.poison_addr(),
            num_slots,
            first_halved: self.group.group_size().get(),
        }))
    }

    /// Copies the prefix rows of straddling pages this rank owns from its pool to the dense buffer.
    pub(super) fn fill_straddles(&mut self, buffer: BufferId) -> Result<(), ComposeError> {
        let (src_rows, dst_rows) = (self.tables.sections.straddle_src, self.tables.sections.straddle_dst);
        if src_rows.len == 0 {
            return Ok(());
        }
        let spec = self.spec(buffer);
        let src = self.pool.own_base(buffer) + self.pool_offset(buffer);
        for RowPart { offset, bytes } in spec.row_parts() {
            let layout = RowLayout { page_bytes: spec.page_bytes(), offset };
            self.launch(Kernel::FillRows(FillRowsParams {
                src,
                src_rows: self.tables.addr(src_rows),
                dst: self.dense.get(buffer).addr(),
                dst_rows: self.tables.addr(dst_rows),
                src_layout: layout,
                dst_layout: layout,
                dst_half: HalfSelect::default(),
                poison: self.group.poison_addr(),
                row_bytes: bytes,
                num_rows: src_rows.len,
                page_size: spec.page_size(),
            }))?;
        }
        Ok(())
    }

    /// Copies this rank's own pages of `buffer` from the dense buffer to staging.
    pub(super) fn publish(&mut self, buffer: BufferId) -> Result<(), ComposeError> {
        let sections = &self.tables.sections;
        let (pages, src_pages) = (sections.own_pages, sections.own_slots);
        let inverse = sections.staging_inverse;
        self.fill_pages(
            buffer,
            PageScatter {
                src: self.place(buffer, Place::Dense, 0),
                src_pages,
                pages,
                dst: self.place(buffer, Place::Staging, 0),
                inverse,
            },
        )
    }

    /// Copies the packed current pages of `buffer` to their dense slots.
    pub(super) fn unpack(&mut self, buffer: BufferId) -> Result<(), ComposeError> {
        let sections = &self.tables.sections;
        let (pages, src_pages, inverse) =
            (sections.current_pages, sections.current_idx, sections.dense_inverse);
        let (src, dst) = (self.place(buffer, Place::Packed, 0), self.place(buffer, Place::Dense, 0));
        self.fill_pages(buffer, PageScatter { src, src_pages, pages, dst, inverse })
    }

    /// Copies the current pages this rank owns from the dense buffer at `place` to its shard.
    pub(super) fn persist(&mut self, buffer: BufferId, place: Place) -> Result<(), ComposeError> {
        let sections = &self.tables.sections;
        let (pages, src_pages, inverse) =
            (sections.current_idx, sections.current_slots, sections.shard_places);
        let src = self.place(buffer, place, 1);
        let dst = (self.pool.own_base(buffer) + self.pool_offset(buffer), HalfSelect::default());
        self.fill_pages(buffer, PageScatter { src, src_pages, pages, dst, inverse })
    }

    fn fill_pages(&mut self, buffer: BufferId, scatter: PageScatter) -> Result<(), ComposeError> {
        if scatter.pages.len == 0 {
            return Ok(());
        }
        let ((src, src_half), (dst, dst_half)) = (scatter.src, scatter.dst);
        self.launch(Kernel::FillPages(FillPagesParams {
            src,
            src_pages: self.tables.addr(scatter.src_pages),
            pages: self.tables.addr(scatter.pages),
            inverse: self.tables.addr(scatter.inverse.entries),
            dst,
            src_half,
            dst_half,
            page_bytes: self.spec(buffer).page_bytes(),
            poison: self.group.poison_addr(),
            first_page: scatter.inverse.first_page,
            inverse_len: scatter.inverse.entries.len,
            num_pages: scatter.pages.len,
            reserved: 0,
        }))
    }

    /// Sums `bytes` of `buffer` over the ranks, from `offset` on.
    pub(super) fn all_reduce(
        &mut self,
        memory: &DeviceBuffer,
        offset: u64,
        bytes: u64,
    ) -> Result<(), ComposeError> {
        if bytes == 0 {
            return Ok(());
        }
        let Some(collective) = self.collective else { return Err(no_collective(self.strategy)) };
        let (part, gate) = (memory.slice(offset..offset + bytes)?, self.group.gate());
        let before = self.marks.as_ref().map(|_| self.group.stream().record()).transpose()?;
        // SAFETY: dense and packed buffers are the device's, which was registered with this collective; only this
        // stream touches them.
        let queued = unsafe { collective.all_reduce_sum(self.group.stream(), &part, &gate) };
        if let Err(CollectiveError::Stream { source: source @ DeviceError::NotCapturable { .. }, .. }) =
            queued
        {
            // Refused before anything was done, and no fault: the stream is as it was.
            return Err(source.into());
        }
        let rank = self.group.rank();
        self.group
            .surface(queued.map_err(|error| error.on_stream(rank)))
            .inspect_err(|_| collective.abort())?;
        if let (Some(before), Some(marks)) = (before, self.marks.as_deref_mut()) {
            marks.push([before, self.group.stream().record()?]);
        }
        Ok(())
    }

    /// The packed current pages from the layer's first buffer to its last.
    pub(super) fn packed_part(&self) -> ByteRange {
        let pages = u64::from(self.plan.slots.num_current());
        let start_of = |id: u32| (0..id).map(|id| pages * self.spec(BufferId(id)).page_bytes()).sum();
        let buffers = self.buffers();
        let offset: u64 = buffers.first().map_or(0, |first| start_of(first.0));
        let end: u64 = buffers.last().map_or(0, |last| start_of(last.0 + 1));
        ByteRange { offset, bytes: end - offset }
    }

    /// Address and half of `place`; `passed` as in [`HalfSelect`].
    fn place(&self, buffer: BufferId, place: Place, passed: u64) -> (u64, HalfSelect) {
        let published = |what: Published| match self.staging {
            Some(staging) => {
                (staging.own_base(what, buffer), self.group.half(staging.stride(what, buffer), passed))
            }
            None => (0, HalfSelect::default()),
        };
        match place {
            Place::Dense => (self.dense.get(buffer).addr(), HalfSelect::default()),
            Place::SymmDense => published(Published::Dense),
            Place::Staging => published(Published::Staging),
            Place::Packed => {
                let pages = u64::from(self.plan.slots.num_current());
                let before: u64 = (0..buffer.0).map(|id| pages * self.spec(BufferId(id)).page_bytes()).sum();
                (self.packed.map_or(0, DeviceBuffer::addr) + before, HalfSelect::default())
            }
        }
    }

    fn pool_offset(&self, buffer: BufferId) -> u64 {
        self.pool.layer_offset(self.layer, buffer).unwrap_or(0)
    }

    fn launch(&mut self, kernel: Kernel) -> Result<(), ComposeError> {
        // SAFETY: `keep` holds tables, dense and packed buffers, inputs, pool, staging and signals. Positions come
        // from a checked plan, sizes from the same model as the allocations. Accesses of ranks are ordered by
        // the strategy: fills before the barrier into the epoch's half, reads of peers after it.
        let launched = unsafe { self.group.stream().launch(kernel, &self.keep) };
        Ok(self.group.surface(launched)?)
    }
}

/// A page scatter: places with their halves, and tables.
struct PageScatter {
    src: (u64, HalfSelect),
    src_pages: Section,
    pages: Section,
    dst: (u64, HalfSelect),
    inverse: InverseTable,
}

/// A collective strategy without a collective: refused when the batch begins, so this is a fault of this library.
fn no_collective(strategy: Strategy) -> ComposeError {
    ComposeError::StrategyUnavailable {
        strategy,
        reason: "no collective was given at registration".to_owned(),
    }
}
