//! NVIDIA GPUs, through the CUDA driver.
//!
//! Waiting is done by the host alone, with deadlines: nothing here calls a synchronising function of the driver. Memory
//! goes back to a free list and not to the driver, since freeing waits for every kernel of the GPU: with several ranks
//! on one GPU, for the barrier of a rank that waits for the one that frees. Two things still go to the driver: the free
//! list, where the GPU is out of memory, and exported memory, once every peer has closed it.

mod call;
mod context;
mod driver;
mod event;
mod geometry;
mod graph;
mod keeps;
mod memory;
mod pinned;
mod stream;
mod warm_up;

use std::fmt;
use std::sync::Arc;

pub use driver::{GpuChoice, GpuInfo, gpus};
pub use geometry::GatherVariant;

pub(crate) use call::checked;
pub(crate) use context::Shared;

use super::{Device, DeviceBuffer, DeviceError, Keep, MemoryKind, Stream};
use stream::CudaStream;

/// The kernels' PTX, as the build script made it.
pub const PTX: &str = include_str!(env!("CPKV_PTX"));
/// The compiler that made it.
pub const PTX_COMPILER: &str = env!("CPKV_PTX_COMPILER");

/// A GPU, with the kernels loaded. Clones share it.
#[derive(Clone)]
pub struct CudaDevice {
    shared: Arc<Shared>,
}

impl CudaDevice {
    /// Opens a GPU and loads every kernel, by running each of them once on nothing: a kernel that the driver loads
    /// later would wait for all others, a spinning barrier among them.
    ///
    /// # Errors
    /// [`DeviceError::NoGpu`] where there is no driver, no such GPU, or one that the kernels were not built for;
    /// [`DeviceError::Cuda`].
    pub fn open(choice: &GpuChoice) -> Result<Self, DeviceError> {
        let shared = Arc::new(Shared::open(choice)?);
        warm_up::run_every_kernel(&shared)?;
        Ok(Self { shared })
    }

    /// What the driver says about it.
    pub fn info(&self) -> &GpuInfo {
        self.shared.info()
    }

    /// Allocates zeroed memory whose handle other processes can open: an allocation of its own, freed when the last
    /// holder drops it.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Cuda`].
    pub(crate) fn alloc_exported(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
        memory::alloc_exported(&self.shared, bytes)
    }

    /// The context and everything that goes with it.
    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The driver's handle of `stream`, for work that another library queues, with this GPU made the calling thread's.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`] where `stream` is not of this GPU; [`DeviceError::NotCapturable`] while it captures; the
    /// stream's own where it failed.
    pub(crate) fn raw_stream(
        &self,
        stream: &dyn Stream,
        call: &'static str,
    ) -> Result<cust_raw::CUstream, DeviceError> {
        self.own(stream, call)?.raw_for(call)
    }

    /// Keeps `keep` until what another library has queued on `stream` as `call` has run. `call` may wait for other ranks.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`]; [`DeviceError::Cuda`], and `keep` is kept.
    pub(crate) fn keep_behind(
        &self,
        stream: &dyn Stream,
        call: &'static str,
        keep: Keep,
    ) -> Result<(), DeviceError> {
        self.own(stream, call)?.keep_behind(call, keep)
    }

    /// A stream of this GPU.
    fn own<'a>(&self, stream: &'a dyn Stream, call: &'static str) -> Result<&'a CudaStream, DeviceError> {
        let stream: Option<&CudaStream> = stream.as_any().downcast_ref();
        let own = stream.filter(|stream| stream.is_of(&self.shared));
        own.ok_or(DeviceError::Foreign { call })
    }

    /// From now on gathers run as `variant`.
    pub fn set_gather_variant(&self, variant: GatherVariant) {
        self.shared.set_gather_variant(variant);
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaDevice({})", self.info())
    }
}

impl Device for CudaDevice {
    fn name(&self) -> String {
        self.info().to_string()
    }

    fn memory(&self) -> MemoryKind {
        MemoryKind::Cuda
    }

    fn alloc(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
        memory::alloc(&self.shared, bytes)
    }

    fn alloc_host(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
        pinned::alloc(&self.shared, bytes)
    }

    fn write(&self, bytes: &[u8], dst: &DeviceBuffer) -> Result<(), DeviceError> {
        self.shared.setup().write(&self.shared, bytes, dst)
    }

    fn read(&self, src: &DeviceBuffer, dst: &mut [u8]) -> Result<(), DeviceError> {
        self.shared.setup().read(&self.shared, src, dst)
    }

    fn stream(&self) -> Result<Arc<dyn Stream>, DeviceError> {
        Ok(Arc::new(CudaStream::start(&self.shared)?))
    }
}
