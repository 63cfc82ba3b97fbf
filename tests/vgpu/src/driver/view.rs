//! What memory the kernels and copies of one context reach.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::context::Context;
use super::driver::Driver;
use super::lock;
use super::space::{Allocation, Kind};
use crate::machine::{Memory, Region, Sharing};

/// A snapshot of the allocations that a context reaches; it keeps them mapped.
pub(super) struct View<'a> {
    driver: &'a Driver,
    context: &'a Context,
    generation: u64,
    regions: Vec<Region>,
    held: Vec<Arc<Allocation>>,
    /// Allocations made since, that were located all the same.
    late: Mutex<Vec<Arc<Allocation>>>,
}

impl<'a> View<'a> {
    pub(super) fn new(driver: &'a Driver, context: &'a Context) -> View<'a> {
        let (regions, held) = (Vec::new(), Vec::new());
        let mut view = View { driver, context, generation: 0, regions, held, late: Mutex::default() };
        view.refresh();
        view
    }

    /// Takes the snapshot again if anything has changed.
    pub(super) fn refresh(&mut self) {
        let generation = self.driver.space.generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        self.held =
            self.driver.space.all(|allocation| sharing(self.driver, self.context, allocation).is_some());
        let region = |allocation: &Arc<Allocation>| region_of(self.driver, self.context, allocation);
        self.regions = self.held.iter().filter_map(region).collect();
    }
}

impl Memory for View<'_> {
    fn locate(&self, address: u64) -> Option<Region> {
        let after = self.regions.partition_point(|region| region.start <= address);
        let region = after.checked_sub(1).and_then(|at| self.regions.get(at));
        if let Some(region) = region.filter(|region| address - region.start < region.bytes) {
            return Some(*region);
        }
        if self.driver.space.generation() == self.generation {
            return None;
        }
        let (allocation, _) = self.driver.space.find(address)?;
        let region = region_of(self.driver, self.context, &allocation);
        lock::mutex(&self.late).push(allocation);
        region
    }
}

/// How a context reaches an allocation; `None`: not at all.
pub(super) fn sharing(driver: &Driver, context: &Context, allocation: &Allocation) -> Option<Sharing> {
    let own = allocation.context == context.number;
    match allocation.kind {
        Kind::Host { .. } | Kind::Registered { .. } => Some(Sharing::Host),
        Kind::Opened { .. } => own.then_some(Sharing::Peer),
        Kind::Device | Kind::Global if own => {
            let exported = allocation.exported.load(Ordering::Acquire);
            let shared = exported || driver.contexts.any(|other| other.reaches(context.number));
            Some(if shared { Sharing::Exported } else { Sharing::Private })
        }
        Kind::Device | Kind::Global => context.reaches(allocation.context).then_some(Sharing::Peer),
    }
}

fn region_of(driver: &Driver, context: &Context, allocation: &Allocation) -> Option<Region> {
    Some(Region {
        start: allocation.start,
        bytes: allocation.bytes(),
        data: allocation.block.data(),
        shadow: allocation.block.shadow(),
        sharing: sharing(driver, context, allocation)?,
    })
}
