//! Which GPU is taken, and what is said where there is none.

use cpkv::device::DeviceError;
use cpkv::device::cuda::{CudaDevice, GpuChoice, PTX, PTX_COMPILER, gpus};

use crate::vgpu::in_child;

fn refusal(choice: &GpuChoice) -> String {
    match CudaDevice::open(choice).err() {
        Some(DeviceError::NoGpu { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_gpu_is_taken_by_number_by_uuid_and_by_local_rank() {
    in_child(&[("CPKV_VGPU_DEVICES", "3")], || {
        let all = gpus().unwrap();
        assert_eq!(all.iter().map(|gpu| gpu.ordinal).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(all.iter().all(|gpu| gpu.capability == (9, 0) && gpu.memory_bytes == 1 << 30));
        for gpu in &all {
            let opened = CudaDevice::open(&GpuChoice::Ordinal(gpu.ordinal)).unwrap();
            assert_eq!(opened.info(), gpu);
            // As it is printed, so it can be asked for.
            let printed = gpu.to_string();
            let uuid = printed.split([' ', ')']).find(|word| word.starts_with("GPU-")).unwrap();
            let choice: GpuChoice = uuid.parse().unwrap();
            assert_eq!(choice, GpuChoice::Uuid(gpu.uuid));
            assert_eq!(CudaDevice::open(&choice).unwrap().info(), gpu);
            assert!(format!("{opened:?}").contains(uuid) && printed.contains("sm_90"), "{printed}");
        }
        for (rank, expected) in [(0, 0), (2, 2), (3, 0), (7, 1)] {
            let opened = CudaDevice::open(&GpuChoice::LocalRank(rank)).unwrap();
            assert_eq!(opened.info().ordinal, expected, "local rank {rank}");
        }
    });
}

#[test]
fn a_gpu_that_is_not_there_is_refused_with_those_that_are() {
    in_child(&[("CPKV_VGPU_DEVICES", "2")], || {
        for (choice, named) in [(GpuChoice::Ordinal(2), "Ordinal(2)"), (GpuChoice::Uuid([7; 16]), "Uuid")] {
            let reason = refusal(&choice);
            for word in [named, "cuda:0", "cuda:1"] {
                assert!(reason.contains(word), "{reason}");
            }
        }
        for text in ["GPU-xyz", "first"] {
            let error = text.parse::<GpuChoice>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("nvidia-smi -L"), "{error}");
        }
        assert_eq!("1".parse::<GpuChoice>().unwrap(), GpuChoice::Ordinal(1));
    });
}

#[test]
fn numbers_count_the_visible_gpus() {
    in_child(&[("CPKV_VGPU_DEVICES", "3"), ("CUDA_VISIBLE_DEVICES", "2,0")], || {
        let all = gpus().unwrap();
        // The last byte of a virtual GPU's UUID is its place on the machine.
        assert_eq!(all.iter().map(|gpu| gpu.uuid[15]).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(CudaDevice::open(&GpuChoice::LocalRank(2)).unwrap().info().uuid[15], 2);
    });
}

#[test]
fn a_machine_without_a_gpu_is_told_from_a_driver_that_does_not_start() {
    for (variable, value) in [("CUDA_VISIBLE_DEVICES", ""), ("CPKV_VGPU_DEVICES", "none")] {
        in_child(&[(variable, value)], || {
            let words = match std::env::var("CPKV_VGPU_DEVICES") {
                Ok(_) => ["the driver does not start", "InvalidValue, 1"],
                Err(_) => ["the driver finds no GPU", "NoDevice, 100"],
            };
            let reason = refusal(&GpuChoice::Ordinal(0));
            assert!(words.iter().all(|word| reason.contains(word)), "{reason}");
            assert_eq!(gpus().unwrap_err(), DeviceError::NoGpu { reason }, "each time");
        });
    }
}

#[test]
fn the_kernels_and_their_compiler_are_in_the_program() {
    assert!(PTX.contains(".target sm_90") && PTX_COMPILER.contains("rustc"), "{PTX_COMPILER}");
}
