//! What the driver refuses: an error with call, code, name and remedy, at each call; never a panic or an endless wait.

use std::sync::Arc;

use cpkv::device::cuda::{CudaDevice, GpuChoice};
use cpkv::device::{Device, DeviceError};

use crate::lab::{Lab, add, soon};
use crate::vgpu::in_child;

/// Faults that keep a GPU from being opened, and what the error says. Opening makes two streams and an event, allocates
/// device memory three times and host memory twice, and launches each of ten kernels.
const AT_OPEN: [(&str, [&str; 3]); 15] = [
    ("module-fails", ["cuda:0: cuModuleLoadDataEx failed", "InvalidPtx (218)", "CPKV_CUDA_ARCH"]),
    ("stream-fails=1", ["cuda:0: cuStreamCreate failed", "OutOfMemory (2)", "fewer pages"]),
    ("stream-fails=2", ["cuda:0: cuStreamCreate failed", "OutOfMemory (2)", "fewer pages"]),
    ("event-fails=1", ["cuda:0: cuEventCreate failed", "CUDA_ERROR_OUT_OF_MEMORY (2)", "fewer pages"]),
    ("alloc-fails=1", ["cuda: cannot allocate", "512 bytes", "fewer pages"]),
    ("alloc-fails=2", ["cuda: cannot allocate", "512 bytes", "fewer pages"]),
    ("alloc-fails=3", ["cuda: cannot allocate", "512 bytes", "fewer pages"]),
    ("host-alloc-fails=1", ["cuda (host memory): cannot allocate", "bytes", "fewer pages"]),
    ("host-alloc-fails=2", ["cuda (host memory): cannot allocate", "bytes", "fewer pages"]),
    ("launch-fails=1", ["cuda:0: cuLaunchKernel failed", "OUT_OF_RESOURCES (701)", "A kernel failed"]),
    ("launch-fails=10", ["cuda:0: cuLaunchKernel failed", "OUT_OF_RESOURCES (701)", "A kernel failed"]),
    ("ecc=0", ["cuda:0: cuLaunchKernel failed", "ECC_UNCORRECTABLE (214)", "The hardware reports"]),
    ("ecc=9", ["cuda:0: ", "ECC_UNCORRECTABLE (214)", "The hardware reports"]),
    ("launch-fails=3@0", ["cuda:0: cuLaunchKernel failed", "OUT_OF_RESOURCES (701)", "A kernel failed"]),
    ("peer-lie", ["cuda: the driver does not start", "InvalidValue", "1)"]),
];

fn staged() -> String {
    std::env::var("CPKV_VGPU_FAULTS").unwrap()
}

#[test]
fn a_gpu_that_cannot_be_opened_says_which_call_failed_and_what_to_do() {
    for (fault, _) in AT_OPEN {
        in_child(&[("CPKV_VGPU_FAULTS", fault)], || {
            let (_, words) = AT_OPEN.iter().find(|(name, _)| *name == staged()).unwrap();
            let said = CudaDevice::open(&GpuChoice::Ordinal(0)).unwrap_err().to_string();
            assert!(words.iter().all(|word| said.contains(word)), "{}: {said}", staged());
        });
    }
}

#[test]
fn another_gpu_than_the_one_with_the_fault_can_be_opened() {
    in_child(&[("CPKV_VGPU_DEVICES", "2"), ("CPKV_VGPU_FAULTS", "module-fails@0")], || {
        assert!(CudaDevice::open(&GpuChoice::Ordinal(0)).is_err());
        CudaDevice::open(&GpuChoice::Ordinal(1)).unwrap();
    });
}

#[track_caller]
fn expect_cuda(error: &DeviceError, called: &str, expected: u32) {
    let DeviceError::Cuda { device, call, code, .. } = error else { panic!("{error}") };
    assert_eq!((&**device, *call, *code), ("cuda:0", called, expected), "{error}");
}

#[test]
fn a_stream_or_an_event_that_the_driver_refuses_is_an_error_and_the_next_one_works() {
    in_child(&[("CPKV_VGPU_FAULTS", "stream-fails=4,event-fails=4")], || {
        let lab = Lab::open();
        expect_cuda(&lab.device.stream().err().unwrap(), "cuStreamCreate", 2);
        // Two events for two streams, a third one here.
        lab.stream.record().unwrap();
        expect_cuda(&lab.stream.record().err().unwrap(), "cuEventCreate", 2);
        let other = lab.device.stream().unwrap();
        other.wait(&lab.stream.record().unwrap()).unwrap();
        other.synchronize(soon()).unwrap();
    });
}

#[test]
fn a_stream_without_the_event_that_times_it_is_an_error_and_leaves_nothing_behind() {
    in_child(&[("CPKV_VGPU_FAULTS", "event-fails=2")], || {
        let device = CudaDevice::open(&GpuChoice::Ordinal(0)).unwrap();
        expect_cuda(&device.stream().err().unwrap(), "cuEventCreate", 2);
        device.stream().unwrap().synchronize(soon()).unwrap();
    });
}

/// The event that what a stream needs is let go behind.
#[test]
fn work_whose_event_the_driver_refuses_is_told_and_still_has_what_it_needs() {
    in_child(&[("CPKV_VGPU_FAULTS", "event-fails=3")], || {
        let lab = Lab::open();
        let (ones, sum) = (lab.holding(&[1; 64]), lab.device.alloc(64).unwrap());
        let outcomes: Vec<_> =
            (0..64).map(|_| add(&*lab.stream, &sum, &ones, Arc::new(()))).filter(Result::is_err).collect();
        let [Err(error)] = &outcomes[..] else { panic!("{outcomes:?}") };
        expect_cuda(error, "cuEventCreate", 2);
        lab.synchronize().unwrap();
        assert_eq!(lab.read(&sum), [64; 64]);
    });
}

/// As above, for a stream that is dropped: what its work needs must not be freed under it.
#[test]
fn a_dropped_stream_whose_event_the_driver_refuses_frees_nothing_under_its_work() {
    let stderr = in_child(&[("CPKV_VGPU_FAULTS", "event-fails=3")], || {
        let lab = Lab::open();
        let (ones, sum) = (lab.holding(&[1; 64]), lab.device.alloc(64).unwrap());
        let ones_addr = ones.addr();
        let (open, closed) = crate::lab::gate();
        let doomed = Arc::clone(&lab.stream);
        let Lab { device, stream } = lab;
        drop(doomed);
        stream.host_call("closed gate", closed).unwrap();
        add(&*stream, &sum, &ones, Arc::new(())).unwrap();
        drop(ones);
        drop(stream);
        assert_ne!(device.alloc(64).unwrap().addr(), ones_addr, "queued work reads it");
        open.send(()).unwrap();
        let mut bytes = [0; 64];
        crate::lab::until("the queued work has run", || {
            device.read(&sum, &mut bytes).unwrap();
            bytes == [1; 64]
        });
    });
    assert_eq!(crate::vgpu::faults(&stderr), [""; 0]);
}

#[test]
fn a_launch_that_the_driver_refuses_is_an_error_and_the_next_one_runs() {
    in_child(&[("CPKV_VGPU_FAULTS", "launch-fails=12")], || {
        let lab = Lab::open();
        let (ones, sum) = (lab.holding(&[1; 64]), lab.device.alloc(64).unwrap());
        add(&*lab.stream, &sum, &ones, Arc::new(())).unwrap();
        let error = add(&*lab.stream, &sum, &ones, Arc::new(())).unwrap_err();
        expect_cuda(&error, "cuLaunchKernel", 701);
        add(&*lab.stream, &sum, &ones, Arc::new(())).unwrap();
        lab.synchronize().unwrap();
        assert_eq!(lab.read(&sum), [2; 64]);
    });
}

#[test]
fn host_memory_that_the_driver_refuses_is_an_error_of_what_needs_it() {
    for needs in ["upload", "alloc_host", "download"] {
        in_child(&[("CPKV_VGPU_FAULTS", "host-alloc-fails=3"), ("CPKV_TEST_NEEDS", needs)], || {
            let lab = Lab::open();
            let (bytes, buffer) = (1 << 20, lab.device.alloc(1 << 20).unwrap());
            let needs = |first: bool| match (&*std::env::var("CPKV_TEST_NEEDS").unwrap(), first) {
                ("upload", _) => lab.stream.upload(vec![1; bytes as usize], &buffer),
                ("download", _) => lab.stream.download(&buffer, &mut vec![0; bytes as usize], soon()),
                _ => lab.device.alloc_host(bytes).map(drop),
            };
            let refused = DeviceError::OutOfMemory { device: "cuda (host memory)", bytes };
            assert_eq!(needs(true), Err(refused));
            needs(false).unwrap();
            lab.synchronize().unwrap();
        });
    }
}

#[test]
fn after_an_error_of_the_hardware_every_call_tells_it_and_nothing_hangs() {
    let stderr = in_child(&[("CPKV_VGPU_FAULTS", "ecc=11")], || {
        let lab = Lab::open();
        let buffer = lab.holding(&[1; 16]);
        let graph = {
            lab.stream.begin_capture().unwrap();
            lab.stream.copy(&buffer, &buffer).unwrap();
            lab.stream.end_capture().unwrap()
        };
        let event = lab.stream.record().unwrap();
        let (open, closed) = crate::lab::gate();
        lab.stream.host_call("closed gate", closed).unwrap();
        let late = lab.stream.record().unwrap();
        lab.nothing().unwrap();
        let is_ecc = |error: &DeviceError| matches!(error, DeviceError::Cuda { code: 214, .. });
        assert!(is_ecc(&lab.nothing().unwrap_err()));
        for (call, outcome) in lab.every_call() {
            assert!(outcome.as_ref().is_err_and(is_ecc) || call == "end capture", "{call}: {outcome:?}");
        }
        // SAFETY: refused.
        let replayed = unsafe { lab.stream.replay(&graph) };
        assert!(is_ecc(&replayed.unwrap_err()));
        assert!(is_ecc(&lab.stream.wait(&event).unwrap_err()));
        // Nothing fires any more, so nobody waits for it: who does is told why.
        assert!(late.query() && late.fired_at_ns().is_none());
        assert!(is_ecc(&late.wait(soon()).unwrap_err()));
        assert!(is_ecc(&lab.device.alloc(16).unwrap_err()));
        assert!(is_ecc(&lab.device.write(&[0], &buffer).unwrap_err()));
        assert!(is_ecc(&lab.device.read(&buffer, &mut [0; 16]).unwrap_err()));
        assert!(is_ecc(&lab.device.stream().err().unwrap()));
        drop(open);
        drop((graph, event, late, buffer, lab));
    });
    assert!(stderr.contains("an ECC error is staged"), "{stderr}");
}
