//! One piece of a stream's work, and how it is run.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use cpkv_kernels::Kernel;

use super::event::CpuEvent;
use crate::device::{DeviceBuffer, DeviceError, Event, HostCall, Keep};

/// What a stream can be asked to do.
pub(super) enum Work {
    /// A kernel whose parameters the launcher vouched for; the memory behind them lives as long as `keep`.
    Kernel { kernel: Kernel, keep: Keep },
    /// A copy into device memory.
    Upload { bytes: Vec<u8>, dst: DeviceBuffer },
    /// A copy within device memory.
    Copy { src: DeviceBuffer, dst: DeviceBuffer },
    /// A host function.
    HostCall { name: &'static str, call: HostCall },
    /// An event that fires here.
    Record(Arc<CpuEvent>),
    /// An event, maybe of another stream, that has to fire first.
    Wait(Arc<dyn Event>),
}

impl Work {
    /// Its name, for reports.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Kernel { kernel, .. } => kernel.name(),
            Self::Upload { .. } => "upload",
            Self::Copy { .. } => "copy",
            Self::HostCall { name, .. } => name,
            Self::Record(_) => "record event",
            Self::Wait(_) => "wait for event",
        }
    }

    /// Runs everything but event work, which is the stream's own.
    pub(super) fn run(self) -> Result<(), DeviceError> {
        let name = self.name();
        catch_unwind(AssertUnwindSafe(|| self.run_unguarded()))
            .unwrap_or_else(|panic| Err(DeviceError::Panicked { call: name, message: message_of(&*panic) }))
    }

    fn run_unguarded(self) -> Result<(), DeviceError> {
        match self {
            Self::Kernel { kernel, keep } => {
                // SAFETY: whoever launched it promised this until `keep` is dropped, after this line.
                unsafe { kernel.run() };
                drop(keep);
            }
            Self::Upload { bytes, dst } => {
                let dst = ptr::with_exposed_provenance_mut(dst.addr() as usize);
                // SAFETY: the stream checked that `dst` is as long as `bytes`, and `dst` keeps it alive.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), dst, bytes.len()) };
            }
            Self::Copy { src, dst } => {
                let from = ptr::with_exposed_provenance::<u8>(src.addr() as usize);
                let to = ptr::with_exposed_provenance_mut::<u8>(dst.addr() as usize);
                // SAFETY: the stream checked that `dst` is as long as `src`, and both keep their memory alive. They
                // may overlap.
                unsafe { ptr::copy(from, to, src.bytes() as usize) };
            }
            Self::HostCall { call, .. } => return call(),
            Self::Record(_) | Self::Wait(_) => {}
        }
        Ok(())
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
