//! Functions of the host that streams call: one after another, on one thread of the process.
//!
//! CUDA promises no more than that, so two such functions that wait for each other deadlock here as they may there. And
//! such a function must not call the driver: it gets `NotPermitted`.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::context::Context;
use super::done::Done;
use super::lock;
use super::report;
use super::work::HostFunction;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside such a function.
pub(super) fn inside() -> bool {
    INSIDE.get()
}

struct Call {
    function: HostFunction,
    data: usize,
    done: Arc<Done>,
}

/// The thread that runs them, once there is something to run.
#[derive(Default)]
pub(super) struct HostFunctions {
    calls: Mutex<Option<Sender<Call>>>,
}

impl HostFunctions {
    /// Runs a function; returns when it has, or when the context is over.
    pub(super) fn run(&self, function: HostFunction, data: usize, context: &Context) {
        let done = Done::pending();
        let call = Call { function, data, done: Arc::clone(&done) };
        let sent = {
            let mut calls = lock::mutex(&self.calls);
            if calls.is_none() {
                *calls = start();
            }
            calls.as_ref().is_some_and(|calls| calls.send(call).is_ok())
        };
        if !sent {
            report::note("no thread for host functions could be made; a host function was left out");
            return;
        }
        while !done.wait(Duration::from_millis(20)) && !context.is_over() {}
    }
}

fn start() -> Option<Sender<Call>> {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("vgpu-host".to_owned());
    thread.spawn(move || serve(&receiver)).ok()?;
    Some(sender)
}

fn serve(calls: &Receiver<Call>) {
    INSIDE.set(true);
    for call in calls {
        // SAFETY: the caller of `cuLaunchHostFunc` promises that the function may be called once with its argument.
        unsafe { (call.function)(call.data as *mut c_void) };
        call.done.finish();
    }
}
