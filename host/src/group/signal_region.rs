//! The region that a group's signals live in.

use std::sync::Arc;

use cpkv_kernels::signal::SignalPad;

use super::bootstrap::Bootstrap;
use crate::deadline::Deadline;
use crate::device::Device;
use crate::symm::{
    ArenaLayout, Carve, ProbeCarves, RegisterError, Registered, RegistrationRecord, SharedBackend,
    SymmRegion, describe_failures,
};

/// A region that can hold a group's signals. Registered once, serves one group.
pub struct SignalRegion {
    pub(super) region: Arc<SymmRegion>,
    pub(super) pad: Carve,
    pub(super) probe: ProbeCarves,
}

impl SignalRegion {
    /// Registers a region for a group's signals. Collective.
    ///
    /// # Errors
    /// [`RegisterError`], on every rank. `Ok(Err(reason))` where the ranks cannot map each other's memory.
    pub fn register(
        bootstrap: &dyn Bootstrap,
        device: &dyn Device,
        backend: &SharedBackend,
        deadline: Deadline,
    ) -> Result<Result<Self, String>, RegisterError> {
        let mut layout = ArenaLayout::default();
        let pad =
            layout.carve("signal pad", size_of::<SignalPad>() as u64, align_of::<SignalPad>() as u64)?;
        let probe = ProbeCarves::carve(&mut layout)?;
        let record = RegistrationRecord::default().with("group size", bootstrap.group_size());
        let registered =
            SymmRegion::register("signals", bootstrap, device, &**backend, &record, layout, deadline)?;
        Ok(match registered {
            Registered::Mapped(region) => Ok(Self { region: Arc::new(region), pad, probe }),
            Registered::Unreachable(failures) => Err(describe_failures(&failures)),
        })
    }
}
