//! Streams: work in order, on a thread for each stream.
//!
//! Order between streams is kept by what an item waits for (`after`): events, and the legacy default stream's rule. That
//! rule: work on the default stream waits for all earlier work of blocking streams, and theirs for it; non-blocking
//! streams stand apart.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::capture::Capturing;
use super::code::Code;
use super::context::Context;
use super::done::Done;
use super::driver::Driver;
use super::lock;
use super::work::Work;

/// How a stream stands to the default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// It is the legacy default stream.
    Legacy,
    /// It is ordered with the default stream.
    Blocking,
    /// It is not.
    NonBlocking,
}

/// A stream.
pub(super) struct Stream {
    /// Its handle.
    pub(super) handle: u64,
    /// Whose it is.
    pub(super) context: Arc<Context>,
    /// Its order.
    pub(super) lane: Lane,
    /// Its priority, kept and not acted on.
    pub(super) priority: i32,
    queue: Arc<Queue>,
    capturing: Mutex<Option<Capturing>>,
}

/// What became of submitted work.
pub(super) enum Submitted {
    /// It will run.
    Queued(Arc<Done>),
    /// It became a node of a graph.
    Captured,
}

struct Item {
    work: Work,
    after: Vec<Arc<Done>>,
    done: Arc<Done>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    running: Option<String>,
    last: Option<Arc<Done>>,
    has_worker: bool,
    closed: bool,
}

impl Stream {
    pub(super) fn new(handle: u64, context: Arc<Context>, lane: Lane, priority: i32) -> Arc<Stream> {
        let (queue, capturing) = (Arc::default(), Mutex::default());
        Arc::new(Stream { handle, context, lane, priority, queue, capturing })
    }

    /// Puts work on the stream, or into the graph that it is captured into.
    ///
    /// # Errors
    ///
    /// What the context failed with; `StreamCaptureImplicit` on the default stream beside a capture;
    /// `StreamCaptureInvalidated`; `OperatingSystem` when no thread can be made.
    pub(super) fn submit(
        &self,
        driver: &'static Driver,
        work: Work,
        mut after: Vec<Arc<Done>>,
    ) -> Result<Submitted, Code> {
        self.context.check()?;
        if let Some(capturing) = self.capture().as_mut() {
            capturing.add(work)?;
            return Ok(Submitted::Captured);
        }
        let mut streams = self.context.streams();
        let blocking = |stream: &&Arc<Stream>| stream.lane == Lane::Blocking;
        match self.lane {
            Lane::Legacy => {
                for stream in streams.others.iter().filter(blocking) {
                    if let Some(capturing) = stream.capture().as_ref() {
                        capturing.capture.invalidate();
                        return Err(Code::StreamCaptureImplicit);
                    }
                    after.extend(stream.unfinished());
                }
            }
            Lane::Blocking => after.extend(streams.legacy.as_ref().and_then(|legacy| legacy.unfinished())),
            Lane::NonBlocking => {}
        }
        streams.others.retain(|stream| !stream.is_closed() || stream.unfinished().is_some());
        let done = Done::pending();
        let item = Item { work, after, done: Arc::clone(&done) };
        self.queue.push(driver, &self.context, item)?;
        Ok(Submitted::Queued(done))
    }

    /// Puts work on the stream that must not be captured.
    ///
    /// # Errors
    ///
    /// As [`Stream::submit`], and `StreamCaptureUnsupported` (which spoils the capture).
    pub(super) fn submit_now(&self, driver: &'static Driver, work: Work) -> Result<Arc<Done>, Code> {
        self.refuse_capture()?;
        match self.submit(driver, work, Vec::new())? {
            Submitted::Queued(done) => Ok(done),
            Submitted::Captured => Err(Code::StreamCaptureUnsupported),
        }
    }

    /// # Errors
    ///
    /// `StreamCaptureUnsupported` when the stream is being captured; the capture is spoilt.
    pub(super) fn refuse_capture(&self) -> Result<(), Code> {
        match self.capture().as_ref() {
            None => Ok(()),
            Some(capturing) => {
                capturing.capture.invalidate();
                Err(Code::StreamCaptureUnsupported)
            }
        }
    }

    /// The capture it takes part in, locked.
    pub(super) fn capture(&self) -> std::sync::MutexGuard<'_, Option<Capturing>> {
        lock::mutex(&self.capturing)
    }

    /// The last thing put on it, if that is not finished.
    pub(super) fn unfinished(&self) -> Option<Arc<Done>> {
        let state = lock::mutex(&self.queue.state);
        state.last.as_ref().filter(|done| !done.is_finished()).cloned()
    }

    /// What it is doing; `None` when idle.
    pub(super) fn describe(&self) -> Option<String> {
        let state = lock::mutex(&self.queue.state);
        let running = state.running.as_ref()?;
        Some(format!("stream {:#x} is at {running}, {} behind it", self.handle, state.items.len()))
    }

    /// Takes no more work; what it has is finished first.
    pub(super) fn close(&self) {
        lock::mutex(&self.queue.state).closed = true;
        self.queue.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        lock::mutex(&self.queue.state).closed
    }
}

impl Queue {
    fn push(
        self: &Arc<Queue>,
        driver: &'static Driver,
        context: &Arc<Context>,
        item: Item,
    ) -> Result<(), Code> {
        let mut state = lock::mutex(&self.state);
        if !state.has_worker {
            let (queue, context) = (Arc::clone(self), Arc::clone(context));
            let thread = std::thread::Builder::new().name("vgpu-stream".to_owned());
            thread.spawn(move || queue.serve(driver, &context)).map_err(|_| Code::OperatingSystem)?;
            state.has_worker = true;
        }
        state.last = Some(Arc::clone(&item.done));
        state.items.push_back(item);
        self.changed.notify_all();
        Ok(())
    }

    /// Runs items until the stream is closed and empty, or its context is destroyed.
    fn serve(&self, driver: &'static Driver, context: &Context) {
        while let Some(item) = self.next(context) {
            for before in &item.after {
                while !before.wait(Duration::from_millis(20)) && !context.is_over() {}
            }
            if !context.is_over() {
                let run = catch_unwind(AssertUnwindSafe(|| item.work.run(driver, context)));
                let failed = run.unwrap_or_else(|_| {
                    driver.fault(&format!(
                        "device {}: the virtual GPU itself panicked",
                        context.device.physical
                    ));
                    Err(Code::Unknown)
                });
                if let Err(code) = failed {
                    context.fail(code);
                }
            }
            // What the work holds goes first: who waits for it may free memory next.
            drop(item.work);
            lock::mutex(&self.state).running = None;
            item.done.finish();
        }
    }

    fn next(&self, context: &Context) -> Option<Item> {
        let mut state = lock::mutex(&self.state);
        loop {
            if let Some(item) = state.items.pop_front() {
                state.running = Some(item.work.describe());
                return Some(item);
            }
            if state.closed || context.check() == Err(Code::ContextIsDestroyed) {
                state.has_worker = false;
                return None;
            }
            state = lock::wait(&self.changed, state, Duration::from_secs(1));
        }
    }
}
