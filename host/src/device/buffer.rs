//! A range of device memory that keeps its allocation alive.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{DeviceError, Keep};

/// A range of device memory. Clones share the allocation; it is freed with the last one.
#[derive(Clone)]
pub struct DeviceBuffer {
    addr: u64,
    bytes: u64,
    allocation: Keep,
}

impl DeviceBuffer {
    /// The range `addr .. addr + bytes` of memory that `allocation` owns.
    ///
    /// # Safety
    /// The range is device memory, readable and writable, for as long as `allocation` lives.
    pub unsafe fn from_raw(addr: u64, bytes: u64, allocation: Keep) -> Self {
        Self { addr, bytes, allocation }
    }

    /// Its device address.
    pub const fn addr(&self) -> u64 {
        self.addr
    }

    /// Its size in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What owns the memory.
    pub fn keep(&self) -> Keep {
        Arc::clone(&self.allocation)
    }

    /// Whether the two share a byte.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.addr < other.addr + other.bytes && other.addr < self.addr + self.bytes
    }

    /// Refuses `call` with `bytes` bytes unless they `fit`.
    pub(super) const fn check(&self, call: &'static str, bytes: u64, fit: bool) -> Result<(), DeviceError> {
        if fit {
            return Ok(());
        }
        Err(DeviceError::OutOfBounds { call, start: 0, end: bytes, buffer_bytes: self.bytes })
    }

    /// A sub-range, in bytes.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`].
    pub fn slice(&self, range: Range<u64>) -> Result<Self, DeviceError> {
        if range.start > range.end || range.end > self.bytes {
            return Err(DeviceError::OutOfBounds {
                call: "slice",
                start: range.start,
                end: range.end,
                buffer_bytes: self.bytes,
            });
        }
        Ok(Self {
            addr: self.addr + range.start,
            bytes: range.end - range.start,
            allocation: Arc::clone(&self.allocation),
        })
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({:#x}, {} bytes)", self.addr, self.bytes)
    }
}
