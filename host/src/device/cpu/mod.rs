//! The CPU as a device: its memory is the process's, a stream is a thread.

mod event;
mod memory;
mod stream;
mod work;

use std::sync::Arc;

use super::{Device, DeviceBuffer, DeviceError, Stream};
use stream::CpuStream;

/// The CPU device.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuDevice;

impl Device for CpuDevice {
    fn name(&self) -> String {
        "cpu".to_owned()
    }

    fn alloc(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
        memory::alloc(bytes)
    }

    fn alloc_host(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
        memory::alloc(bytes)
    }

    fn stream(&self) -> Result<Arc<dyn Stream>, DeviceError> {
        Ok(Arc::new(CpuStream::start()?))
    }
}
