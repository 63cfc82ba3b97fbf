//! The poison of a rank whose peers are out of reach: its own pad, so that queued work has something to look at.

use std::sync::Arc;

use cpkv_kernels::abi::PoisonParams;
use cpkv_kernels::signal::{self, FaultRecord, SignalPad};

use super::gate::PoisonGate;
use crate::device::{Device, DeviceBuffer, DeviceError, Keep, MemoryKind};

/// A pad that this rank alone writes: a collective whose sum failed raises it, and what is queued behind does nothing.
pub(super) struct LocalPoison {
    pad: DeviceBuffer,
    table: DeviceBuffer,
    status: DeviceBuffer,
    is_host: bool,
    keep: Keep,
}

impl LocalPoison {
    pub(super) fn new(device: &dyn Device) -> Result<Self, DeviceError> {
        let pad = device.alloc(size_of::<SignalPad>() as u64)?;
        let table = device.alloc(size_of::<u64>() as u64)?;
        device.write(&pad.addr().to_le_bytes(), &table)?;
        let status = device.alloc_host(size_of::<FaultRecord>() as u64)?;
        let keep: Keep = Arc::new((pad.clone(), table.clone(), status.clone()));
        Ok(Self { pad, table, status, is_host: device.memory() == MemoryKind::Host, keep })
    }

    /// Address of the poison word.
    pub(super) const fn poison(&self) -> u64 {
        signal::poison_addr(self.pad.addr())
    }

    pub(super) fn keep(&self) -> Keep {
        Arc::clone(&self.keep)
    }

    /// A look at the poison word for queued work.
    pub(super) fn gate(&self) -> PoisonGate {
        let params = PoisonParams {
            pads: self.table.addr(),
            status: self.status.addr(),
            record: 0,
            rank: 0,
            num_ranks: 1,
        };
        let host_word = if self.is_host { self.poison() } else { self.status.addr() };
        // SAFETY: `keep` holds pad, table and status; the host reaches the status, and the pad where it is host memory.
        unsafe { PoisonGate::new(params, self.poison(), host_word, self.keep()) }
    }

    /// Whether it is poisoned, as far as the host can see.
    pub(super) fn is_raised(&self) -> bool {
        self.gate().is_poisoned()
    }
}
