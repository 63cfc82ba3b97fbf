//! The CPU as a device: its memory is the process's, a stream is a thread.

mod event;
mod graph;
mod memory;
mod stream;
mod work;

use std::sync::Arc;

use super::{Device, DeviceBuffer, DeviceError, MemoryKind, Stream};
use stream::CpuStream;

/// The CPU device.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuDevice;

impl Device for CpuDevice {
    fn name(&self) -> String {
        "cpu".to_owned()
    }

    fn memory(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn alloc(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
        memory::alloc(bytes)
    }

    fn alloc_host(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
        memory::alloc(bytes)
    }

    fn write(&self, bytes: &[u8], dst: &DeviceBuffer) -> Result<(), DeviceError> {
        memory::write(bytes, dst)
    }

    fn read(&self, src: &DeviceBuffer, dst: &mut [u8]) -> Result<(), DeviceError> {
        memory::read(src, dst)
    }

    fn stream(&self) -> Result<Arc<dyn Stream>, DeviceError> {
        Ok(Arc::new(CpuStream::start()?))
    }
}
