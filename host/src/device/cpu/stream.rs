//! Streams of the CPU device: a thread that works off a queue.
//!
//! Life of a stream: *open* (takes work) -> *closed* (its handle was dropped: what is queued still runs, then the
//! thread ends by itself). Dropping never waits: queued work keeps its own memory alive.

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use cpkv_kernels::Kernel;

use super::event::CpuEvent;
use super::graph::CpuGraph;
use super::work::Work;
use crate::deadline::Deadline;
use crate::device::{DeviceBuffer, DeviceError, Event, Graph, HostCall, Keep, Stream};

/// How often a stream that waits for an event looks whether it was closed.
const EVENT_POLL: Duration = Duration::from_millis(50);

struct Queue {
    waiting: VecDeque<Work>,
    running: Option<&'static str>,
    error: Option<DeviceError>,
    capture: Option<CpuGraph>,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    work_came: Condvar,
    work_done: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream.
pub(super) struct CpuStream {
    shared: Arc<Shared>,
    num_host_syncs: AtomicU64,
}

impl CpuStream {
    pub(super) fn start() -> Result<Self, DeviceError> {
        let queue =
            Queue { waiting: VecDeque::new(), running: None, error: None, capture: None, closed: false };
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
            work_came: Condvar::new(),
            work_done: Condvar::new(),
        });
        let worker = Arc::clone(&shared);
        thread::Builder::new().name("cpkv-stream".to_owned()).spawn(move || work_off(&worker)).map_err(
            |error| DeviceError::NoStream { device: "cpu", code: error.raw_os_error().unwrap_or_default() },
        )?;
        Ok(Self { shared, num_host_syncs: AtomicU64::new(0) })
    }

    fn push(&self, work: Work) -> Result<(), DeviceError> {
        let mut queue = self.shared.lock();
        if let Some(error) = &queue.error {
            return Err(error.clone());
        }
        if let Some(graph) = &mut queue.capture {
            return graph.capture(work);
        }
        queue.waiting.push_back(work);
        drop(queue);
        self.shared.work_came.notify_one();
        Ok(())
    }
}

impl Drop for CpuStream {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work_came.notify_one();
    }
}

impl Stream for CpuStream {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }

    unsafe fn launch(&self, kernel: Kernel, keep: &Keep) -> Result<(), DeviceError> {
        self.push(Work::Kernel { kernel, keep: Arc::clone(keep) })
    }

    fn upload(&self, bytes: Vec<u8>, dst: &DeviceBuffer) -> Result<(), DeviceError> {
        dst.check("upload", bytes.len() as u64, bytes.len() as u64 <= dst.bytes())?;
        self.push(Work::Upload { bytes, dst: dst.clone() })
    }

    fn copy(&self, src: &DeviceBuffer, dst: &DeviceBuffer) -> Result<(), DeviceError> {
        dst.check("copy", src.bytes(), src.bytes() <= dst.bytes())?;
        self.push(Work::Copy { src: src.clone(), dst: dst.clone() })
    }

    fn download(&self, src: &DeviceBuffer, dst: &mut [u8], deadline: Deadline) -> Result<(), DeviceError> {
        src.check("download", dst.len() as u64, dst.len() as u64 == src.bytes())?;
        self.synchronize(deadline)?;
        let addr = ptr::with_exposed_provenance(src.addr() as usize);
        // SAFETY: `src` keeps its range alive, the lengths agree, and the stream that writes it is idle.
        unsafe { ptr::copy_nonoverlapping(addr, dst.as_mut_ptr(), dst.len()) };
        Ok(())
    }

    fn host_call(&self, name: &'static str, call: HostCall) -> Result<(), DeviceError> {
        self.push(Work::HostCall { name, call })
    }

    fn record(&self) -> Result<Arc<dyn Event>, DeviceError> {
        let event = Arc::new(CpuEvent::default());
        self.push(Work::Record(Arc::clone(&event)))?;
        Ok(event)
    }

    fn wait(&self, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
        self.push(Work::Wait(Arc::clone(event)))
    }

    fn begin_capture(&self) -> Result<(), DeviceError> {
        let mut queue = self.shared.lock();
        match (&queue.error, &queue.capture) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(_)) => Err(DeviceError::NotCapturable { call: "begin capture" }),
            (None, None) => {
                queue.capture = Some(CpuGraph::default());
                Ok(())
            }
        }
    }

    fn end_capture(&self) -> Result<Arc<dyn Graph>, DeviceError> {
        let captured = self.shared.lock().capture.take();
        let graph = captured.ok_or(DeviceError::NotCapturable { call: "end capture" })?;
        Ok(Arc::new(graph.end()?))
    }

    unsafe fn replay(&self, graph: &Arc<dyn Graph>) -> Result<(), DeviceError> {
        let graph: &CpuGraph =
            graph.as_any().downcast_ref().ok_or(DeviceError::Foreign { call: "replay" })?;
        graph.works().try_for_each(|work| self.push(work))
    }

    fn synchronize(&self, deadline: Deadline) -> Result<(), DeviceError> {
        // Relaxed: a count for reports, it orders nothing.
        self.num_host_syncs.fetch_add(1, Ordering::Relaxed);
        let (queue, _) = self
            .shared
            .work_done
            .wait_timeout_while(self.shared.lock(), deadline.remaining(), |queue| {
                queue.running.is_some() || !queue.waiting.is_empty()
            })
            .unwrap_or_else(PoisonError::into_inner);
        match (&queue.error, queue.running, queue.waiting.front()) {
            (Some(error), _, _) => Err(error.clone()),
            (None, None, None) => Ok(()),
            (None, running, next) => Err(DeviceError::Deadline {
                call: "synchronize",
                waited_ms: deadline.waited_ms(),
                running: running.or(next.map(Work::name)).unwrap_or("nothing"),
            }),
        }
    }

    fn num_host_syncs(&self) -> u64 {
        self.num_host_syncs.load(Ordering::Relaxed)
    }
}

/// The worker's thread: until closed and empty.
fn work_off(shared: &Shared) {
    loop {
        let mut queue = shared.lock();
        queue.running = None;
        if queue.waiting.is_empty() {
            shared.work_done.notify_all();
        }
        let work = loop {
            if let Some(work) = queue.waiting.pop_front() {
                break work;
            }
            if queue.closed {
                return;
            }
            queue = shared.work_came.wait(queue).unwrap_or_else(PoisonError::into_inner);
        };
        queue.running = Some(work.name());
        let error = queue.error.clone();
        drop(queue);
        let outcome = match (work, error) {
            (Work::Record(event), error) => {
                event.fire(error);
                Ok(())
            }
            // Like a GPU: after an error nothing runs any more, but who waits for an event learns of it.
            (_, Some(_)) => Ok(()),
            (Work::Wait(event), None) => await_event(shared, &event),
            (work, None) => work.run(),
        };
        if let Err(error) = outcome {
            shared.lock().error.get_or_insert(error);
        }
    }
}

/// Waits for an event of any stream, unless the own stream is closed meanwhile.
fn await_event(shared: &Shared, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
    loop {
        match event.wait(Deadline::after(EVENT_POLL)) {
            Err(DeviceError::Deadline { .. }) if !event.query() && !shared.lock().closed => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;
    use crate::device::Device;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    #[test]
    fn a_launch_returns_before_its_work_is_done_and_synchronize_after() {
        let stream = CpuStream::start().unwrap();
        let (open, gate) = mpsc::channel::<()>();
        stream.host_call("gate", Box::new(move || gate.recv().map_err(|_| unreachable!()))).unwrap();
        let event = stream.record().unwrap();
        assert!(!event.query());
        let late = stream.synchronize(Deadline::after(Duration::from_millis(20))).unwrap_err();
        assert!(matches!(late, DeviceError::Deadline { running: "gate", .. }), "{late}");
        open.send(()).unwrap();
        stream.synchronize(soon()).unwrap();
        assert!(event.query());
        assert_eq!(stream.num_host_syncs(), 2);
    }

    #[test]
    fn an_error_surfaces_at_synchronisation_and_stops_what_follows() {
        let stream = CpuStream::start().unwrap();
        let error = DeviceError::HostCall { call: "broken", code: 7, rank: 0 };
        let (gate_in, gate) = mpsc::channel::<()>();
        let thrown = error.clone();
        stream
            .host_call(
                "broken",
                Box::new(move || {
                    let _ = gate.recv();
                    Err(thrown)
                }),
            )
            .unwrap();
        let (ran, has_run) = mpsc::channel();
        stream.host_call("after", Box::new(move || ran.send(()).map_err(|_| unreachable!()))).unwrap();
        let event = stream.record().unwrap();
        gate_in.send(()).unwrap();
        assert_eq!(stream.synchronize(soon()).unwrap_err(), error);
        assert_eq!(event.wait(soon()).unwrap_err(), error);
        assert!(has_run.try_recv().is_err());
        assert_eq!(stream.record().err(), Some(error));
    }

    #[test]
    fn a_panic_in_a_host_call_is_an_error_with_its_message() {
        let stream = CpuStream::start().unwrap();
        stream.host_call("careless", Box::new(|| panic!("no luck"))).unwrap();
        let error = stream.synchronize(soon()).unwrap_err();
        assert_eq!(error, DeviceError::Panicked { call: "careless", message: "no luck".to_owned() });
    }

    #[test]
    fn streams_are_ordered_by_events_only() {
        let (first, second) = (CpuStream::start().unwrap(), CpuStream::start().unwrap());
        let (open, gate) = mpsc::channel::<()>();
        first.host_call("gate", Box::new(move || gate.recv().map_err(|_| unreachable!()))).unwrap();
        let event = first.record().unwrap();
        second.synchronize(soon()).unwrap();
        second.wait(&event).unwrap();
        assert!(second.synchronize(Deadline::after(Duration::from_millis(20))).is_err());
        open.send(()).unwrap();
        second.synchronize(soon()).unwrap();
    }

    #[test]
    fn captured_copies_run_at_every_replay_and_not_before() {
        let (device, stream) = (crate::device::CpuDevice, CpuStream::start().unwrap());
        let (src, dst) = (device.alloc(8).unwrap(), device.alloc(8).unwrap());
        let holds = |expected: u8| {
            let mut bytes = [0; 8];
            stream.download(&dst, &mut bytes, soon()).unwrap();
            assert_eq!(bytes, [expected; 8]);
        };
        stream.begin_capture().unwrap();
        stream.copy(&src, &dst).unwrap();
        let graph = stream.end_capture().unwrap();
        for byte in 1..4 {
            stream.upload(vec![byte; 8], &src).unwrap();
            holds(byte - 1);
            // SAFETY: a copy between two buffers of this test.
            unsafe { stream.replay(&graph) }.unwrap();
            holds(byte);
        }
    }

    #[test]
    fn what_cannot_be_captured_is_refused_at_once_and_at_the_end() {
        let stream = CpuStream::start().unwrap();
        assert_eq!(stream.end_capture().err(), Some(DeviceError::NotCapturable { call: "end capture" }));
        stream.begin_capture().unwrap();
        assert_eq!(stream.begin_capture(), Err(DeviceError::NotCapturable { call: "begin capture" }));
        let refused = DeviceError::NotCapturable { call: "greeting" };
        assert_eq!(stream.host_call("greeting", Box::new(|| Ok(()))), Err(refused.clone()));
        assert_eq!(stream.end_capture().err(), Some(refused));
        stream.synchronize(soon()).unwrap();
    }

    #[test]
    fn dropping_a_stuck_stream_does_not_wait() {
        let (stuck, other) = (CpuStream::start().unwrap(), CpuStream::start().unwrap());
        let (_open, gate) = mpsc::channel::<()>();
        other.host_call("gate", Box::new(move || gate.recv().or(Ok(())))).unwrap();
        let never = other.record().unwrap();
        stuck.wait(&never).unwrap();
        let before = Instant::now();
        drop(stuck);
        assert!(before.elapsed() < Duration::from_secs(20));
    }
}
