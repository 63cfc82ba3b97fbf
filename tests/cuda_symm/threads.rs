//! Ranks that are threads, a GPU each.

use std::sync::Arc;

use cpkv::collective::DeviceCollective;
use cpkv::deadline::Deadline;
use cpkv::device::cuda::{CudaDevice, GpuChoice};
use cpkv::device::{Device, DeviceBuffer, DeviceError};
use cpkv::group::ThreadBootstrap;
use cpkv::symm::{CudaThreadsBackend, LocalBackend, SymmBackend, SymmError};
use cpkv::units::{GroupSize, Rank};

use crate::support::fixture::{LONG, Setup, on_setups};
use crate::vgpu::{faults, in_child};
use crate::{expect_collective_path, expect_every_strategy};

/// The ranks of a group, each on a GPU of its own.
fn a_gpu_each(num_ranks: u32) -> Vec<Setup> {
    let size = GroupSize::new(num_ranks).unwrap();
    let gpus: Vec<_> =
        (0..num_ranks).map(|gpu| CudaDevice::open(&GpuChoice::Ordinal(gpu)).unwrap()).collect();
    let devices = gpus.iter().map(|gpu| Arc::new(gpu.clone()) as Arc<dyn Device>).collect();
    let collectives = DeviceCollective::group(devices, size, LONG);
    let parts = gpus.into_iter().zip(collectives).zip(ThreadBootstrap::group(size));
    let setups = parts.map(|((gpu, collective), bootstrap)| Setup {
        bootstrap: Arc::new(bootstrap),
        backend: Arc::new(CudaThreadsBackend::new(gpu.clone())),
        device: Arc::new(gpu),
        collective: Arc::new(collective),
    });
    setups.collect()
}

#[test]
fn every_strategy_is_exact_across_gpus_that_reach_each_other() {
    let stderr = in_child(&[("CPKV_VGPU_DEVICES", "3")], || {
        on_setups(a_gpu_each(3), |setup| expect_every_strategy(&setup));
    });
    assert_eq!(faults(&stderr), [""; 0]);
}

#[test]
fn gpus_that_do_not_reach_each_other_send_all_ranks_down_the_collective_path() {
    for fault in ["peer-lies@2", "peer-off@2"] {
        let stderr = in_child(&[("CPKV_VGPU_DEVICES", "3"), ("CPKV_VGPU_FAULTS", fault)], || {
            let words =
                ["rank 0: ", "rank 1: ", "rank 2: ", "reaching the memory of rank 2 on cuda:2", "217"];
            on_setups(a_gpu_each(3), |setup| expect_collective_path(&setup, &words));
        });
        assert_eq!(faults(&stderr), [""; 0]);
    }
}

#[test]
fn a_mapping_that_is_opened_is_the_memory_of_its_owner_and_outlives_it() {
    in_child(&[("CPKV_VGPU_DEVICES", "2")], || {
        let gpus = [0, 1].map(|gpu| CudaDevice::open(&GpuChoice::Ordinal(gpu)).unwrap());
        let [owner, other] = gpus.clone().map(CudaThreadsBackend::new);
        let soon = || Deadline::after(LONG);
        let mine = owner.allocate(10_000).unwrap();
        let export = owner.export(&mine, soon()).unwrap();
        // Twice: access between the two GPUs is enabled once.
        let opened = other.open(Rank(0), &export.handle, 10_000, soon()).unwrap();
        assert_eq!(other.open(Rank(0), &export.handle, 10_000, soon()).unwrap().addr, opened.addr);
        assert_eq!(owner.open(Rank(0), &export.handle, 10_000, soon()).unwrap().addr, mine.addr);
        drop((mine, export));
        // SAFETY: the mapping owns as many bytes.
        let memory = unsafe { DeviceBuffer::from_raw(opened.addr, opened.bytes, opened.keep) };
        gpus[0].write(&[8; 10_000], &memory).unwrap();
        let mut bytes = vec![0; 10_000];
        gpus[0].read(&memory, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 8));
    });
}

#[test]
fn handles_that_do_not_fit_are_refused_with_the_reason() {
    in_child(&[("CPKV_VGPU_MEMORY_MB", "64")], || {
        let gpu = CudaDevice::open(&GpuChoice::Ordinal(0)).unwrap();
        let backend = CudaThreadsBackend::new(gpu);
        let soon = || Deadline::after(LONG);
        let mine = backend.allocate(4096).unwrap();
        let export = backend.export(&mine, soon()).unwrap();
        let opened = |handle: &[u8], bytes| backend.open(Rank(1), handle, bytes, soon()).err().unwrap();
        let error = opened(&export.handle, 8192);
        assert!(matches!(error, SymmError::SizeMismatch { expected_bytes: 8192, got_bytes: 4096, .. }));
        assert!(matches!(opened(&export.handle[1..], 4096), SymmError::BadHandle { peer: Rank(1), .. }));
        // Memory of the host is listed alike, and is none of a GPU's.
        let host = LocalBackend.allocate(4096).unwrap();
        let host_export = LocalBackend.export(&host, soon()).unwrap();
        assert!(matches!(opened(&host_export.handle, 4096), SymmError::BadHandle { .. }));
        let foreign = cpkv::symm::Mapping { addr: mine.addr, bytes: 4096, keep: Arc::new(()) };
        assert!(matches!(backend.export(&foreign, soon()).err(), Some(SymmError::ForeignMapping { .. })));
        let error = backend.allocate(100 << 20).err().unwrap();
        let SymmError::Device { backend: "cuda-threads", action, problem } = error else { panic!("{error}") };
        assert!(action.contains("allocating symmetric memory"));
        assert!(matches!(*problem, DeviceError::OutOfMemory { .. }));
    });
}
