//! Captures and graphs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod driver_support;

use std::thread;

use cpkv_vgpu::driver::entry::{context, event, graph, memory, set, stream};
use cpkv_vgpu::driver::{Code, Out};
use driver_support::Arg::{Long, Word};
use driver_support::*;

const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

fn begin(on: u64, mode: i32) {
    ok(cu!(stream::cuStreamBeginCapture_v2(on, mode)));
}

fn end(on: u64) -> Result<u64, Code> {
    let mut handle = 0;
    match cu!(stream::cuStreamEndCapture(on, out(&mut handle))) {
        Code::Success => Ok(handle),
        code => Err(code),
    }
}

fn instantiate(graph: u64) -> u64 {
    let mut exec = 0;
    ok(cu!(graph::cuGraphInstantiateWithFlags(out(&mut exec), graph, 0)));
    exec
}

fn status(on: u64) -> i32 {
    let mut status = -1;
    ok(cu!(stream::cuStreamIsCapturing(on, out(&mut status))));
    status
}

/// A global capture forbids calls of every thread, so the tests of this file take turns.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn captured_work_runs_when_it_is_replayed_as_often_as_that() {
    let _alone = alone();
    start();
    let (module, stream, word) = (load(), new_stream(1), alloc(8));
    let bump = kernel(module, "bump");
    begin(stream, GLOBAL);
    ok(cu!(set::cuMemsetD32Async(word + 4, 5, 1, stream)));
    ok(run(bump, 1, 4, stream, &[Long(word), Word(2)]));
    assert_eq!(status(stream), 1);
    let captured = end(stream).unwrap();
    assert_eq!(status(stream), 0);
    let mut count = 0;
    let nowhere = cu!(Out::new(std::ptr::null_mut()));
    ok(cu!(graph::cuGraphGetNodes(captured, nowhere, out(&mut count))));
    assert_eq!(count, 2);
    let mut nodes = [0; 2];
    ok(cu!(graph::cuGraphGetNodes(captured, out(&mut nodes[0]), out(&mut count))));
    let mut kind = -1;
    ok(cu!(graph::cuGraphNodeGetType(nodes[1], out(&mut kind))));
    assert_eq!(kind, 0);
    ok(cu!(set::cuMemsetD32_v2(word, 0, 2)));
    ok(sync(0));
    assert_eq!(words(word, 2), [0, 0], "a capture ran its work");
    let exec = instantiate(captured);
    ok(cu!(graph::cuGraphDestroy(captured)));
    for _ in 0..3 {
        ok(cu!(graph::cuGraphLaunch(exec, stream)));
    }
    ok(sync(stream));
    assert_eq!(words(word, 2), [24, 5]);
    ok(cu!(graph::cuGraphExecDestroy(exec)));
    assert_eq!(cu!(graph::cuGraphLaunch(exec, stream)), Code::InvalidValue);
}

#[test]
fn a_second_stream_joins_by_an_event_and_must_be_joined_back() {
    let _alone = alone();
    start();
    let (origin, side, fork, join) = (new_stream(1), new_stream(1), new_event(), new_event());
    let word = alloc(8);
    let branch = |joined: bool| {
        begin(origin, THREAD_LOCAL);
        ok(cu!(event::cuEventRecord(fork, origin)));
        ok(cu!(stream::cuStreamWaitEvent(side, fork, 0)));
        ok(cu!(set::cuMemsetD32Async(word, 1, 1, side)));
        ok(cu!(set::cuMemsetD32Async(word + 4, 2, 1, origin)));
        if joined {
            ok(cu!(event::cuEventRecord(join, side)));
            ok(cu!(stream::cuStreamWaitEvent(origin, join, 0)));
        }
        assert_eq!(status(side), 1);
        end(origin)
    };
    assert_eq!(branch(false), Err(Code::StreamCaptureUnjoined));
    assert_eq!(status(side), 0);
    let exec = instantiate(branch(true).unwrap());
    assert_eq!(cu!(event::cuEventQuery(join)), Code::CapturedEvent);
    ok(cu!(graph::cuGraphLaunch(exec, origin)));
    ok(sync(origin));
    assert_eq!(words(word, 2), [1, 2]);
}

#[test]
fn what_synchronises_spoils_a_capture() {
    let _alone = alone();
    start();
    let (stream, other, event) = (new_stream(0), new_stream(1), new_event());
    let mut address = 0;
    let spoilers: [(Code, &dyn Fn() -> Code); 4] = [
        (Code::StreamCaptureUnsupported, &|| sync(stream)),
        (Code::StreamCaptureUnsupported, &|| cu!(stream::cuStreamQuery(stream))),
        (Code::StreamCaptureUnsupported, &|| cu!(event::cuEventSynchronize(event))),
        (Code::StreamCaptureIsolation, &|| cu!(stream::cuStreamWaitEvent(stream, event, 0))),
    ];
    ok(cu!(event::cuEventRecord(event, other)));
    for (answer, spoil) in spoilers {
        begin(stream, GLOBAL);
        assert_eq!(spoil(), answer);
        assert_eq!(status(stream), 2);
        assert_eq!(end(stream), Err(Code::StreamCaptureInvalidated));
    }
    begin(stream, GLOBAL);
    assert_eq!(cu!(memory::cuMemAlloc_v2(out(&mut address), 64)), Code::StreamCaptureUnsupported);
    assert_eq!(end(stream), Err(Code::StreamCaptureInvalidated));
    begin(stream, GLOBAL);
    assert_eq!(cu!(context::cuCtxSynchronize()), Code::StreamCaptureUnsupported);
    assert_eq!(end(stream), Err(Code::StreamCaptureInvalidated));
    assert_eq!(end(stream), Err(Code::IllegalState));
    assert_eq!(cu!(stream::cuStreamBeginCapture_v2(0, GLOBAL)), Code::StreamCaptureUnsupported);
}

#[test]
fn the_mode_says_which_calls_are_forbidden() {
    let _alone = alone();
    let handle = start();
    let stream = new_stream(1);
    begin(stream, RELAXED);
    alloc(64);
    end(stream).unwrap();
    let elsewhere = || {
        thread::spawn(move || {
            ok(cu!(context::cuCtxSetCurrent(handle)));
            let mut address = 0;
            cu!(memory::cuMemAlloc_v2(out(&mut address), 64))
        })
        .join()
        .unwrap()
    };
    begin(stream, THREAD_LOCAL);
    ok(elsewhere());
    end(stream).unwrap();
    begin(stream, GLOBAL);
    assert_eq!(elsewhere(), Code::StreamCaptureUnsupported);
    assert_eq!(end(stream), Err(Code::StreamCaptureInvalidated));
}

#[test]
fn a_set_on_the_default_stream_beside_a_capture_of_a_blocking_stream_is_refused() {
    let _alone = alone();
    start();
    let (stream, word) = (new_stream(0), alloc(4));
    begin(stream, RELAXED);
    assert_eq!(cu!(set::cuMemsetD32_v2(word, 1, 1)), Code::StreamCaptureImplicit);
    assert_eq!(end(stream), Err(Code::StreamCaptureInvalidated));
}

#[test]
fn a_graph_that_reaches_freed_memory_fails_its_context() {
    let _alone = alone();
    start();
    let (stream, word) = (new_stream(1), alloc(4));
    begin(stream, GLOBAL);
    ok(cu!(set::cuMemsetD32Async(word, 1, 1, stream)));
    let exec = instantiate(end(stream).unwrap());
    ok(cu!(memory::cuMemFree_v2(word)));
    ok(cu!(graph::cuGraphLaunch(exec, stream)));
    assert_eq!(sync(stream), Code::IllegalAddress);
}
