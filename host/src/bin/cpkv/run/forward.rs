//! One forward of one batch on one rank, with or without its transfer.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cpkv::compose::{BatchInFlight, LayerInputs};
use cpkv::device::{DeviceError, Event};
use cpkv::transfer::{Clock, SystemClock, TransferManager};
use rustix::time::{ClockId, clock_gettime};

use crate::error::RunError;

/// What the stream did for one layer.
pub(crate) struct LayerMarks {
    /// Before the compose.
    pub(crate) start: Arc<dyn Event>,
    /// Behind the persist.
    pub(crate) persisted: Arc<dyn Event>,
    /// Behind the stand-in for attention.
    pub(crate) end: Arc<dyn Event>,
}

/// A forward that is queued.
pub(crate) struct Queued {
    /// Behind everything.
    pub(crate) end: Arc<dyn Event>,
    /// What each `on_layer_end` took: time that passed, and time of this thread on a processor, in microseconds.
    pub(crate) hooks_us: Vec<(f64, f64)>,
    /// By layer, where they were asked for.
    pub(crate) marks: Vec<LayerMarks>,
}

/// Queues all layers: compose, persist, the hook, and a stand-in for attention that sleeps. Waits for nothing.
pub(crate) fn queue(
    flight: &mut BatchInFlight<'_>,
    inputs: &[LayerInputs],
    compute: Duration,
    hooks: Option<&TransferManager>,
    with_marks: bool,
) -> Result<Queued, RunError> {
    let (mut hooks_us, mut marks) = (Vec::new(), Vec::new());
    for (layer, inputs) in inputs.iter().enumerate() {
        let start = if with_marks { Some(flight.stream().record()?) } else { None };
        flight.compose_layer(layer, inputs)?;
        flight.persist_layer(layer)?;
        if let Some(manager) = hooks {
            hooks_us.push(timed(|| manager.on_layer_end(layer))?);
        }
        let persisted = if with_marks { Some(flight.stream().record()?) } else { None };
        if !compute.is_zero() {
            flight.stream().host_call(
                "attention",
                Box::new(move || {
                    thread::sleep(compute);
                    Ok(())
                }),
            )?;
        }
        if let (Some(start), Some(persisted)) = (start, persisted) {
            marks.push(LayerMarks { start, persisted, end: flight.stream().record()? });
        }
    }
    if let Some(manager) = hooks {
        manager.end_forward()?;
    }
    Ok(Queued { end: flight.stream().record()?, hooks_us, marks })
}

/// What `call` takes, in microseconds: by the clock, and of this thread.
fn timed(call: impl FnOnce() -> Result<(), DeviceError>) -> Result<(f64, f64), DeviceError> {
    let (start_ns, start_cpu_ns) = (SystemClock.now_ns(), thread_ns());
    call()?;
    let (end_ns, end_cpu_ns) = (SystemClock.now_ns(), thread_ns());
    let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
    Ok((us(start_ns, end_ns), us(start_cpu_ns, end_cpu_ns)))
}

fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
