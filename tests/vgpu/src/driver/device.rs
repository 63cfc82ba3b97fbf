//! The devices of the virtual machine, and which of them a process sees.

use std::sync::atomic::{AtomicU64, Ordering};

/// Shared memory of a block unless it opts in for more, in bytes.
pub(super) const SHARED_BYTES: u32 = 48 << 10;
/// Shared memory of a block that opts in, in bytes.
pub(super) const SHARED_OPTIN_BYTES: u32 = 227 << 10;
/// Shared memory of a multiprocessor, in bytes.
pub(super) const SHARED_SM_BYTES: u32 = 228 << 10;
/// Shared memory that a block takes beside its own, in bytes.
pub(super) const SHARED_RESERVED_BYTES: u32 = 1 << 10;
/// Registers of a multiprocessor, and of a block.
pub(super) const REGISTERS: u32 = 65536;
/// Threads of a block.
pub(super) const BLOCK_THREADS: u32 = 1024;
/// Resident threads of a multiprocessor.
pub(super) const SM_THREADS: u32 = 2048;
/// Resident blocks of a multiprocessor.
pub(super) const SM_BLOCKS: u32 = 32;
/// Multiprocessors of a device. A real one has 132.
pub(super) const SMS: u32 = 1;
/// The largest block, by dimension.
pub(super) const BLOCK_DIM: [u32; 3] = [1024, 1024, 64];
/// The largest grid, by dimension.
pub(super) const GRID_DIM: [u32; 3] = [i32::MAX as u32, 65535, 65535];

/// One device that this process sees.
pub(super) struct Device {
    /// Its place on the machine, the same in every process.
    pub(super) physical: u32,
    /// Memory that this process has taken of it, in bytes.
    used: AtomicU64,
}

impl Device {
    pub(super) fn new(physical: u32) -> Device {
        Device { physical, used: AtomicU64::new(0) }
    }

    /// Its identity: the same in every process, another one for every device.
    pub(super) fn uuid(&self) -> [u8; 16] {
        uuid(self.physical)
    }

    /// Its place on the bus, as text.
    pub(super) fn pci(&self) -> String {
        format!("0000:{:02X}:00.0", self.physical + 1)
    }

    /// Takes memory of it; false when `limit` would be passed.
    pub(super) fn take(&self, bytes: u64, limit: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives memory back.
    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Memory taken, in bytes.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The value of a `CUdevice_attribute`; `None` for a number that CUDA does not know.
    pub(super) fn attribute(&self, number: i32) -> Option<i32> {
        Some(match number {
            1 => BLOCK_THREADS as i32,
            2..=4 => BLOCK_DIM[number as usize - 2] as i32,
            5..=7 => GRID_DIM[number as usize - 5] as i32,
            8 => SHARED_BYTES as i32,
            9 => 65536,
            10 => 32,
            11 => i32::MAX,
            12 | 82 => REGISTERS as i32,
            13 => 1_980_000,
            14 | 30 => 512,
            // Copies beside kernels, host memory mapped, concurrent kernels, ECC, unified addresses, priorities,
            // caches, preemption, registered host memory by its pointer and at all, cooperative launches.
            15 | 19 | 31 | 32 | 41 | 78 | 79 | 80 | 90 | 91 | 95 | 99 => 1,
            16 => SMS as i32,
            33 => self.physical as i32 + 1,
            36 => 2_619_000,
            37 => 6144,
            38 => 50 << 20,
            39 => SM_THREADS as i32,
            40 => 3,
            51 => 32,
            75 => 9,
            81 => SHARED_SM_BYTES as i32,
            87 => 2,
            // Waits for and writes of 32-bit values on a stream.
            92 | 94 | 123 => 1,
            97 => SHARED_OPTIN_BYTES as i32,
            106 => SM_BLOCKS as i32,
            111 => SHARED_RESERVED_BYTES as i32,
            // Everything else is absent: no textures, managed memory, memory maps, pools, clusters, IPC events.
            17..=150 => 0,
            _ => return None,
        })
    }
}

/// The identity of a device: "cpkvvgpu" and its place.
pub(super) fn uuid(physical: u32) -> [u8; 16] {
    let mut bytes = *b"cpkvvgpu\x80\0\0\0\0\0\0\0";
    bytes[12..].copy_from_slice(&physical.to_be_bytes());
    bytes
}

/// A UUID as the driver's tools write it.
fn uuid_text(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Which devices of a machine with `num_devices` a process sees, in its order.
///
/// As CUDA reads the variable: indices or (beginnings of) UUIDs; the list ends at the first entry that is neither; a
/// device named twice makes it empty.
pub(super) fn visible(num_devices: u32, variable: Option<&str>) -> Vec<u32> {
    let Some(list) = variable else { return (0..num_devices).collect() };
    let mut seen = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let found = if entry.starts_with("GPU-") {
            let mut named = (0..num_devices).filter(|&index| uuid_text(uuid(index)).starts_with(entry));
            named.next().filter(|_| named.next().is_none())
        } else {
            entry.parse().ok().filter(|&index| index < num_devices)
        };
        match found {
            Some(index) if seen.contains(&index) => return Vec::new(),
            Some(index) => seen.push(index),
            None => break,
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_sees_what_the_variable_lists() {
        assert_eq!(visible(3, None), [0, 1, 2]);
        assert_eq!(visible(3, Some("2,0")), [2, 0]);
        assert_eq!(visible(3, Some("")), []);
        assert_eq!(visible(3, Some("1,7,0")), [1]);
        assert_eq!(visible(3, Some("1,1")), []);
        assert_eq!(visible(3, Some(&uuid_text(uuid(1)))), [1]);
        // The beginning of a UUID that two devices share names none.
        assert_eq!(visible(3, Some("GPU-63706b76")), []);
    }

    #[test]
    fn memory_beyond_the_limit_is_not_given() {
        let device = Device::new(0);
        assert!(device.take(600, 1000));
        assert!(!device.take(600, 1000));
        device.give_back(600);
        assert!(device.take(1000, 1000));
        assert_eq!(device.used(), 1000);
    }
}
