//! A device and a backend of different kinds of memory do not go together.

use std::sync::Arc;

use cpkv::compose::ComposeError;
use cpkv::device::cuda::{CudaDevice, GpuChoice};
use cpkv::device::{CpuDevice, Device};
use cpkv::symm::{CudaThreadsBackend, LocalBackend, RegisterError, SharedBackend};

use crate::support::fixture::{
    Bench, LONG, Setup, composer_options, group_options, model, on_setups, thread_setups,
};
use crate::support::scenario::PAGE_SIZE;
use crate::vgpu::in_child;

fn registered(setup: &Setup) -> ComposeError {
    let options = (group_options(LONG), composer_options(64));
    Bench::new(setup, model(1, PAGE_SIZE), 32, options.0, options.1).err().unwrap()
}

#[test]
fn a_backend_of_other_memory_than_the_device_is_refused_on_all_ranks() {
    in_child(&[], || {
        let gpu = CudaDevice::open(&GpuChoice::Ordinal(0)).unwrap();
        let on_gpu: (Arc<dyn Device>, SharedBackend) = (Arc::new(gpu.clone()), Arc::new(LocalBackend));
        let on_cpu: (Arc<dyn Device>, SharedBackend) =
            (Arc::new(CpuDevice), Arc::new(CudaThreadsBackend::new(gpu)));
        for ((device, backend), words) in
            [(on_gpu, ["cuda memory", "`threads`"]), (on_cpu, ["host memory", "`cuda-threads`"])]
        {
            let setups = thread_setups(3).into_iter().map(|setup| Setup {
                device: Arc::clone(&device),
                backend: Arc::clone(&backend),
                ..setup
            });
            on_setups(setups.collect(), |setup| {
                let error = registered(&setup);
                let ComposeError::Register(RegisterError::WrongMemory { .. }) = &error else {
                    panic!("{error}")
                };
                assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
            });
        }
    });
}

#[test]
fn a_rank_on_another_kind_of_device_is_named_on_all_ranks() {
    in_child(&[], || {
        let mut setups = thread_setups(3);
        (setups[1].device, setups[1].backend) = (Arc::new(CpuDevice), Arc::new(LocalBackend));
        on_setups(setups, |setup| {
            let error = registered(&setup);
            let ComposeError::Register(RegisterError::Mismatch { rank, got, expected, .. }) = &error else {
                panic!("{error}")
            };
            assert_eq!((rank.0, &**expected, &**got), (1, "cuda", "host"), "{error}");
        });
    });
}
