//! CUDA IPC itself, between two processes: one opening a base however often it is asked, and what is refused.

use cpkv::deadline::Deadline;
use cpkv::device::cuda::{CudaDevice, GpuChoice};
use cpkv::device::{Device, DeviceBuffer, DeviceError};
use cpkv::symm::{CudaIpcBackend, Mapping, SymmBackend, SymmError};
use cpkv::units::Rank;

use crate::processes::on_gpus;
use crate::support::fixture::{LONG, Setup};
use crate::support::processes::mpi_setup;
use crate::support::{Ending, MpiJob, under_mpirun};
use crate::vgpu::in_child;

const BYTES: u64 = 10_000;

fn soon() -> Deadline {
    Deadline::after(LONG)
}

fn meet(setup: &Setup) {
    setup.bootstrap.barrier("meet", soon()).unwrap();
}

/// The whole of a mapping.
fn memory(mapping: &Mapping) -> DeviceBuffer {
    // SAFETY: the mapping's keep owns as many bytes.
    unsafe { DeviceBuffer::from_raw(mapping.addr, mapping.bytes, std::sync::Arc::clone(&mapping.keep)) }
}

fn bytes_of(gpu: &CudaDevice, mapping: &Mapping) -> Vec<u8> {
    let mut bytes = vec![0; mapping.bytes as usize];
    gpu.read(&memory(mapping), &mut bytes).unwrap();
    bytes
}

#[test]
fn a_base_is_opened_once_and_closed_with_its_last_holder_before_its_owner_frees_it() {
    const TEST: &str = "ipc::a_base_is_opened_once_and_closed_with_its_last_holder_before_its_owner_frees_it";
    for devices in ["1", "2"] {
        let faults = on_gpus(&[("CPKV_VGPU_DEVICES", devices)], || {
            under_mpirun(&MpiJob::new(2), TEST, || {
                let setup = mpi_setup();
                let gpu = CudaDevice::open(&GpuChoice::LocalRank(setup.rank().0)).unwrap();
                let backend = CudaIpcBackend::new(gpu.clone());
                assert!(!backend.outlives_its_owner());
                let mine = backend.allocate(BYTES).unwrap();
                gpu.write(&[setup.rank().0 as u8 + 1; BYTES as usize], &memory(&mine)).unwrap();
                let export = backend.export(&mine, soon()).unwrap();
                let handles = setup.bootstrap.all_gather("handles", &export.handle, soon()).unwrap();
                let peer = Rank(1 - setup.rank().0);
                let open = || backend.open(peer, &handles[peer.idx()], BYTES, soon()).unwrap();
                let (first, second) = (open(), open());
                assert_eq!((first.addr, first.bytes), (second.addr, BYTES));
                // The clone of a backend shares the count.
                let third = backend.clone().open(peer, &handles[peer.idx()], BYTES, soon()).unwrap();
                drop((first, third));
                let theirs = vec![peer.0 as u8 + 1; BYTES as usize];
                assert!(bytes_of(&gpu, &second) == theirs, "a holder is left");
                drop(second);
                let again = open();
                assert!(bytes_of(&gpu, &again) == theirs, "closed, and opened anew");
                drop(again);
                meet(&setup);
                // Everybody has closed it: were it still open, the virtual driver would call this a fault.
                drop((mine, export));
                meet(&setup);
                let gone = backend.open(peer, &handles[peer.idx()], BYTES, soon()).err().unwrap();
                let SymmError::Device { action, problem, .. } = &gone else { panic!("{gone}") };
                assert_eq!(action, &format!("opening the memory of rank {peer}"));
                assert!(matches!(**problem, DeviceError::Cuda { call: "cuIpcOpenMemHandle", .. }), "{gone}");
                meet(&setup);
                Ending::Normal
            });
        });
        assert_eq!(faults, "", "{devices} GPUs");
    }
}

#[test]
fn handles_and_mappings_that_do_not_fit_are_refused_with_the_reason() {
    in_child(&[("CPKV_VGPU_MEMORY_MB", "64")], || {
        let gpu = CudaDevice::open(&GpuChoice::Ordinal(0)).unwrap();
        let backend = CudaIpcBackend::new(gpu.clone());
        let mine = backend.allocate(BYTES).unwrap();
        assert_eq!((backend.name(), mine.bytes, backend.available_bytes()), ("cuda-ipc", BYTES, None));
        assert!(bytes_of(&gpu, &mine).iter().all(|&byte| byte == 0));
        let export = backend.export(&mine, soon()).unwrap();
        let opened = |handle: &[u8], bytes| backend.open(Rank(1), handle, bytes, soon()).err().unwrap();
        let error = opened(&export.handle, BYTES + 1);
        let (expected_bytes, got_bytes) = (BYTES + 1, BYTES);
        let expected =
            SymmError::SizeMismatch { backend: "cuda-ipc", peer: Rank(1), expected_bytes, got_bytes };
        assert_eq!(error, expected);
        let malformed = SymmError::BadHandle { backend: "cuda-ipc", peer: Rank(1) };
        assert_eq!(opened(&export.handle[1..], BYTES), malformed);
        // A process does not open its own memory.
        let error = opened(&export.handle, BYTES);
        let SymmError::Device { problem, .. } = &error else { panic!("{error}") };
        assert!(matches!(**problem, DeviceError::Cuda { code: 201, .. }), "{error}");
        let foreign = Mapping { addr: mine.addr, bytes: BYTES, keep: std::sync::Arc::new(()) };
        let error = backend.export(&foreign, soon()).err().unwrap();
        assert_eq!(error, SymmError::ForeignMapping { backend: "cuda-ipc" });
        for bytes in [100 << 20, u64::MAX] {
            let error = backend.allocate(bytes).err().unwrap();
            let SymmError::Device { problem, .. } = &error else { panic!("{error}") };
            assert_eq!(**problem, DeviceError::OutOfMemory { device: "cuda", bytes }, "{error}");
        }
    });
}

#[test]
fn memory_that_cannot_be_exported_says_so() {
    in_child(&[("CPKV_VGPU_FAULTS", "export-fails")], || {
        let gpu = CudaDevice::open(&GpuChoice::Ordinal(0)).unwrap();
        let backend = CudaIpcBackend::new(gpu);
        let mine = backend.allocate(BYTES).unwrap();
        let said = backend.export(&mine, soon()).err().unwrap().to_string();
        for word in ["cuda-ipc: exporting symmetric memory", "cuIpcGetMemHandle", "MAP_FAILED (205)"] {
            assert!(said.contains(word), "{said}");
        }
    });
}
