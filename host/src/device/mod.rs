//! Devices: memory, streams and events, behind one seam.
//!
//! The CPU device keeps CUDA's rules of order: a launch returns at once, work on one stream runs in order, two
//! streams are unordered without an event, and an error surfaces at the next synchronisation.

mod buffer;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod error;

use std::any::Any;
use std::sync::Arc;

use cpkv_kernels::Kernel;

pub use buffer::DeviceBuffer;
pub use cpu::CpuDevice;
#[cfg(feature = "cuda")]
pub use cuda::CudaDevice;
pub use error::DeviceError;

use crate::deadline::Deadline;

/// What a piece of queued work keeps alive until it has run.
pub type Keep = Arc<dyn Any + Send + Sync>;

/// Work that runs on the host, in stream order.
pub type HostCall = Box<dyn FnOnce() -> Result<(), DeviceError> + Send>;

/// What memory a device or a symmetric backend deals in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// The process's own memory: a device address is one of the host.
    Host,
    /// Memory of an NVIDIA GPU: the host must not touch a device address.
    Cuda,
}

impl MemoryKind {
    /// Its name, as reports have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Cuda => "cuda",
        }
    }
}

/// A device: where memory lives and streams run.
pub trait Device: Send + Sync {
    /// Its name, for reports.
    fn name(&self) -> String;

    /// What its memory is.
    fn memory(&self) -> MemoryKind;

    /// Allocates `bytes` of zeroed device memory, aligned to 256 bytes.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    fn alloc(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError>;

    /// Allocates `bytes` of zeroed memory that both the device and the host reach at its address.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    fn alloc_host(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError>;

    /// Copies `bytes` to the start of `dst`, and waits for the copy. For set-up: ordered with no stream.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`] where `dst` is shorter; the device's own.
    fn write(&self, bytes: &[u8], dst: &DeviceBuffer) -> Result<(), DeviceError>;

    /// Copies the whole of `src` to `dst`, and waits for the copy. For checks: ordered with no stream, so what is
    /// being written meanwhile is read before or after, or half of each.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`] where the lengths differ; the device's own.
    fn read(&self, src: &DeviceBuffer, dst: &mut [u8]) -> Result<(), DeviceError>;

    /// A new stream.
    ///
    /// # Errors
    /// [`DeviceError`] where the machine has no room for one.
    fn stream(&self) -> Result<Arc<dyn Stream>, DeviceError>;
}

/// A queue of work that runs in order, asynchronously.
pub trait Stream: Send + Sync {
    /// The value behind the trait, for the device that made it.
    fn as_any(&self) -> &dyn Any;

    /// Queues a kernel and returns at once.
    ///
    /// # Safety
    /// Every address in the kernel's parameters is valid for the access the kernel documents until `keep` is
    /// dropped, and nothing else writes what it reads or touches what it writes while it runs, except as the
    /// barrier protocol orders.
    ///
    /// # Errors
    /// [`DeviceError`] of earlier work, where it has surfaced.
    unsafe fn launch(&self, kernel: Kernel, keep: &Keep) -> Result<(), DeviceError>;

    /// Queues a copy of `bytes` into `dst`.
    ///
    /// # Errors
    /// As [`Stream::launch`]; [`DeviceError::OutOfBounds`] where `dst` is shorter.
    fn upload(&self, bytes: Vec<u8>, dst: &DeviceBuffer) -> Result<(), DeviceError>;

    /// Queues a copy of all of `src` to the start of `dst`. Memory of [`Device::alloc_host`] may be either side.
    ///
    /// # Errors
    /// As [`Stream::upload`].
    fn copy(&self, src: &DeviceBuffer, dst: &DeviceBuffer) -> Result<(), DeviceError>;

    /// Copies `src` to the host. Waits for the stream: a counted host synchronisation.
    ///
    /// # Errors
    /// As [`Stream::synchronize`]; [`DeviceError::OutOfBounds`] where the lengths differ.
    fn download(&self, src: &DeviceBuffer, dst: &mut [u8], deadline: Deadline) -> Result<(), DeviceError>;

    /// Queues a host function (a collective, on devices whose memory the host can reach).
    ///
    /// # Errors
    /// As [`Stream::launch`].
    fn host_call(&self, name: &'static str, call: HostCall) -> Result<(), DeviceError>;

    /// Records an event: it fires when all work queued so far is done.
    ///
    /// # Errors
    /// As [`Stream::launch`].
    fn record(&self) -> Result<Arc<dyn Event>, DeviceError>;

    /// Makes work queued from now on wait for `event`; the host does not wait.
    ///
    /// # Errors
    /// As [`Stream::launch`].
    fn wait(&self, event: &Arc<dyn Event>) -> Result<(), DeviceError>;

    /// From now until [`Stream::end_capture`], kernels and copies that this thread queues are not run but captured.
    ///
    /// # Errors
    /// As [`Stream::launch`]; [`DeviceError::NotCapturable`] while a capture is under way.
    fn begin_capture(&self) -> Result<(), DeviceError>;

    /// Ends the capture. Everything but kernels and copies within the device was refused meanwhile.
    ///
    /// # Errors
    /// [`DeviceError::NotCapturable`] where none was begun, or work was queued that cannot be captured.
    fn end_capture(&self) -> Result<Arc<dyn Graph>, DeviceError>;

    /// Queues the captured work once more.
    ///
    /// # Safety
    /// As [`Stream::launch`], for every kernel captured.
    ///
    /// # Errors
    /// As [`Stream::launch`]; [`DeviceError::Foreign`].
    unsafe fn replay(&self, graph: &Arc<dyn Graph>) -> Result<(), DeviceError>;

    /// Waits until everything queued is done. A counted host synchronisation.
    ///
    /// # Errors
    /// The first error of the queued work, and the same one ever after; [`DeviceError::Deadline`].
    fn synchronize(&self, deadline: Deadline) -> Result<(), DeviceError>;

    /// How often the host has waited for this stream.
    fn num_host_syncs(&self) -> u64;
}

/// Work that was captured on a stream, to be launched any number of times. It keeps alive what the work needs.
pub trait Graph: Send + Sync {
    /// The value behind the trait, for the device that made it.
    fn as_any(&self) -> &dyn Any;
}

/// A point in a stream's work.
pub trait Event: Send + Sync {
    /// The value behind the trait, for the device that made it.
    fn as_any(&self) -> &dyn Any;

    /// Whether the point has been reached.
    fn query(&self) -> bool;

    /// Waits for the point.
    ///
    /// # Errors
    /// [`DeviceError::Deadline`].
    fn wait(&self, deadline: Deadline) -> Result<(), DeviceError>;

    /// When the point was reached, on the machine's monotonic clock, in nanoseconds; `None` before.
    fn fired_at_ns(&self) -> Option<u64>;
}
