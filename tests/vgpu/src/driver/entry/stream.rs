//! Streams.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use super::out::Out;
use super::stream;
use crate::driver::Code;
use crate::driver::capture::{Mode, exchange_mode};
use crate::driver::current;
use crate::driver::driver::driver;
use crate::driver::graph::Graph;
use crate::driver::staged::Fault;
use crate::driver::stream::{Lane, Stream};
use crate::driver::work::Work;

const NON_BLOCKING: c_uint = 1;

fn create(handle: Out<u64>, flags: c_uint, priority: c_int) -> Result<(), Code> {
    let (driver, context) = current::working()?;
    handle.wanted()?;
    let lane = match flags {
        0 => Lane::Blocking,
        NON_BLOCKING => Lane::NonBlocking,
        _ => return Err(Code::InvalidValue),
    };
    if driver.options.staged.nth(Fault::StreamFails, context.device.physical) {
        return Err(Code::OutOfMemory);
    }
    let fresh = driver.streams.fresh();
    let made = Stream::new(fresh, Arc::clone(&context), lane, priority.clamp(-5, 0));
    context.streams().others.push(Arc::clone(&made));
    driver.streams.put(fresh, made);
    handle.set(fresh)
}

fn wait_value(on: u64, address: u64, value: u32, flags: c_uint) -> Result<(), Code> {
    let (driver, stream) = stream(on)?;
    let (_, _) = driver.space.range(address, 4)?;
    if !address.is_multiple_of(4) || flags & !3 != 0 {
        return Err(Code::InvalidValue);
    }
    stream.submit(driver, Work::WaitValue { address, value, flags }, Vec::new()).map(drop)
}

fn write_value(on: u64, address: u64, value: u32, flags: c_uint) -> Result<(), Code> {
    let (driver, stream) = stream(on)?;
    let (_, _) = driver.space.range(address, 4)?;
    if !address.is_multiple_of(4) || flags != 0 {
        return Err(Code::InvalidValue);
    }
    stream.submit(driver, Work::WriteValue { address, value }, Vec::new()).map(drop)
}

entries! {
    /// Makes a stream.
    fn cuStreamCreate(handle: Out<u64>, flags: c_uint) {
        create(handle, flags, 0)
    }

    /// Makes a stream. The priority is kept and not acted on.
    fn cuStreamCreateWithPriority(handle: Out<u64>, flags: c_uint, priority: c_int) {
        create(handle, flags, priority)
    }

    /// Destroys a stream; its work is finished all the same.
    fn cuStreamDestroy_v2(on: u64) {
        let (driver, _) = current::working()?;
        driver.streams.get(on)?.refuse_capture()?;
        driver.streams.remove(on)?.close();
        Ok(())
    }

    /// The context of a stream.
    fn cuStreamGetCtx(on: u64, context: Out<u64>) {
        context.set(stream(on)?.1.context.number)
    }

    /// The flags of a stream.
    fn cuStreamGetFlags(on: u64, flags: Out<c_uint>) {
        flags.set(c_uint::from(stream(on)?.1.lane == Lane::NonBlocking))
    }

    /// The priority of a stream.
    fn cuStreamGetPriority(on: u64, priority: Out<c_int>) {
        priority.set(stream(on)?.1.priority)
    }

    /// Whether a stream has finished its work: `NotReady` if not.
    fn cuStreamQuery(on: u64) {
        let (driver, stream) = stream(on)?;
        stream.refuse_capture()?;
        driver.captures.refuse_unsafe()?;
        if stream.unfinished().is_some() { Err(Code::NotReady) } else { stream.context.check() }
    }

    /// Waits for the work of a stream.
    fn cuStreamSynchronize(on: u64) {
        let (driver, stream) = stream(on)?;
        stream.refuse_capture()?;
        driver.captures.refuse_unsafe()?;
        let mut work: Vec<_> = stream.unfinished().into_iter().collect();
        if stream.lane == Lane::Legacy {
            let streams = stream.context.streams();
            let blocking = streams.others.iter().filter(|other| other.lane == Lane::Blocking);
            work.extend(blocking.filter_map(|other| other.unfinished()));
        }
        driver.wait("cuStreamSynchronize", &stream.context, &work)
    }

    /// Makes later work of a stream wait for what an event means at this moment.
    fn cuStreamWaitEvent(on: u64, event: u64, _flags: c_uint) {
        let (driver, stream) = stream(on)?;
        driver.events.get(event)?.make_wait(driver, &stream)
    }

    /// Makes later work of a stream wait until a word compares.
    fn cuStreamWaitValue32(on: u64, address: u64, value: c_uint, flags: c_uint) {
        wait_value(on, address, value, flags)
    }

    /// Makes later work of a stream wait until a word compares.
    fn cuStreamWaitValue32_v2(on: u64, address: u64, value: c_uint, flags: c_uint) {
        wait_value(on, address, value, flags)
    }

    /// Writes a word on a stream, after all its earlier work.
    fn cuStreamWriteValue32(on: u64, address: u64, value: c_uint, flags: c_uint) {
        write_value(on, address, value, flags)
    }

    /// Writes a word on a stream, after all its earlier work.
    fn cuStreamWriteValue32_v2(on: u64, address: u64, value: c_uint, flags: c_uint) {
        write_value(on, address, value, flags)
    }

    /// Begins to capture a stream, which is not the default stream.
    fn cuStreamBeginCapture_v2(on: u64, mode: c_int) {
        let (driver, stream) = stream(on)?;
        let mode = Mode::from_number(mode)?;
        if stream.lane == Lane::Legacy {
            return Err(Code::StreamCaptureUnsupported);
        }
        driver.captures.begin(&stream, mode)
    }

    /// Ends a capture; a spoilt one gives no graph.
    fn cuStreamEndCapture(on: u64, graph: Out<u64>) {
        let (driver, stream) = stream(on)?;
        graph.wanted()?;
        graph.set(0)?;
        let nodes = driver.captures.end(&stream)?;
        let handles = nodes.iter().map(|_| driver.graphs.fresh()).collect();
        let made = Graph { context: stream.context.number, nodes: nodes.into(), handles };
        graph.set(driver.graphs.insert(Arc::new(made)))
    }

    /// Whether a stream is being captured: 0 no, 1 yes, 2 spoilt.
    fn cuStreamIsCapturing(on: u64, status: Out<c_int>) {
        let (_, stream) = stream(on)?;
        let seen = stream.capture().as_ref().map(|capturing| capturing.capture.is_invalid());
        status.set(match seen {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        })
    }

    /// Exchanges this thread's capture mode.
    fn cuThreadExchangeStreamCaptureMode(mode: Out<c_int>) {
        driver()?;
        let before = exchange_mode(Mode::from_number(mode.get()?)?);
        mode.set(before as c_int)
    }
}
