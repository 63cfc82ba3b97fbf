//! What the tests of the device share: an open GPU, a stream, and small pieces of work for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cpkv::deadline::Deadline;
use cpkv::device::cuda::{CudaDevice, GpuChoice};
use cpkv::device::{Device, DeviceBuffer, DeviceError, HostCall, Keep, Stream};
use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{AddBytesParams, HalfSelect, ZeroParams};

/// Enough for any wait that ends well.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The first GPU and a stream on it.
pub(crate) struct Lab {
    pub(crate) device: CudaDevice,
    pub(crate) stream: Arc<dyn Stream>,
}

impl Lab {
    pub(crate) fn open() -> Self {
        let device = CudaDevice::open(&GpuChoice::Ordinal(0)).unwrap();
        let stream = device.stream().unwrap();
        Self { device, stream }
    }

    /// Device memory that holds `bytes`.
    pub(crate) fn holding(&self, bytes: &[u8]) -> DeviceBuffer {
        let buffer = self.device.alloc(bytes.len() as u64).unwrap();
        self.device.write(bytes, &buffer).unwrap();
        buffer
    }

    pub(crate) fn read(&self, buffer: &DeviceBuffer) -> Vec<u8> {
        let mut bytes = vec![0xEE; buffer.bytes() as usize];
        self.device.read(buffer, &mut bytes).unwrap();
        bytes
    }

    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        self.stream.synchronize(soon())
    }

    /// Queues a kernel that does nothing.
    pub(crate) fn nothing(&self) -> Result<(), DeviceError> {
        nothing(&*self.stream, &(Arc::new(()) as Keep))
    }

    /// Refuses nothing: everything a stream takes, and what came of it, by its name in errors.
    pub(crate) fn every_call(&self) -> Vec<(&'static str, Result<(), DeviceError>)> {
        let buffer = self.device.alloc(16);
        let mut calls = vec![("launch", self.nothing())];
        if let Ok(buffer) = &buffer {
            let mut bytes = [0; 16];
            calls.push(("upload", self.stream.upload(vec![1; 16], buffer)));
            calls.push(("copy", self.stream.copy(buffer, buffer)));
            calls.push(("download", self.stream.download(buffer, &mut bytes, soon())));
        } else {
            calls.push(("alloc", buffer.map(drop)));
        }
        calls.push(("call", self.stream.host_call("call", Box::new(|| Ok(())))));
        calls.push(("record event", self.stream.record().map(drop)));
        calls.push(("begin capture", self.stream.begin_capture()));
        calls.push(("end capture", self.stream.end_capture().map(drop)));
        calls.push(("synchronize", self.synchronize()));
        calls
    }
}

pub(crate) fn soon() -> Deadline {
    Deadline::after(LONG)
}

pub(crate) fn within_ms(milliseconds: u64) -> Deadline {
    Deadline::after(Duration::from_millis(milliseconds))
}

/// Queues a kernel that does nothing, and needs `keep`.
pub(crate) fn nothing(stream: &dyn Stream, keep: &Keep) -> Result<(), DeviceError> {
    let dst_half = HalfSelect::default();
    let params = ZeroParams { dst: 0, ranges: 0, dst_half, poison: 0, num_ranges: 0, reserved: 0 };
    // SAFETY: no ranges, so no address is used.
    unsafe { stream.launch(Kernel::Zero(params), keep) }
}

/// Queues `dst += src`, byte by byte; both are kept, and `also`.
pub(crate) fn add(
    stream: &dyn Stream,
    dst: &DeviceBuffer,
    src: &DeviceBuffer,
    also: Keep,
) -> Result<(), DeviceError> {
    let params = AddBytesParams { dst: dst.addr(), src: src.addr(), bytes: dst.bytes(), poison: 0 };
    let keep: Keep = Arc::new((dst.clone(), src.clone(), also));
    // SAFETY: both ranges live in `keep` and have the same length; these tests order what touches them.
    unsafe { stream.launch(Kernel::AddBytes(params), &keep) }
}

/// A host call that waits until the sender is dropped or sends.
pub(crate) fn gate() -> (Sender<()>, HostCall) {
    let (open, wait) = channel();
    let call = move || {
        let _ = wait.recv_timeout(LONG);
        Ok(())
    };
    (open, Box::new(call))
}

/// A host call that notes `word`.
pub(crate) fn note(log: &Arc<Mutex<Vec<u32>>>, word: u32) -> HostCall {
    let log = Arc::clone(log);
    Box::new(move || {
        log.lock().unwrap().push(word);
        Ok(())
    })
}

/// Counts how many of its clones' values were dropped.
pub(crate) struct Dropped(pub(crate) Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Waits until `reached`.
#[track_caller]
pub(crate) fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let started = Instant::now();
    while !reached() {
        assert!(started.elapsed() < LONG, "{what}: not reached");
        std::thread::sleep(Duration::from_millis(1));
    }
}
