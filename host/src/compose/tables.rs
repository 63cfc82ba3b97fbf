//! A batch's tables on the device: what a strategy's kernels read, brought by one upload.

use cpkv_kernels::abi::{ByteRange, PAGE_NONE};

use super::ComposeError;
use super::pool::SharedPool;
use super::ragged::RaggedTables;
use super::staging::{Published, Staging};
use crate::device::{Device, DeviceBuffer, Stream};
use crate::plan::{BatchPlan, PageInverse, Section, Strategy, TablePacker, descriptors, zero_ranges};
use crate::units::PageId;

/// A page inverse on the device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InverseTable {
    pub(super) entries: Section,
    pub(super) first_page: i32,
}

/// Where each table lies in the block. Tables the strategy does not read are empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Sections {
    /// The gather's descriptors.
    pub(super) descriptors: Section,
    /// By buffer: `[2R]` bases, pools then what is published.
    pub(super) bases: Vec<Section>,
    /// Destination rows of this rank's rows.
    pub(super) rows: Section,
    /// By buffer: ranges of the unfilled rows of this rank's partial pages.
    pub(super) unfilled: Vec<Section>,
    /// Rows of straddling pages this rank owns: source rows in the pool, destination rows in the dense buffer.
    pub(super) straddle_src: Section,
    pub(super) straddle_dst: Section,
    /// `0..num_current`, the dense slots of the current pages, and by current index their places in this rank's
    /// shard: what persist reads. Not by logical page: those tables would follow the pool, and not the batch.
    pub(super) current_idx: Section,
    pub(super) current_slots: Section,
    pub(super) shard_places: InverseTable,
    /// All current pages, and their dense slots by logical page: where the packed pages go.
    pub(super) current_pages: Section,
    pub(super) dense_inverse: InverseTable,
    /// This rank's own current pages, their dense slots, and where they are published.
    pub(super) own_pages: Section,
    pub(super) own_slots: Section,
    pub(super) staging_inverse: InverseTable,
    /// By buffer: its part of the packed current pages.
    pub(super) packed_ranges: Section,
    /// The ragged index plan's block: for attention, and read by no strategy.
    pub(super) ragged: Section,
}

/// The block and its sections.
pub(super) struct BatchTables {
    pub(super) block: DeviceBuffer,
    pub(super) sections: Sections,
    pub(super) ragged: RaggedTables,
}

impl BatchTables {
    /// Builds and uploads the tables of `strategy`.
    pub(super) fn upload(
        device: &dyn Device,
        stream: &dyn Stream,
        plan: &BatchPlan,
        strategy: Strategy,
        pool: &SharedPool,
        staging: Option<&Staging>,
    ) -> Result<Self, ComposeError> {
        let mut packer = TablePacker::default();
        let sections = pack(&mut packer, plan, strategy, pool, staging);
        let bytes = packer.finish().bytes;
        let block = device.alloc(bytes.len() as u64)?;
        stream.upload(bytes, &block)?;
        let ragged = RaggedTables::of_block(&block, plan.ragged.sections().within(sections.ragged))?;
        Ok(Self { block, sections, ragged })
    }

    /// Device address of a table.
    pub(super) fn addr(&self, section: Section) -> u64 {
        self.block.addr() + section.offset
    }
}

fn pack(
    packer: &mut TablePacker,
    plan: &BatchPlan,
    strategy: Strategy,
    pool: &SharedPool,
    staging: Option<&Staging>,
) -> Sections {
    let model = pool.model();
    let (slots, rows) = (&plan.slots, &plan.rows);
    let published = published_by(strategy);
    let to_staging = matches!(strategy, Strategy::StagingFill | Strategy::GatherCompact);
    let bases = model.buffer_ids().map(|buffer| {
        let mut bases = pool.bases(buffer);
        if let (Some(staging), Some(what)) = (staging, published) {
            bases.extend(staging.bases(what, buffer));
        }
        packer.push(&bases)
    });
    let bases = bases.collect();
    let unfilled = model.buffers.iter().map(|buffer| {
        packer.push(&zero_ranges(buffer.spec, &rows.partial_pages, |page| {
            if to_staging { page.staging_slot } else { page.dense_slot }
        }))
    });
    let unfilled = unfilled.collect();
    let mut sections = Sections {
        descriptors: packer.push(&descriptors(plan, strategy)),
        bases,
        rows: packer.push(if to_staging { &rows.staging_rows } else { &rows.dense_rows }),
        unfilled,
        current_idx: packer.push(&(0..slots.num_current() as i32).collect::<Vec<_>>()),
        current_slots: packer.push(&slots.current_slots),
        shard_places: push_inverse(packer, &shard_places(plan)),
        ragged: packer.push(plan.ragged.block()),
        ..Sections::default()
    };
    match strategy {
        Strategy::PerSpan | Strategy::FusedAllReduce => {
            let (src, dst) = straddle_rows(plan);
            (sections.straddle_src, sections.straddle_dst) = (packer.push(&src), packer.push(&dst));
        }
        Strategy::GatherCompact => {
            sections.current_pages = packer.push(&slots.current_pages);
            sections.dense_inverse = push_inverse(packer, &slots.dense_inverse());
            sections.packed_ranges = packer.push(&packed_ranges(plan, pool));
        }
        Strategy::StagingPublish => {
            let own = |table: &[i32]| rows.current_idx.iter().map(|&i| table[i as usize]).collect::<Vec<_>>();
            sections.own_pages = packer.push(&own(&slots.current_pages));
            sections.own_slots = packer.push(&own(&slots.current_slots));
            sections.staging_inverse = push_inverse(packer, &slots.staging_inverse());
        }
        Strategy::SymmDense | Strategy::StagingFill => {}
    }
    sections
}

/// What `strategy` lets peers read beside the pools.
pub(super) const fn published_by(strategy: Strategy) -> Option<Published> {
    match strategy {
        Strategy::StagingFill | Strategy::StagingPublish => Some(Published::Staging),
        Strategy::SymmDense => Some(Published::Dense),
        Strategy::PerSpan | Strategy::FusedAllReduce | Strategy::GatherCompact => None,
    }
}

fn push_inverse(packer: &mut TablePacker, inverse: &PageInverse) -> InverseTable {
    InverseTable { entries: packer.push(&inverse.destinations), first_page: inverse.first_page }
}

/// Current index -> place in this rank's shard, for the pages it owns.
fn shard_places(plan: &BatchPlan) -> PageInverse {
    let ownership = plan.slots.ownership();
    let places = plan.slots.current_pages.iter().map(|&page| {
        let page = PageId(page);
        if ownership.owner(page) == plan.rank { ownership.shard_idx(page) } else { PAGE_NONE }
    });
    PageInverse { first_page: 0, destinations: places.collect() }
}

/// Source and destination rows of the straddling pages whose original this rank owns.
fn straddle_rows(plan: &BatchPlan) -> (Vec<i64>, Vec<i64>) {
    let ownership = plan.slots.ownership();
    let page_size = i64::from(plan.slots.shape.page_size);
    let own = plan.slots.straddles.iter().filter(|straddle| ownership.owner(straddle.original) == plan.rank);
    own.flat_map(|straddle| {
        let src = i64::from(ownership.shard_idx(straddle.original)) * page_size;
        let dst = i64::from(straddle.slot) * page_size;
        (0..i64::from(straddle.num_prefix_rows)).map(move |row| (src + row, dst + row))
    })
    .unzip()
}

/// Each buffer's part of the packed current pages, one behind the other.
fn packed_ranges(plan: &BatchPlan, pool: &SharedPool) -> Vec<ByteRange> {
    let mut end = 0;
    let num_current = u64::from(plan.slots.num_current());
    let ranges = pool.model().buffers.iter().map(|buffer| {
        let (offset, bytes) = (end, num_current * buffer.spec.page_bytes());
        end += bytes;
        ByteRange { offset, bytes }
    });
    ranges.collect()
}
