//! Symmetric memory of ranks that are processes with GPUs: CUDA IPC handles.
//!
//! A handle opens a whole allocation of the driver, so it travels with the place inside. A process opens an allocation
//! once, however often it is asked: a count says when to close. Memory is freed only after every peer has closed it
//! (the region's `close`); where the ranks cannot agree on that, it stays until the process ends.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cust_raw::{
    CUipcMemHandle, cuIpcCloseMemHandle, cuIpcGetMemHandle, cuIpcOpenMemHandle_v2, cuMemGetAddressRange_v2,
};

use super::backend::{Export, Mapping, SymmBackend, SymmError};
use crate::deadline::Deadline;
use crate::device::cuda::{Shared, checked};
use crate::device::{CudaDevice, DeviceBuffer, DeviceError, MemoryKind};
use crate::units::Rank;

const NAME: &str = "cuda-ipc";
/// `[magic: 8][offset: 8][bytes: 8][driver's handle: 64]`
const MAGIC: [u8; 8] = *b"cpkvipc1";
const DRIVER_HANDLE_BYTES: usize = size_of::<CUipcMemHandle>();
const HANDLE_BYTES: usize = 24 + DRIVER_HANDLE_BYTES;
/// Lets the driver enable peer access where the memory lies on another GPU.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// GPU memory of processes on one machine.
#[derive(Clone, Debug)]
pub struct CudaIpcBackend {
    device: CudaDevice,
    opened: Arc<OpenedList>,
}

/// What this process has open on its GPU, by the driver's handle.
#[derive(Debug, Default)]
struct OpenedList {
    bases: Mutex<BTreeMap<[u8; DRIVER_HANDLE_BYTES], OpenedBase>>,
}

#[derive(Debug)]
struct OpenedBase {
    addr: u64,
    num_holders: u64,
}

impl OpenedList {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<[u8; DRIVER_HANDLE_BYTES], OpenedBase>> {
        self.bases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A hold on an opened allocation; the last one closes it.
struct Opened {
    shared: Arc<Shared>,
    list: Arc<OpenedList>,
    handle: [u8; DRIVER_HANDLE_BYTES],
}

impl Opened {
    /// Opens the allocation behind `handle`, or holds it once more; returns its first address here.
    fn open(
        shared: &Arc<Shared>,
        list: &Arc<OpenedList>,
        handle: [u8; DRIVER_HANDLE_BYTES],
    ) -> Result<(u64, Self), DeviceError> {
        shared.enter()?;
        let mut bases = list.lock();
        let addr = if let Some(base) = bases.get_mut(&handle) {
            base.num_holders += 1;
            base.addr
        } else {
            let mut addr = 0;
            let raw = CUipcMemHandle { reserved: handle.map(|byte| byte as c_char) };
            // SAFETY: `addr` is writable; a handle of a peer that is gone is refused by the driver.
            let result = unsafe { cuIpcOpenMemHandle_v2(&mut addr, raw, LAZY_ENABLE_PEER_ACCESS) };
            checked(shared, "cuIpcOpenMemHandle", result)?;
            bases.insert(handle, OpenedBase { addr, num_holders: 1 });
            addr
        };
        drop(bases);
        Ok((addr, Self { shared: Arc::clone(shared), list: Arc::clone(list), handle }))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut bases = self.list.lock();
        let Some(base) = bases.get_mut(&self.handle) else { return };
        base.num_holders -= 1;
        if base.num_holders > 0 {
            return;
        }
        let addr = base.addr;
        bases.remove(&self.handle);
        // Under the lock: who opens it next must find it closed.
        if self.shared.enter().is_ok() {
            // SAFETY: opened by `open`, and this was its last holder.
            let _ = unsafe { cuIpcCloseMemHandle(addr) };
        }
    }
}

/// The handle of an allocation, with the place of a buffer inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle {
    offset: u64,
    bytes: u64,
    driver: [u8; DRIVER_HANDLE_BYTES],
}

impl Handle {
    fn to_bytes(self) -> Vec<u8> {
        [&MAGIC[..], &self.offset.to_le_bytes(), &self.bytes.to_le_bytes(), &self.driver].concat()
    }

    fn parse(handle: &[u8]) -> Option<Self> {
        let handle: &[u8; HANDLE_BYTES] = handle.try_into().ok()?;
        let rest = handle.strip_prefix(&MAGIC)?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let driver = rest.try_into().ok()?;
        Some(Self { offset: u64::from_le_bytes(*offset), bytes: u64::from_le_bytes(*bytes), driver })
    }
}

impl CudaIpcBackend {
    /// The backend of the rank whose GPU is `device`.
    pub fn new(device: CudaDevice) -> Self {
        Self { device, opened: Arc::default() }
    }

    fn handle_of(&self, mapping: &Mapping) -> Result<Handle, DeviceError> {
        let shared = self.device.shared();
        shared.enter()?;
        let (mut base, mut base_bytes) = (0, 0);
        // SAFETY: both are writable, and the address is one of this process's allocations.
        let result = unsafe { cuMemGetAddressRange_v2(&mut base, &mut base_bytes, mapping.addr) };
        checked(shared, "cuMemGetAddressRange", result)?;
        let mut raw = CUipcMemHandle { reserved: [0; DRIVER_HANDLE_BYTES] };
        // SAFETY: `raw` is writable, and the address is as above.
        let result = unsafe { cuIpcGetMemHandle(&mut raw, mapping.addr) };
        checked(shared, "cuIpcGetMemHandle", result)?;
        let driver = raw.reserved.map(|byte| byte as u8);
        Ok(Handle { offset: mapping.addr - base, bytes: mapping.bytes, driver })
    }
}

// SAFETY: a mapping is an allocation of the device, or an opened one with the place inside it that its exporter gave;
// `keep` frees or closes it. Nobody outside the group has the handle.
unsafe impl SymmBackend for CudaIpcBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn memory(&self) -> MemoryKind {
        MemoryKind::Cuda
    }

    fn outlives_its_owner(&self) -> bool {
        false
    }

    fn allocate(&self, bytes: u64) -> Result<Mapping, SymmError> {
        let memory = self.device.alloc_exported(bytes).map_err(|problem| SymmError::Device {
            backend: NAME,
            action: "allocating symmetric memory".to_owned(),
            problem: Box::new(problem),
        })?;
        Ok(Mapping { addr: memory.addr(), bytes, keep: Arc::new(memory) })
    }

    fn export(&self, mapping: &Mapping, _deadline: Deadline) -> Result<Export, SymmError> {
        if !mapping.keep.is::<DeviceBuffer>() {
            return Err(SymmError::ForeignMapping { backend: NAME });
        }
        let handle = self.handle_of(mapping).map_err(|problem| SymmError::Device {
            backend: NAME,
            action: "exporting symmetric memory".to_owned(),
            problem: Box::new(problem),
        })?;
        Ok(Export { handle: handle.to_bytes(), server: Arc::new(()) })
    }

    fn open(&self, peer: Rank, handle: &[u8], bytes: u64, _deadline: Deadline) -> Result<Mapping, SymmError> {
        let handle = Handle::parse(handle).ok_or(SymmError::BadHandle { backend: NAME, peer })?;
        if handle.bytes != bytes {
            let (expected_bytes, got_bytes) = (bytes, handle.bytes);
            return Err(SymmError::SizeMismatch { backend: NAME, peer, expected_bytes, got_bytes });
        }
        let opened = Opened::open(self.device.shared(), &self.opened, handle.driver);
        let (base, opened) = opened.map_err(|problem| {
            let action = format!("opening the memory of rank {peer}");
            SymmError::Device { backend: NAME, action, problem: Box::new(problem) }
        })?;
        let addr = base.checked_add(handle.offset).ok_or(SymmError::BadHandle { backend: NAME, peer })?;
        Ok(Mapping { addr, bytes, keep: Arc::new(opened) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_survives_the_way_and_a_damaged_one_is_none() {
        let handle = Handle { offset: 512, bytes: 4096, driver: std::array::from_fn(|at| at as u8) };
        let bytes = handle.to_bytes();
        assert_eq!(Handle::parse(&bytes), Some(handle));
        for damaged in [&bytes[1..], &bytes[..bytes.len() - 1], &[&[0], &bytes[1..]].concat()] {
            assert_eq!(Handle::parse(damaged), None);
        }
    }
}
