//! Events: a point in a stream's work, or in a capture.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::capture::{Capture, Capturing};
use super::code::Code;
use super::done::Done;
use super::driver::Driver;
use super::lock;
use super::stream::{Lane, Stream, Submitted};
use super::work::Work;

/// Flag: no times are kept.
pub(super) const DISABLE_TIMING: u32 = 2;

/// An event.
pub(super) struct Event {
    /// The context it belongs to, by number.
    pub(super) context: u64,
    /// Its flags.
    pub(super) flags: u32,
    recorded: Mutex<Recorded>,
}

/// What an event means now.
enum Recorded {
    Never,
    At(Arc<Done>),
    Captured(Arc<Capture>, Vec<usize>),
}

impl Event {
    pub(super) fn new(context: u64, flags: u32) -> Event {
        Event { context, flags, recorded: Mutex::new(Recorded::Never) }
    }

    /// Records it after all work that the stream has.
    pub(super) fn record(&self, driver: &'static Driver, stream: &Stream) -> Result<(), Code> {
        // The lock is held while the mark is put on the stream, so two records leave the later one here.
        let mut recorded = lock::mutex(&self.recorded);
        if let Some(capturing) = stream.capture().as_ref() {
            *recorded = Recorded::Captured(Arc::clone(&capturing.capture), capturing.front.clone());
            return Ok(());
        }
        match stream.submit(driver, Work::Mark, Vec::new())? {
            Submitted::Queued(done) => *recorded = Recorded::At(done),
            Submitted::Captured => return Err(Code::StreamCaptureInvalidated),
        }
        Ok(())
    }

    /// What a wait for it waits for; `None`: it was never recorded.
    ///
    /// # Errors
    ///
    /// `CapturedEvent` when it was last recorded in a capture.
    pub(super) fn done(&self) -> Result<Option<Arc<Done>>, Code> {
        match &*lock::mutex(&self.recorded) {
            Recorded::Never => Ok(None),
            Recorded::At(done) => Ok(Some(Arc::clone(done))),
            Recorded::Captured(..) => Err(Code::CapturedEvent),
        }
    }

    /// Makes a stream's later work wait for what the event means at this moment.
    ///
    /// # Errors
    ///
    /// `StreamCaptureIsolation` when a stream in capture would wait for work outside of it, `StreamCaptureMerge` when
    /// two captures would become one, `StreamCaptureImplicit` when the default stream would join one.
    pub(super) fn make_wait(&self, driver: &'static Driver, stream: &Arc<Stream>) -> Result<(), Code> {
        let recorded = lock::mutex(&self.recorded);
        match &*recorded {
            Recorded::Never => Ok(()),
            Recorded::At(done) => {
                if let Some(capturing) = stream.capture().as_ref() {
                    capturing.capture.invalidate();
                    return Err(Code::StreamCaptureIsolation);
                }
                stream.submit(driver, Work::Mark, vec![Arc::clone(done)]).map(drop)
            }
            Recorded::Captured(capture, front) => {
                if stream.lane == Lane::Legacy {
                    capture.invalidate();
                    return Err(Code::StreamCaptureImplicit);
                }
                let mut joined = stream.capture();
                match joined.as_mut() {
                    Some(capturing) => capturing.join(capture, front),
                    None => {
                        capture.admit(stream)?;
                        *joined = Some(Capturing { capture: Arc::clone(capture), front: front.clone() });
                        Ok(())
                    }
                }
            }
        }
    }

    /// When it happened.
    ///
    /// # Errors
    ///
    /// `InvalidHandle` when it was never recorded or keeps no times, `NotReady` before it has happened.
    pub(super) fn time(&self) -> Result<Instant, Code> {
        if self.flags & DISABLE_TIMING != 0 {
            return Err(Code::InvalidHandle);
        }
        let done = self.done()?.ok_or(Code::InvalidHandle)?;
        done.at().ok_or(Code::NotReady)
    }
}
