//! What ranks publish: staging in two halves, and the optional symmetric dense halves. Registered once.

use std::sync::Arc;

use super::ComposeError;
use super::options::ComposerOptions;
use super::pool::SharedPool;
use crate::deadline::Deadline;
use crate::device::DeviceBuffer;
use crate::group::Group;
use crate::model::BufferId;
use crate::plan::{PlanError, SlotPlan, StagingCapacity};
use crate::symm::{
    ArenaError, ArenaLayout, Carve, RegisterError, Registered, RegistrationRecord, SymmRegion,
    describe_failures,
};

const HALF_ALIGN: u64 = 4096;

/// Two carves of the same size.
#[derive(Clone, Debug)]
pub(super) struct Halves {
    first: Carve,
    /// Distance of the halves in bytes; guards lie between them.
    pub(super) stride: u64,
}

impl Halves {
    fn carve(layout: &mut ArenaLayout, name: &str, half_bytes: u64) -> Result<Self, ArenaError> {
        let first = layout.carve(&format!("{name} half 0"), half_bytes, HALF_ALIGN)?;
        let second = layout.carve(&format!("{name} half 1"), half_bytes, HALF_ALIGN)?;
        Ok(Self { stride: second.offset - first.offset, first })
    }
}

/// The published memory of a composer.
pub(super) struct Staging {
    pub(super) region: Arc<SymmRegion>,
    pub(super) capacity: StagingCapacity,
    symm_dense_slots: u32,
    stagings: Vec<Halves>,
    denses: Vec<Halves>,
}

/// Which published memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published {
    Staging,
    Dense,
}

impl Staging {
    /// Registers what `options` ask for. Collective. `Ok(Err(reason))`: out of the peers' reach.
    pub(super) fn register(
        group: &Group,
        pool: &SharedPool,
        options: &ComposerOptions,
    ) -> Result<Result<Self, String>, ComposeError> {
        let (model, shape) = (pool.model(), pool.shape());
        let capacity = options.staging_capacity(model, shape);
        let symm_dense_slots = options.symm_dense_slots.unwrap_or(0);
        let mut layout = ArenaLayout::default();
        let mut carve = |what: &str, num_pages: u64| -> Result<Vec<Halves>, RegisterError> {
            let halves = model.buffers.iter().map(|buffer| {
                let bytes = num_pages.saturating_mul(buffer.spec.page_bytes());
                Halves::carve(&mut layout, &format!("{what} {}", buffer.name), bytes)
            });
            Ok(halves.collect::<Result<_, _>>()?)
        };
        let stagings = carve("staging", capacity.num_pages)?;
        let denses = carve("dense", u64::from(symm_dense_slots))?;
        let record = RegistrationRecord::default()
            .with("model", &model.name)
            .with("staging pages", capacity.num_pages)
            .with("symmetric dense slots", symm_dense_slots);
        let deadline = Deadline::after(group.options().bootstrap_timeout);
        let (boot, device, backend) = (group.bootstrap(), group.device(), &**group.backend());
        Ok(match SymmRegion::register("staging", boot, device, backend, &record, layout, deadline)? {
            Registered::Unreachable(failures) => Err(describe_failures(&failures)),
            Registered::Mapped(region) => {
                Ok(Self { region: Arc::new(region), capacity, symm_dense_slots, stagings, denses })
            }
        })
    }

    fn halves(&self, what: Published, buffer: BufferId) -> &Halves {
        match what {
            Published::Staging => &self.stagings[buffer.idx()],
            Published::Dense => &self.denses[buffer.idx()],
        }
    }

    /// Distance of the halves of `buffer`.
    pub(super) fn stride(&self, what: Published, buffer: BufferId) -> u64 {
        self.halves(what, buffer).stride
    }

    /// Addresses of half 0 of `buffer`, by rank.
    pub(super) fn bases(&self, what: Published, buffer: BufferId) -> Vec<u64> {
        self.region.addrs(&self.halves(what, buffer).first)
    }

    /// This rank's address of half 0 of `buffer`.
    pub(super) fn own_base(&self, what: Published, buffer: BufferId) -> u64 {
        self.region.addr(self.region.rank(), &self.halves(what, buffer).first)
    }

    /// This rank's half `half` of `buffer`.
    pub(super) fn half(&self, what: Published, buffer: BufferId, half: u64) -> DeviceBuffer {
        let halves = self.halves(what, buffer);
        let offset = halves.first.offset + half % 2 * halves.stride;
        self.region.own(&Carve { offset, ..halves.first.clone() })
    }

    /// All of this rank's published memory.
    pub(super) fn whole(&self) -> DeviceBuffer {
        self.region.whole()
    }

    /// Whether a batch fits: decided from what all ranks share, before any rank writes.
    pub(super) fn check(&self, what: Published, slots: &SlotPlan) -> Result<(), PlanError> {
        match what {
            Published::Staging => self.capacity.check(slots),
            Published::Dense => {
                let (needed, capacity) = (u64::from(slots.num_slots()), u64::from(self.symm_dense_slots));
                if needed > capacity {
                    return Err(PlanError::OverCapacity { what: "symmetric dense", needed, capacity });
                }
                Ok(())
            }
        }
    }
}
