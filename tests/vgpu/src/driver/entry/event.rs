//! Events.

use std::ffi::c_uint;
use std::sync::Arc;

use super::out::Out;
use super::stream;
use crate::driver::Code;
use crate::driver::current;
use crate::driver::event::{DISABLE_TIMING, Event};
use crate::driver::staged::Fault;

/// Flag: the event can be exported. Not supported.
const INTERPROCESS: c_uint = 4;

entries! {
    /// Makes an event.
    fn cuEventCreate(event: Out<u64>, flags: c_uint) {
        let (driver, context) = current::working()?;
        event.wanted()?;
        if flags & INTERPROCESS != 0 {
            return Err(Code::NotSupported);
        }
        if flags & !(DISABLE_TIMING | 1) != 0 {
            return Err(Code::InvalidValue);
        }
        if driver.options.staged.nth(Fault::EventFails, context.device.physical) {
            return Err(Code::OutOfMemory);
        }
        event.set(driver.events.insert(Arc::new(Event::new(context.number, flags))))
    }

    /// Destroys an event. Who waits for it goes on waiting for what it meant.
    fn cuEventDestroy_v2(event: u64) {
        let (driver, _) = current::working()?;
        driver.events.remove(event).map(drop)
    }

    /// Records an event after all work that a stream has.
    fn cuEventRecord(event: u64, on: u64) {
        let (driver, stream) = stream(on)?;
        let event = driver.events.get(event)?;
        if event.context != stream.context.number {
            return Err(Code::InvalidHandle);
        }
        event.record(driver, &stream)
    }

    /// Whether what an event means has happened: `NotReady` if not. Never recorded: it has.
    fn cuEventQuery(event: u64) {
        let (driver, context) = current::working()?;
        let recorded = driver.events.get(event)?.done()?;
        driver.captures.refuse_unsafe()?;
        match recorded {
            Some(done) if !done.is_finished() => Err(Code::NotReady),
            _ => context.check(),
        }
    }

    /// Waits for what an event means.
    fn cuEventSynchronize(event: u64) {
        let (driver, _) = current::working()?;
        let found = driver.events.get(event)?;
        let owner = driver.contexts.get(found.context)?;
        let recorded = found.done()?;
        driver.captures.refuse_unsafe()?;
        let work: Vec<_> = recorded.into_iter().collect();
        driver.wait("cuEventSynchronize", &owner, &work)
    }

    /// The time between two events, in milliseconds.
    fn cuEventElapsedTime(milliseconds: Out<f32>, start: u64, end: u64) {
        let (driver, _) = current::working()?;
        let (start, end) = (driver.events.get(start)?.time()?, driver.events.get(end)?.time()?);
        let forwards = end.saturating_duration_since(start).as_secs_f64();
        let backwards = start.saturating_duration_since(end).as_secs_f64();
        milliseconds.set(((forwards - backwards) * 1e3) as f32)
    }
}
