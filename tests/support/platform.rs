//! What the ranks of a test run on: the CPU, or with `CPKV_TEST_DEVICE=cuda` a GPU (a real one, or the virtual one when
//! its `libcuda.so.1` comes first on LD_LIBRARY_PATH).

#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;
use std::time::Duration;

use cpkv::collective::{Collective, InProcessCollective};
use cpkv::device::{CpuDevice, Device};
use cpkv::symm::{LocalBackend, SharedBackend};
use cpkv::units::GroupSize;

/// A rank's device, the symmetric memory that belongs to it, and a collective over its memory.
pub(crate) type Parts = (Arc<dyn Device>, SharedBackend, Arc<dyn Collective>);

/// Names the device that tests run on.
const DEVICE_VARIABLE: &str = "CPKV_TEST_DEVICE";

/// Whether tests run on a GPU.
pub(crate) fn on_gpu() -> bool {
    match std::env::var(DEVICE_VARIABLE).as_deref() {
        Err(_) | Ok("cpu") => false,
        Ok("cuda") if cfg!(feature = "cuda") => true,
        Ok(other) => panic!("{DEVICE_VARIABLE}={other}: cpu, or cuda in a build with that feature"),
    }
}

/// The parts of ranks that are threads, by rank.
pub(crate) fn of_threads(size: GroupSize, timeout: Duration) -> Vec<Parts> {
    #[cfg(feature = "cuda")]
    if on_gpu() {
        return cuda::of_threads(size, timeout);
    }
    let collectives = InProcessCollective::group(size, timeout).into_iter();
    let parts = collectives
        .map(|collective| -> Parts { (Arc::new(CpuDevice), Arc::new(LocalBackend), Arc::new(collective)) });
    parts.collect()
}

/// The parts of a rank that is a process of an MPI world.
#[cfg(feature = "mpi")]
pub(crate) fn of_process(world: Arc<cpkv::group::mpi::MpiWorld>) -> Parts {
    use cpkv::collective::mpi::MpiCollective;
    use cpkv::symm::MemfdBackend;

    #[cfg(feature = "cuda")]
    if on_gpu() {
        return cuda::of_process(world);
    }
    (Arc::new(CpuDevice), Arc::new(MemfdBackend), Arc::new(MpiCollective::new(world)))
}

#[cfg(feature = "cuda")]
mod cuda {
    use std::sync::{Arc, LazyLock};
    use std::time::Duration;

    use cpkv::collective::DeviceCollective;
    use cpkv::device::Device;
    use cpkv::device::cuda::{CudaDevice, GpuChoice};
    use cpkv::symm::CudaThreadsBackend;
    use cpkv::units::GroupSize;

    use super::Parts;

    /// One GPU for all threads of the process: several ranks share it.
    static DEVICE: LazyLock<CudaDevice> =
        LazyLock::new(|| CudaDevice::open(&GpuChoice::Ordinal(0)).expect("a GPU, real or virtual"));

    pub(super) fn of_threads(size: GroupSize, timeout: Duration) -> Vec<Parts> {
        let devices = size.ranks().map(|_| Arc::new(DEVICE.clone()) as Arc<dyn Device>).collect();
        let collectives = DeviceCollective::group(devices, size, timeout).into_iter();
        let parts = collectives.map(|collective| -> Parts {
            let backend = CudaThreadsBackend::new(DEVICE.clone());
            (Arc::new(DEVICE.clone()), Arc::new(backend), Arc::new(collective))
        });
        parts.collect()
    }

    /// NCCL needs a GPU a rank, and cannot run on a virtual one: the sums are MPI's, through host memory.
    #[cfg(feature = "mpi")]
    pub(super) fn of_process(world: Arc<cpkv::group::mpi::MpiWorld>) -> Parts {
        use cpkv::collective::StagedCollective;
        use cpkv::collective::mpi::MpiCollective;
        use cpkv::symm::CudaIpcBackend;

        let device = CudaDevice::open(&GpuChoice::LocalRank(world.rank().0)).expect("a GPU, real or virtual");
        let backend = CudaIpcBackend::new(device.clone());
        let device: Arc<dyn Device> = Arc::new(device);
        let collective = StagedCollective::new(Arc::new(MpiCollective::new(world)), Arc::clone(&device));
        (device, Arc::new(backend), Arc::new(collective))
    }
}
