//! What the environment asks of the driver. Read once, by the first `cuInit`.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use super::staged::{Staged, StagedError};

/// The options of this process.
pub(super) struct Options {
    /// How many devices the machine has.
    pub(super) devices: u32,
    /// `CUDA_VISIBLE_DEVICES`, as it stands.
    pub(super) visible: Option<String>,
    /// The memory of a device, for each process.
    pub(super) memory_bytes: u64,
    /// After how long a wait of the host is given up.
    pub(super) watchdog: Duration,
    /// The most threads of one launch.
    pub(super) max_threads: u64,
    /// Whether a kernel's read of never-written memory is a fault.
    pub(super) report_uninitialised: bool,
    /// A file with PTX that is loaded in place of every module.
    pub(super) module: Option<PathBuf>,
    /// Where faults are written beside stderr.
    pub(super) fault_log: Option<PathBuf>,
    /// The faults to stage.
    pub(super) staged: Staged,
}

/// A variable that could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(super) enum OptionsError {
    #[error("{name}={value}: want a whole number")]
    Number { name: &'static str, value: String },
    #[error(transparent)]
    Staged(#[from] StagedError),
}

impl Options {
    /// Reads the process's environment.
    pub(super) fn read() -> Result<Options, OptionsError> {
        Options::from(&|name| std::env::var(name).ok())
    }

    /// Reads whatever `lookup` knows.
    fn from(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Options, OptionsError> {
        let number = |name: &'static str, otherwise: u64| match lookup(name) {
            None => Ok(otherwise),
            Some(value) => value.trim().parse().map_err(|_| OptionsError::Number { name, value }),
        };
        let path = |name: &str| lookup(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let rank = lookup("OMPI_COMM_WORLD_RANK").and_then(|rank| rank.parse().ok());
        Ok(Options {
            devices: number("CPKV_VGPU_DEVICES", 1)?.min(64) as u32,
            visible: lookup("CUDA_VISIBLE_DEVICES"),
            memory_bytes: number("CPKV_VGPU_MEMORY_MB", 1024)?.saturating_mul(1 << 20),
            watchdog: Duration::from_secs(number("CPKV_VGPU_WATCHDOG_S", 120)?),
            max_threads: number("CPKV_VGPU_MAX_THREADS", 1 << 18)?,
            report_uninitialised: number("CPKV_VGPU_UNINITIALISED", 0)? != 0,
            module: path("CPKV_VGPU_MODULE"),
            fault_log: path("CPKV_VGPU_FAULT_LOG"),
            staged: Staged::parse(&lookup("CPKV_VGPU_FAULTS").unwrap_or_default(), rank)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_has_a_default() {
        let options = Options::from(&|_| None).unwrap();
        assert_eq!((options.devices, options.memory_bytes), (1, 1 << 30));
        assert_eq!(options.watchdog, Duration::from_secs(120));
        assert!(!options.report_uninitialised && options.fault_log.is_none() && options.module.is_none());
    }

    #[test]
    fn a_value_that_is_no_number_is_refused() {
        let lookup = |name: &str| (name == "CPKV_VGPU_DEVICES").then(|| "two".to_owned());
        let error = Options::from(&lookup).err().unwrap();
        assert_eq!(error.to_string(), "CPKV_VGPU_DEVICES=two: want a whole number");
    }
}
