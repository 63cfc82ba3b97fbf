//! The driver: which GPUs there are, and which one a rank takes.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use cust::CudaFlags;
use cust::device::{Device, DeviceAttribute};
use cust_raw::{CUresult, CUuuid, cuDeviceGetUuid};

use super::call::failed;
use crate::device::DeviceError;

/// The compute capability that the kernels are compiled for, at least: Hopper's.
const MIN_CAPABILITY: (i32, i32) = (9, 0);

/// Which GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuChoice {
    /// The one with this number, as CUDA counts the visible ones.
    Ordinal(u32),
    /// The one with this UUID.
    Uuid([u8; 16]),
    /// The one for the n-th rank of this machine: they are dealt out in turn, several ranks to one where they are fewer.
    LocalRank(u32),
}

/// `GPU-` and 32 hexadecimal digits (dashes anywhere), or a number.
impl FromStr for GpuChoice {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || DeviceError::NoGpu {
            reason: format!("`{text}` is no GPU: give its number, or its UUID as `nvidia-smi -L` prints it"),
        };
        let Some(uuid) = text.strip_prefix("GPU-") else {
            return text.parse().map(Self::Ordinal).map_err(|_| refused());
        };
        let digits: String = uuid.chars().filter(|&digit| digit != '-').collect();
        let value = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
        value.map(|value| Self::Uuid(value.to_be_bytes())).ok_or_else(refused)
    }
}

/// What the driver says about a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its number.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its compute capability.
    pub capability: (i32, i32),
    /// Its multiprocessors.
    pub num_multiprocessors: u32,
    /// Its memory in bytes.
    pub memory_bytes: u64,
}

impl GpuInfo {
    /// As errors have it.
    pub(super) fn short_name(&self) -> String {
        format!("cuda:{}", self.ordinal)
    }
}

impl fmt::Display for GpuInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.capability;
        write!(f, "cuda:{} ({}, sm_{major}{minor}, GPU-", self.ordinal, self.name)?;
        for (at, byte) in self.uuid.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        write!(f, ")")
    }
}

/// Starts the driver, once.
fn init() -> Result<(), DeviceError> {
    static STARTED: LazyLock<Result<(), DeviceError>> = LazyLock::new(|| {
        cust::init(CudaFlags::empty()).map_err(|problem| {
            let code = problem as u32;
            let reason = match code {
                100 => "the driver finds no GPU, or it is the stub that programs are linked with: see `nvidia-smi`",
                3 | 4 | 34 | 999 => "the driver does not start: see `nvidia-smi`, and whether its kernel module is loaded",
                803 | 804 => "the driver is older than this program's CUDA",
                _ => "the driver does not start",
            };
            DeviceError::NoGpu { reason: format!("{reason} (cuInit: {problem:?}, {code})") }
        })
    });
    STARTED.clone()
}

/// The GPUs of this machine that this process sees.
///
/// # Errors
/// [`DeviceError::NoGpu`] where there is no driver or none; [`DeviceError::Cuda`].
pub fn gpus() -> Result<Vec<GpuInfo>, DeviceError> {
    init()?;
    let num = Device::num_devices().map_err(failed("cuda", "cuDeviceGetCount"))?;
    if num == 0 {
        let reason = "the driver sees no GPU: see `nvidia-smi`, and CUDA_VISIBLE_DEVICES".to_owned();
        return Err(DeviceError::NoGpu { reason });
    }
    (0..num).map(|ordinal| info(ordinal).map(|(_, info)| info)).collect()
}

/// Finds the GPU that `choice` means, and whether the kernels can run on it.
pub(super) fn find(choice: &GpuChoice) -> Result<(Device, GpuInfo), DeviceError> {
    let all = gpus()?;
    let found = match *choice {
        GpuChoice::Ordinal(ordinal) => all.iter().find(|gpu| gpu.ordinal == ordinal),
        GpuChoice::Uuid(uuid) => all.iter().find(|gpu| gpu.uuid == uuid),
        GpuChoice::LocalRank(rank) => all.get(rank as usize % all.len()),
    };
    let Some(found) = found else {
        let seen: Vec<_> = all.iter().map(GpuInfo::to_string).collect();
        let reason = format!("there is no {choice:?}; this process sees {}", seen.join(", "));
        return Err(DeviceError::NoGpu { reason });
    };
    if found.capability < MIN_CAPABILITY {
        let reason = format!("{found} is too old: the kernels need compute capability 9.0 (Hopper) or later");
        return Err(DeviceError::NoGpu { reason });
    }
    info(found.ordinal)
}

fn info(ordinal: u32) -> Result<(Device, GpuInfo), DeviceError> {
    let name = format!("cuda:{ordinal}");
    let device = Device::get_device(ordinal).map_err(failed(&name, "cuDeviceGet"))?;
    let attribute = |which| device.get_attribute(which).map_err(failed(&name, "cuDeviceGetAttribute"));
    let mut uuid = CUuuid::default();
    // SAFETY: `uuid` is writable, and the device was just given by the driver.
    let result = unsafe { cuDeviceGetUuid(&mut uuid, device.as_raw()) };
    if result != CUresult::CUDA_SUCCESS {
        let (call, code, result) = ("cuDeviceGetUuid", result as u32, format!("{result:?}"));
        return Err(DeviceError::Cuda { device: name.into(), call, code, name: result.into() });
    }
    let num_multiprocessors = attribute(DeviceAttribute::MultiprocessorCount)?;
    let info = GpuInfo {
        ordinal,
        name: device.name().map_err(failed(&name, "cuDeviceGetName"))?,
        uuid: uuid.bytes.map(|byte| byte as u8),
        capability: (
            attribute(DeviceAttribute::ComputeCapabilityMajor)?,
            attribute(DeviceAttribute::ComputeCapabilityMinor)?,
        ),
        num_multiprocessors: u32::try_from(num_multiprocessors).unwrap_or(1).max(1),
        memory_bytes: device.total_memory().map_err(failed(&name, "cuDeviceTotalMem"))? as u64,
    };
    Ok((device, info))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_chosen_by_number_or_by_uuid_as_the_driver_prints_it() {
        assert_eq!("3".parse::<GpuChoice>().unwrap(), GpuChoice::Ordinal(3));
        let uuid: GpuChoice = "GPU-00112233-4455-6677-8899-aabbccddeeff".parse().unwrap();
        let expected =
            [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
        assert_eq!(uuid, GpuChoice::Uuid(expected));
        for text in ["", "x", "-1", "GPU-", "GPU-00112233-4455-6677-8899-aabbccddeef", "GPU-zz"] {
            assert!(text.parse::<GpuChoice>().is_err(), "{text}");
        }
    }
}
