//! Token indices in device memory: page-aligned by construction, never by a check.

use crate::device::{Device, DeviceBuffer, DeviceError, Keep, Stream};
use crate::pages::TokenIndices;

/// Page-aligned token indices in device memory, `[num_tokens]` int64, for launches to read.
///
/// The host has no way to read them back, as a read waits for all work queued before it: what they must be is settled
/// when they are made. Indices the host knows are checked there, and come up as they are; of indices that a kernel
/// makes, the caller vouches. What the host needs to know of a batch (its lengths, its pages) it has in the batch.
///
/// There is no call that hands out their memory as a [`DeviceBuffer`], which a stream could download:
///
/// ```compile_fail,E0308
/// # use cpkv::compose::DeviceTokenIndices;
/// # use cpkv::deadline::Deadline;
/// # use cpkv::device::{DeviceError, Stream};
/// fn read_back(stream: &dyn Stream, indices: &DeviceTokenIndices, deadline: Deadline) -> Result<(), DeviceError> {
///     stream.download(indices, &mut [0; 64], deadline)
/// }
/// ```
pub struct DeviceTokenIndices {
    memory: DeviceBuffer,
    page_size: u32,
}

impl DeviceTokenIndices {
    /// Queues the upload of `indices`. The host does not wait.
    ///
    /// # Errors
    /// [`DeviceError`], of the allocation or the upload.
    pub fn upload(
        device: &dyn Device,
        stream: &dyn Stream,
        indices: TokenIndices<'_>,
    ) -> Result<Self, DeviceError> {
        let bytes: Vec<u8> = indices.as_slice().iter().flat_map(|index| index.to_le_bytes()).collect();
        let memory = device.alloc(bytes.len() as u64)?;
        stream.upload(bytes, &memory)?;
        Ok(Self { memory, page_size: indices.page_size() })
    }

    /// The indices that earlier work on the stream leaves in `memory`: all of it, 8 bytes each.
    ///
    /// # Safety
    /// When a launch reads them, they are as [`TokenIndices::new`] would accept them for pages of `page_size` tokens
    /// and the pool that the launch reads. A launch makes addresses from them without a further check.
    pub const unsafe fn from_device(memory: DeviceBuffer, page_size: u32) -> Self {
        Self { memory, page_size }
    }

    /// Number of indices.
    pub const fn num_tokens(&self) -> u64 {
        self.memory.bytes() / size_of::<i64>() as u64
    }

    /// Tokens a page.
    pub const fn page_size(&self) -> u32 {
        self.page_size
    }

    /// Device address of the first index, for a launch's parameters.
    pub const fn addr(&self) -> u64 {
        self.memory.addr()
    }

    /// What a launch that reads them keeps alive.
    pub fn keep(&self) -> Keep {
        self.memory.keep()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::deadline::Deadline;
    use crate::device::CpuDevice;

    #[test]
    fn checked_indices_come_up_unchanged_and_the_host_does_not_wait() {
        let stream = CpuDevice.stream().unwrap();
        let host = [8, 9, 10, 11];
        let checked = TokenIndices::new(&host, 4, 3).unwrap();
        let indices = DeviceTokenIndices::upload(&CpuDevice, &*stream, checked).unwrap();
        assert_eq!(stream.num_host_syncs(), 0);
        assert_eq!((indices.num_tokens(), indices.page_size()), (4, 4));
        // Only this module reaches the memory.
        let mut bytes = [0; 32];
        stream.download(&indices.memory, &mut bytes, Deadline::after(Duration::from_secs(60))).unwrap();
        assert_eq!(
            bytes.as_chunks().0.iter().map(|&index| i64::from_le_bytes(index)).collect::<Vec<_>>(),
            host
        );
        assert_eq!(indices.addr(), indices.memory.addr());
    }
}
