//! What every check starts from: the GPUs, and how much is asked for.

use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::device::CudaDevice;
use cpkv::device::cuda::{GpuChoice, GpuInfo, gpus};

use crate::args::Args;
use crate::outcome::{Gone, Problem};

/// Any wait inside a check that ends well is shorter.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// What every check starts from.
pub(crate) struct Context {
    pub(crate) gpus: Vec<GpuInfo>,
    pub(crate) quick: bool,
    /// Group sizes of ranks that are threads.
    pub(crate) ranks: Vec<u32>,
    /// The end of the whole run.
    pub(crate) deadline: Deadline,
}

impl Context {
    /// Asks the driver.
    pub(crate) fn of(args: &Args) -> Result<Self, Problem> {
        let deadline = Deadline::after(Duration::from_secs(args.limit));
        Ok(Self { gpus: gpus()?, quick: args.quick, ranks: args.ranks.clone(), deadline })
    }

    /// `full`, or `quick` where little is asked for.
    pub(crate) const fn pick<T: Copy>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// The first GPU, with its kernels loaded.
    pub(crate) fn open(&self) -> Result<CudaDevice, Problem> {
        self.open_gpu(0)
    }

    /// The GPU of rank `rank`: they are dealt out in turn. Fails with [`Gone`].
    pub(crate) fn open_gpu(&self, rank: u32) -> Result<CudaDevice, Problem> {
        Ok(CudaDevice::open(&GpuChoice::LocalRank(rank)).map_err(|problem| Gone(problem.to_string()))?)
    }
}
