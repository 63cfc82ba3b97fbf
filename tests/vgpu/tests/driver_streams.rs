//! Streams, events, host functions, launches: what runs after what.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod driver_support;

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cpkv_vgpu::driver::Code;
use cpkv_vgpu::driver::entry::{
    context, copy, event, host_memory, launch, memory, module, peer, set, stream,
};
use driver_support::Arg::{Long, Word};
use driver_support::*;

/// A gate that a host function waits at, so that a stream stands still while the test looks.
#[derive(Default)]
struct Gate {
    open: AtomicBool,
    reached: AtomicBool,
}

impl Gate {
    fn new() -> &'static Gate {
        Box::leak(Box::default())
    }

    fn put(&'static self, on: u64) {
        ok(cu!(launch::cuLaunchHostFunc(on, Some(wait_at), std::ptr::from_ref(self) as usize)));
    }

    fn open(&self) {
        self.open.store(true, Ordering::Release);
    }
}

unsafe extern "C" fn wait_at(gate: *mut c_void) {
    // SAFETY: the test leaks the gate.
    let gate = unsafe { &*gate.cast::<Gate>() };
    gate.reached.store(true, Ordering::Release);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !gate.open.load(Ordering::Acquire) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_kernel_writes_what_its_parameters_say() {
    start();
    let (module, address) = (load(), alloc(404));
    ok(run(kernel(module, "count_up"), 4, 32, 0, &[Long(address), Word(1000), Word(100)]));
    ok(sync(0));
    let expected: Vec<u32> = (1000..1100).chain([0xCBCB_CBCB]).collect();
    assert_eq!(words(address, 101), expected);
}

#[test]
fn a_module_has_its_variables_and_only_its_kernels() {
    start();
    let module = load();
    let (mut address, mut bytes) = (0, 0);
    ok(cu!(module::cuModuleGetGlobal_v2(out(&mut address), out(&mut bytes), module, c"seven".as_ptr())));
    assert_eq!((words(address, 1), bytes), (vec![7], 4));
    let mut function = 0;
    assert_eq!(
        cu!(module::cuModuleGetFunction(out(&mut function), module, c"nothing".as_ptr())),
        Code::NotFound
    );
    let known = kernel(module, "bump");
    assert_eq!(kernel(module, "bump"), known);
    ok(cu!(module::cuModuleUnload(module)));
    assert_eq!(run(known, 1, 1, 0, &[Long(0), Word(0)]), Code::InvalidHandle);
    assert_eq!(download(address, 4), Err(Code::InvalidValue));
}

#[test]
fn what_is_no_ptx_is_refused_with_a_log() {
    start();
    let mut module = 0;
    assert_eq!(
        cu!(module::cuModuleLoadData(out(&mut module), c"\x7fELF".as_ptr().cast())),
        Code::NoBinaryForGpu
    );
    let text = c".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry e() { frobnicate.u32; ret; }";
    let mut log = [0_u8; 200];
    let (mut names, mut values) = ([5, 6], [log.as_mut_ptr() as u64, 200]);
    let code = cu!(module::cuModuleLoadDataEx(
        out(&mut module),
        text.as_ptr().cast(),
        2,
        out(&mut names[0]),
        out(&mut values[0]),
    ));
    assert_eq!(code, Code::InvalidPtx);
    let log = String::from_utf8_lossy(&log[..values[1] as usize]).into_owned();
    assert!(log.contains("frobnicate"), "{log}");
}

#[test]
fn launches_that_no_device_takes_are_refused() {
    start();
    let module = load();
    let (count_up, address) = (kernel(module, "count_up"), alloc(4));
    let args = [Long(address), Word(0), Word(1)];
    assert_eq!(run(count_up, 1, 1025, 0, &args), Code::InvalidValue);
    assert_eq!(run(count_up, 0, 1, 0, &args), Code::InvalidValue);
    assert_eq!(run(count_up, 1 << 20, 1024, 0, &args), Code::LaunchOutOfResources);
    let mut most = 0;
    ok(cu!(launch::cuOccupancyMaxActiveBlocksPerMultiprocessor(out(&mut most), count_up, 1024, 0)));
    assert!((1..=2).contains(&most), "{most} blocks of 1024 threads");
    assert_eq!(cu!(module::cuFuncSetAttribute(count_up, 8, 228 << 10)), Code::InvalidValue);
    ok(cu!(module::cuFuncSetAttribute(count_up, 8, 200 << 10)));
    let mut value = 0;
    ok(cu!(module::cuFuncGetAttribute(out(&mut value), 8, count_up)));
    assert_eq!(value, 200 << 10);
}

#[test]
fn work_of_a_stream_is_later_and_in_order() {
    start();
    let (stream, gate, address) = (new_stream(1), Gate::new(), alloc(4));
    gate.put(stream);
    ok(cu!(set::cuMemsetD32Async(address, 1, 1, stream)));
    ok(cu!(set::cuMemsetD32Async(address, 2, 1, stream)));
    assert_eq!(cu!(stream::cuStreamQuery(stream)), Code::NotReady);
    gate.open();
    ok(sync(stream));
    ok(cu!(stream::cuStreamQuery(stream)));
    assert_eq!(words(address, 1), [2]);
}

#[test]
fn a_wait_for_an_event_means_the_record_before_it() {
    start();
    let (first, second, event) = (new_stream(1), new_stream(1), new_event());
    let address = alloc(4);
    // Never recorded: no wait.
    ok(cu!(stream::cuStreamWaitEvent(second, event, 0)));
    ok(sync(second));
    ok(cu!(event::cuEventQuery(event)));
    let gate = Gate::new();
    gate.put(first);
    ok(cu!(set::cuMemsetD32Async(address, 7, 1, first)));
    ok(cu!(event::cuEventRecord(event, first)));
    ok(cu!(stream::cuStreamWaitEvent(second, event, 0)));
    let copied = alloc(4);
    ok(cu!(copy::cuMemcpyDtoDAsync_v2(copied, address, 4, second)));
    // A later record does not change what was waited for; nor does the event's end.
    let later = Gate::new();
    later.put(first);
    ok(cu!(event::cuEventRecord(event, first)));
    assert_eq!(cu!(event::cuEventQuery(event)), Code::NotReady);
    assert_eq!(cu!(stream::cuStreamQuery(second)), Code::NotReady);
    gate.open();
    ok(sync(second));
    assert_eq!(cu!(event::cuEventQuery(event)), Code::NotReady);
    ok(cu!(event::cuEventDestroy_v2(event)));
    later.open();
    ok(sync(first));
    assert_eq!(words(copied, 1), [7]);
}

#[test]
fn events_tell_the_time_between_them() {
    start();
    let (stream, start_event, end_event) = (new_stream(0), new_event(), new_event());
    let mut milliseconds = 0.0;
    let elapsed =
        |milliseconds: &mut f32| cu!(event::cuEventElapsedTime(out(milliseconds), start_event, end_event));
    assert_eq!(elapsed(&mut milliseconds), Code::InvalidHandle);
    let gate = Gate::new();
    ok(cu!(event::cuEventRecord(start_event, stream)));
    gate.put(stream);
    ok(cu!(event::cuEventRecord(end_event, stream)));
    assert_eq!(elapsed(&mut milliseconds), Code::NotReady);
    thread::sleep(Duration::from_millis(30));
    gate.open();
    ok(cu!(event::cuEventSynchronize(end_event)));
    ok(elapsed(&mut milliseconds));
    assert!((5.0..20_000.0).contains(&milliseconds), "{milliseconds} ms");
}

#[test]
fn the_default_stream_is_ordered_with_blocking_streams_only() {
    start();
    let (blocking, apart) = (new_stream(0), new_stream(1));
    let (gate, address) = (Gate::new(), alloc(8));
    gate.put(blocking);
    ok(cu!(set::cuMemsetD32Async(address, 1, 1, blocking)));
    // On the default stream: after the blocking stream's work.
    ok(cu!(set::cuMemsetD32_v2(address, 2, 1)));
    // On the non-blocking stream: now.
    ok(cu!(set::cuMemsetD32Async(address + 4, 3, 1, apart)));
    ok(sync(apart));
    assert_eq!(cu!(stream::cuStreamQuery(0)), Code::NotReady);
    // Another blocking stream comes after the default stream.
    let other = new_stream(0);
    ok(cu!(set::cuMemsetD32Async(address, 4, 1, other)));
    assert_eq!(cu!(stream::cuStreamQuery(other)), Code::NotReady);
    gate.open();
    ok(cu!(context::cuCtxSynchronize()));
    assert_eq!(words(address, 2), [4, 3]);
}

#[test]
fn a_destroyed_stream_finishes_its_work() {
    start();
    let (stream, gate, address) = (new_stream(0), Gate::new(), alloc(4));
    gate.put(stream);
    ok(cu!(set::cuMemsetD32Async(address, 5, 1, stream)));
    ok(cu!(stream::cuStreamDestroy_v2(stream)));
    assert_eq!(sync(stream), Code::InvalidHandle);
    gate.open();
    ok(cu!(context::cuCtxSynchronize()));
    assert_eq!(words(address, 1), [5]);
}

#[test]
fn freeing_memory_waits_for_the_work_that_uses_it() {
    start();
    let (stream, gate, address) = (new_stream(1), Gate::new(), alloc(4));
    gate.put(stream);
    ok(cu!(set::cuMemsetD32Async(address, 5, 1, stream)));
    let opener = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        gate.open();
    });
    ok(cu!(memory::cuMemFree_v2(address)));
    ok(cu!(stream::cuStreamQuery(stream)));
    opener.join().unwrap();
}

#[test]
fn bytes_of_pageable_memory_are_taken_at_the_call_and_of_pinned_memory_later() {
    start();
    let (stream, gate, address) = (new_stream(1), Gate::new(), alloc(8));
    let mut pinned = 0_u64;
    ok(cu!(host_memory::cuMemHostAlloc(out(&mut pinned), 4, 0)));
    let word = pinned as *mut u32;
    // SAFETY: pinned memory is mapped; nothing reads it now.
    unsafe { word.write(1) };
    let mut pageable = 1_u32;
    gate.put(stream);
    ok(cu!(copy::cuMemcpyHtoDAsync_v2(address, std::ptr::from_mut(&mut pageable) as u64, 4, stream)));
    ok(cu!(copy::cuMemcpyHtoDAsync_v2(address + 4, pinned, 4, stream)));
    pageable = 2;
    // SAFETY: as above; the stream stands at the gate.
    unsafe { word.write(2) };
    gate.open();
    ok(sync(stream));
    assert_eq!((words(address, 2), pageable), (vec![1, 2], 2));
}

#[test]
fn a_host_function_runs_in_order_and_may_not_call_the_driver() {
    static SEEN: AtomicI32 = AtomicI32::new(-1);
    unsafe extern "C" fn ask(stream: *mut c_void) {
        SEEN.store(cu!(stream::cuStreamQuery(stream as u64)) as i32, Ordering::Release);
    }
    start();
    let stream = new_stream(1);
    ok(cu!(launch::cuLaunchHostFunc(stream, Some(ask), stream as usize)));
    ok(sync(stream));
    assert_eq!(SEEN.load(Ordering::Acquire), Code::NotPermitted as i32);
}

#[test]
fn host_functions_of_two_streams_run_one_after_another() {
    start();
    let (one, two) = (new_stream(1), new_stream(1));
    let (first, second) = (Gate::new(), Gate::new());
    first.put(one);
    while !first.reached.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(1));
    }
    second.put(two);
    thread::sleep(Duration::from_millis(50));
    assert!(!second.reached.load(Ordering::Acquire), "two host functions ran at once");
    first.open();
    second.open();
    ok(sync(two));
}

#[test]
fn kernels_of_two_streams_run_beside_each_other() {
    start();
    let (module, word) = (load(), alloc(4));
    let (waiting, adding) = (new_stream(1), new_stream(1));
    ok(cu!(set::cuMemsetD32_v2(word, 0, 1)));
    ok(sync(0));
    ok(run(kernel(module, "wait_word"), 1, 1, waiting, &[Long(word)]));
    thread::sleep(Duration::from_millis(20));
    assert_eq!(cu!(stream::cuStreamQuery(waiting)), Code::NotReady);
    ok(run(kernel(module, "bump"), 1, 1, adding, &[Long(word), Word(3)]));
    ok(sync(waiting));
    ok(sync(adding));
    assert_eq!(words(word, 1), [3]);
}

#[test]
fn a_stream_waits_for_a_value_that_another_writes() {
    start();
    let (waiting, writing, word) = (new_stream(1), new_stream(1), alloc(8));
    ok(cu!(set::cuMemsetD32_v2(word, 0, 2)));
    ok(sync(0));
    ok(cu!(stream::cuStreamWaitValue32(waiting, word, 5, 0)));
    ok(cu!(set::cuMemsetD32Async(word + 4, 9, 1, waiting)));
    thread::sleep(Duration::from_millis(20));
    assert_eq!(cu!(stream::cuStreamQuery(waiting)), Code::NotReady);
    ok(cu!(stream::cuStreamWriteValue32_v2(writing, word, 5, 0)));
    ok(sync(waiting));
    ok(sync(writing));
    assert_eq!(words(word, 2), [5, 9]);
    assert_eq!(cu!(stream::cuStreamWaitValue32(waiting, word + 2, 5, 0)), Code::InvalidValue);
}

#[test]
fn memory_of_another_device_needs_peer_access() {
    let name = "memory_of_another_device_needs_peer_access";
    let stderr = in_child(name, &[("CPKV_VGPU_DEVICES", "2")], || {
        let first = start_on(0);
        let theirs = alloc(4);
        ok(upload(theirs, &7_u32.to_le_bytes()));
        let second = start_on(1);
        let (module, mine) = (load(), alloc(4));
        let mut can = 0;
        ok(cu!(peer::cuDeviceCanAccessPeer(out(&mut can), 1, 0)));
        assert_eq!(can, 1);
        ok(cu!(peer::cuDeviceCanAccessPeer(out(&mut can), 1, 1)));
        assert_eq!(can, 0);
        // A copy that names both contexts needs no access.
        ok(cu!(copy::cuMemcpyPeer(mine, second, theirs, first, 4)));
        ok(cu!(context::cuCtxSynchronize()));
        assert_eq!(words(mine, 1), [7]);
        ok(cu!(peer::cuCtxEnablePeerAccess(first, 0)));
        assert_eq!(cu!(peer::cuCtxEnablePeerAccess(first, 0)), Code::PeerAccessAlreadyEnabled);
        ok(run(kernel(module, "copy_word"), 1, 1, 0, &[Long(mine), Long(theirs)]));
        ok(sync(0));
        assert_eq!(words(mine, 1), [7]);
        ok(cu!(peer::cuCtxDisablePeerAccess(first)));
        ok(run(kernel(module, "copy_word"), 1, 1, 0, &[Long(mine), Long(theirs)]));
        assert_eq!(sync(0), Code::IllegalAddress);
        // The other device's context is not hurt.
        ok(cu!(context::cuCtxSetCurrent(first)));
        assert_eq!(words(theirs, 1), [7]);
    });
    assert!(stderr.contains("vgpu: fault: device 1 kernel copy_word"), "{stderr}");
}
