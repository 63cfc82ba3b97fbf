//! The shared pool: every rank holds a shard of the pages, in memory its peers can read.

use std::sync::Arc;

use super::ComposeError;
use super::error::explain;
use crate::deadline::Deadline;
use crate::device::{Device, DeviceBuffer, DeviceError};
use crate::group::Group;
use crate::model::{BufferId, ModelSpec};
use crate::pages::{LayerBuffer, Ownership, PoolMap};
use crate::plan::PlanShape;
use crate::symm::{
    ArenaLayout, Carve, ProbeCarves, RegisterError, Registered, RegistrationRecord, SymmRegion,
    compare_records, describe_failures, probe,
};
use crate::units::{PageId, Rank};

/// Alignment of a buffer's pages.
const PAGES_ALIGN: u64 = 4096;

enum Memory {
    Symmetric(Arc<SymmRegion>),
    /// Out of the peers' reach.
    Local {
        shard: DeviceBuffer,
        reason: String,
    },
}

/// A rank's view of the pool: `[layers that have the buffer][shard pages][page_bytes]` for each buffer.
pub struct SharedPool {
    model: ModelSpec,
    shape: PlanShape,
    rank: Rank,
    carves: Vec<Carve>,
    memory: Memory,
    num_probes: u64,
}

impl SharedPool {
    /// Registers a pool of `num_logical_pages` for `model`, zeroed, and probes it. Collective.
    ///
    /// # Errors
    /// [`ComposeError::Register`], on every rank; [`ComposeError::Group`] where ranks did not come.
    pub fn register(group: &Group, model: ModelSpec, num_logical_pages: u32) -> Result<Self, ComposeError> {
        Self::try_register(group, model, num_logical_pages).map_err(|error| explain(group, error))
    }

    fn try_register(group: &Group, model: ModelSpec, num_logical_pages: u32) -> Result<Self, ComposeError> {
        let shape =
            PlanShape { group_size: group.group_size(), page_size: model.page_size, num_logical_pages };
        model.check()?;
        let record = record_of(&model, num_logical_pages);
        let deadline = Deadline::after(group.options().bootstrap_timeout);
        // Compared whether or not memory is shared: a collective needs equal pools, too.
        compare_records("pool", group.bootstrap(), &record, deadline)?;
        let mut layout = ArenaLayout::default();
        let carves = carve(&mut layout, &model, shape)?;
        let probe_carves = ProbeCarves::carve(&mut layout).map_err(RegisterError::from)?;
        let local = |reason: String| -> Result<Memory, ComposeError> {
            let shard = group.device().alloc(layout.region_bytes())?;
            Ok(Memory::Local { shard, reason })
        };
        let num_probes = u64::from(group.unreachable().is_none());
        let memory = if let Some(reason) = group.unreachable() {
            local(reason.to_owned())?
        } else {
            let (boot, device, backend) = (group.bootstrap(), group.device(), &**group.backend());
            match SymmRegion::register("pool", boot, device, backend, &record, layout.clone(), deadline)? {
                Registered::Unreachable(failures) => local(describe_failures(&failures))?,
                Registered::Mapped(region) => {
                    let region = Arc::new(region);
                    let failures =
                        probe(&region, &probe_carves, boot, group.device(), group.stream(), deadline)?;
                    if failures.is_empty() {
                        Memory::Symmetric(region)
                    } else {
                        local(describe_failures(&failures))?
                    }
                }
            }
        };
        Ok(Self { model, shape, rank: group.rank(), carves, memory, num_probes })
    }

    /// The model it holds.
    pub const fn model(&self) -> &ModelSpec {
        &self.model
    }

    /// What plans for it are built from.
    pub const fn shape(&self) -> PlanShape {
        self.shape
    }

    /// Capability probes carried out for it, opening included: 0 where the group's signals failed already, else 1.
    pub const fn num_probes(&self) -> u64 {
        self.num_probes
    }

    /// Why peers cannot read it; `None` where they can.
    pub fn unreachable(&self) -> Option<&str> {
        match &self.memory {
            Memory::Symmetric(_) => None,
            Memory::Local { reason, .. } => Some(reason),
        }
    }

    /// Base addresses of `buffer` by rank; of peers out of reach: 0, which no descriptor names.
    pub(super) fn bases(&self, buffer: BufferId) -> Vec<u64> {
        let carve = &self.carves[buffer.idx()];
        match &self.memory {
            Memory::Symmetric(region) => region.addrs(carve),
            Memory::Local { shard, .. } => {
                let own = shard.addr() + carve.offset;
                self.shape.group_size.ranks().map(|rank| if rank == self.rank { own } else { 0 }).collect()
            }
        }
    }

    /// This rank's base address of `buffer`.
    pub(super) fn own_base(&self, buffer: BufferId) -> u64 {
        self.bases(buffer)[self.rank.idx()]
    }

    /// Where `layer`'s pages of `buffer` start behind every rank's base, in bytes; `None` if it has none.
    pub(super) fn layer_offset(&self, layer: usize, buffer: BufferId) -> Option<u64> {
        let position = self.model.pool_layer_idx(layer, buffer)? as u64;
        Some(position * self.shard_pages() * self.page_bytes(buffer))
    }

    /// All of this rank's memory of the pool.
    pub(super) fn shard(&self) -> DeviceBuffer {
        match &self.memory {
            Memory::Symmetric(region) => region.whole(),
            Memory::Local { shard, .. } => shard.clone(),
        }
    }

    /// This rank's memory of the pool, guards between the buffers included: what a transfer engine registers.
    pub fn own_memory(&self) -> DeviceBuffer {
        self.shard()
    }

    /// This rank's pages of `layer` in `buffer`, `[shard pages][page_bytes]`; `None` where the layer has no such buffer.
    pub fn own_layer(&self, layer: usize, buffer: BufferId) -> Option<DeviceBuffer> {
        let start = self.carves.get(buffer.idx())?.offset + self.layer_offset(layer, buffer)?;
        let bytes = self.shard_pages() * self.page_bytes(buffer);
        self.shard().slice(start..start + bytes).ok()
    }

    /// Where this rank's pages lie: what transfers compute addresses from.
    pub fn own_map(&self) -> PoolMap {
        let layer = |layer: usize| {
            let buffers = self.model.buffers_of(layer).iter().filter_map(|&id| {
                let addr = self.own_layer(layer, id)?.addr();
                Some(LayerBuffer { addr, page_bytes: self.page_bytes(id) })
            });
            buffers.collect()
        };
        let layers = (0..self.model.num_layers()).map(layer).collect();
        PoolMap { num_pages: self.num_shard_pages(), layers }
    }

    /// Pages of a rank's shard, the same on every rank.
    pub fn num_shard_pages(&self) -> u32 {
        Ownership::new(self.shape.group_size).num_shard_pages(self.shape.num_logical_pages)
    }

    fn shard_pages(&self) -> u64 {
        u64::from(self.num_shard_pages())
    }

    pub(super) fn page_bytes(&self, buffer: BufferId) -> u64 {
        self.model.buffers[buffer.idx()].spec.page_bytes()
    }

    /// What kernels that touch the pool need alive.
    pub(super) fn keep(&self) -> crate::device::Keep {
        match &self.memory {
            Memory::Symmetric(region) => Arc::clone(region) as _,
            Memory::Local { shard, .. } => shard.keep(),
        }
    }

    /// Offsets of overwritten guard bytes. `device` is the group's.
    ///
    /// # Errors
    /// [`DeviceError`] where the guards cannot be read.
    pub fn broken_guards(&self, device: &dyn Device) -> Result<Vec<u64>, DeviceError> {
        match &self.memory {
            Memory::Symmetric(region) => region.broken_guards(device),
            Memory::Local { .. } => Ok(Vec::new()),
        }
    }

    /// The memory of `page` in `layer`'s `buffer`, `[page_bytes]`; `None` where this rank does not own it or the
    /// layer has no such buffer. Compose writes it: read it while the stream is idle.
    pub fn page(&self, layer: usize, buffer: BufferId, page: PageId) -> Option<DeviceBuffer> {
        let ownership = Ownership::new(self.shape.group_size);
        let in_pool = (0..i64::from(self.shape.num_logical_pages)).contains(&i64::from(page.0));
        if !in_pool || ownership.owner(page) != self.rank {
            return None;
        }
        let bytes = self.page_bytes(buffer);
        let in_layer = ownership.shard_idx(page) as u64 * bytes;
        let start = self.carves[buffer.idx()].offset + self.layer_offset(layer, buffer)? + in_layer;
        self.shard().slice(start..start + bytes).ok()
    }

    /// Closes the peers' shards, waits for every rank, frees the own shard. Collective; the stream is idle.
    ///
    /// # Errors
    /// [`ComposeError::Bootstrap`].
    pub fn close(self, group: &Group) -> Result<(), ComposeError> {
        let deadline = Deadline::after(group.options().bootstrap_timeout);
        match self.memory {
            Memory::Symmetric(region) => SymmRegion::close_shared(region, group.bootstrap(), deadline)?,
            Memory::Local { .. } => group.bootstrap().barrier("close pool", deadline)?,
        }
        Ok(())
    }
}

fn carve(layout: &mut ArenaLayout, model: &ModelSpec, shape: PlanShape) -> Result<Vec<Carve>, ComposeError> {
    let ownership = Ownership::new(shape.group_size);
    let shard_pages = u64::from(ownership.num_shard_pages(shape.num_logical_pages));
    let carves = model.buffer_ids().zip(&model.buffers).map(|(id, buffer)| {
        let layer_bytes = shard_pages.saturating_mul(buffer.spec.page_bytes());
        let bytes = layer_bytes.saturating_mul(model.num_layers_with(id) as u64);
        layout.carve(&format!("pool {}", buffer.name), bytes, PAGES_ALIGN)
    });
    Ok(carves.collect::<Result<_, _>>().map_err(RegisterError::from)?)
}

fn record_of(model: &ModelSpec, num_logical_pages: u32) -> RegistrationRecord {
    let buffers: Vec<_> = model
        .buffers
        .iter()
        .map(|buffer| format!("{} {} B a row", buffer.name, buffer.spec.row_bytes()))
        .collect();
    RegistrationRecord::default()
        .with("model", &model.name)
        .with("page size", model.page_size)
        .with("buffers", buffers.join(", "))
        .with("layers", model.describe_layers())
        .with("pool pages", num_logical_pages)
}
