//! Which device the ranks run on: decided once, before any rank starts.

use clap::ValueEnum;

use crate::error::RunError;

/// What the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceArg {
    /// A GPU where there is one, else the CPU.
    Auto,
    /// The CPU: ranks share the machine's memory.
    Cpu,
    /// A GPU a rank, dealt out in turn; none is an error.
    Cuda,
}

/// What the ranks run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Platform {
    /// The CPU, and why not a GPU; empty where it was asked for.
    Cpu { reason: String },
    /// GPUs; with `--device auto` the CPU, where another rank has none.
    Cuda { may_fall_back: bool },
}

impl Platform {
    /// Why it is not a GPU; empty where it is one, or none was wanted.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Cpu { reason } => reason.clone(),
            Self::Cuda { .. } => String::new(),
        }
    }

    /// Whether it is GPUs.
    #[cfg(feature = "mpi")]
    pub(crate) const fn is_cuda(&self) -> bool {
        matches!(self, Self::Cuda { .. })
    }
}

/// Decides. `auto` looks for a GPU and falls back; `cuda` does not.
pub(crate) fn choose(asked: DeviceArg) -> Result<Platform, RunError> {
    if asked == DeviceArg::Cpu {
        return Ok(Platform::Cpu { reason: String::new() });
    }
    match (asked, cuda_problem()) {
        (asked, None) => Ok(Platform::Cuda { may_fall_back: asked == DeviceArg::Auto }),
        (DeviceArg::Cuda, Some(reason)) => Err(RunError::NoCuda { reason }),
        (_, Some(reason)) => Ok(Platform::Cpu { reason }),
    }
}

/// Why no GPU can be used; `None` where one can.
#[cfg(feature = "cuda")]
pub(crate) fn cuda_problem() -> Option<String> {
    cpkv::device::cuda::gpus().err().map(|problem| problem.to_string())
}

/// Why no GPU can be used; `None` where one can.
#[cfg(not(feature = "cuda"))]
pub(crate) fn cuda_problem() -> Option<String> {
    Some("this build has no CUDA backend: build it with `--features cuda`".to_owned())
}

/// What there is of CUDA, for a report.
#[cfg(feature = "cuda")]
pub(crate) fn describe_cuda() -> String {
    let gpus = match cpkv::device::cuda::gpus() {
        Ok(gpus) => gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        Err(problem) => problem.to_string(),
    };
    format!("{gpus}; kernels by {}", cpkv::device::cuda::PTX_COMPILER)
}

/// What there is of CUDA, for a report.
#[cfg(not(feature = "cuda"))]
pub(crate) fn describe_cuda() -> String {
    cuda_problem().unwrap_or_default()
}

/// Settings of the driver that it reads when it starts.
#[cfg(feature = "cuda")]
pub(crate) fn prepare_driver() {
    let settings = [
        // Kernels are loaded when the module is: later, loading would wait for a barrier that spins.
        ("CUDA_MODULE_LOADING", "EAGER"),
        // Queues for as many streams as ranks may have on one GPU: in one queue a barrier would wait behind another.
        ("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
    ];
    for (name, value) in settings {
        if std::env::var_os(name).is_none() {
            // SAFETY: called first in `main`, when the process has one thread.
            unsafe { std::env::set_var(name, value) };
        }
    }
}

/// Settings of the driver that it reads when it starts.
#[cfg(not(feature = "cuda"))]
pub(crate) const fn prepare_driver() {}
