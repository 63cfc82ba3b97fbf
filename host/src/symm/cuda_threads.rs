//! Symmetric memory of ranks that are threads of one process, on one GPU or several.

use std::sync::Arc;

use cust_raw::{CUresult, cuCtxEnablePeerAccess};

use super::backend::{Export, Mapping, SymmBackend, SymmError};
use super::local::{self, Region};
use crate::deadline::Deadline;
use crate::device::cuda::{Shared, checked};
use crate::device::{CudaDevice, Device, DeviceError, Keep, MemoryKind};
use crate::units::Rank;

const NAME: &str = "cuda-threads";

/// GPU memory of one process, shared by its threads; between GPUs by peer access.
#[derive(Clone, Debug)]
pub struct CudaThreadsBackend {
    device: CudaDevice,
}

/// An allocation and the GPU it lies on.
struct OnGpu {
    gpu: Arc<Shared>,
    _memory: Keep,
}

impl CudaThreadsBackend {
    /// The backend of the rank whose GPU is `device`.
    pub const fn new(device: CudaDevice) -> Self {
        Self { device }
    }

    /// Lets kernels of this rank's GPU reach memory of `peer`'s.
    fn reach(&self, peer: &Shared) -> Result<(), DeviceError> {
        let own = self.device.shared();
        if own.info().uuid == peer.info().uuid {
            return Ok(());
        }
        own.enter()?;
        // SAFETY: both contexts are alive: their owners are held.
        match unsafe { cuCtxEnablePeerAccess(peer.raw_context(), 0) } {
            CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            result => checked(own, "cuCtxEnablePeerAccess", result),
        }
    }
}

// SAFETY: a mapping is an allocation of the device, which its owner frees when the last holder drops it; a peer's is
// what it exported.
unsafe impl SymmBackend for CudaThreadsBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn memory(&self) -> MemoryKind {
        MemoryKind::Cuda
    }

    fn allocate(&self, bytes: u64) -> Result<Mapping, SymmError> {
        let memory = self.device.alloc(bytes).map_err(|problem| SymmError::Device {
            backend: NAME,
            action: "allocating symmetric memory".to_owned(),
            problem: Box::new(problem),
        })?;
        let owner: Keep = Arc::new(OnGpu { gpu: Arc::clone(self.device.shared()), _memory: memory.keep() });
        Ok(Arc::new(Region { addr: memory.addr(), bytes, owner }).into_mapping())
    }

    fn export(&self, mapping: &Mapping, _deadline: Deadline) -> Result<Export, SymmError> {
        local::export(NAME, mapping)
    }

    fn open(&self, peer: Rank, handle: &[u8], bytes: u64, _deadline: Deadline) -> Result<Mapping, SymmError> {
        let region = local::open(NAME, peer, handle, bytes)?;
        let Some(on_gpu) = region.owner.downcast_ref::<OnGpu>() else {
            return Err(SymmError::BadHandle { backend: NAME, peer });
        };
        self.reach(&on_gpu.gpu).map_err(|problem| {
            let action = format!("reaching the memory of rank {peer} on {}", on_gpu.gpu.info());
            SymmError::Device { backend: NAME, action, problem: Box::new(problem) }
        })?;
        Ok(region.into_mapping())
    }
}
