//! Memory between processes: real ones, started by the tests.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod driver_support;

use std::time::{Duration, Instant};

use cpkv_vgpu::driver::entry::{context, device, host_memory, ipc, memory, set};
use cpkv_vgpu::driver::{Code, IpcHandle};
use driver_support::Arg::{Long, Word};
use driver_support::*;

#[test]
fn a_peer_reads_and_writes_the_same_bytes() {
    let name = "a_peer_reads_and_writes_the_same_bytes";
    if role().is_some() {
        start();
        let (theirs, mine) = (open_given().unwrap(), alloc(8));
        assert_eq!(words(theirs, 2), [11, 12], "the handle of an inner address opens at the first byte");
        let (module, stream) = (load(), new_stream(1));
        ok(run(kernel(module, "copy_word"), 1, 1, stream, &[Long(mine), Long(theirs + 4)]));
        ok(sync(stream));
        assert_eq!(words(mine, 1), [12]);
        ok(run(kernel(module, "count_up"), 1, 2, stream, &[Long(theirs), Word(70), Word(2)]));
        ok(sync(stream));
        ok(cu!(ipc::cuIpcCloseMemHandle(theirs)));
        assert_eq!(download(theirs, 4), Err(Code::InvalidValue));
        return;
    }
    start();
    let address = alloc(8);
    ok(cu!(set::cuMemsetD32_v2(address, 11, 1)));
    ok(cu!(set::cuMemsetD32_v2(address + 4, 12, 1)));
    ok(sync(0));
    let handle = hex(&export(address + 4));
    let output = finish(spawn(name, "opener", &[(HANDLE, &handle)]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(words(address, 2), [70, 71]);
    ok(cu!(memory::cuMemFree_v2(address)));
    ok(cu!(context::cuCtxSynchronize()));
}

#[test]
fn no_add_of_several_processes_is_lost() {
    let name = "no_add_of_several_processes_is_lost";
    if role().is_some() {
        start();
        let (word, module) = (open_given().unwrap(), load());
        for _ in 0..20 {
            ok(run(kernel(module, "bump"), 2, 32, 0, &[Long(word), Word(3)]));
        }
        ok(sync(0));
        return;
    }
    start();
    let word = alloc(4);
    ok(cu!(set::cuMemsetD32_v2(word, 0, 1)));
    ok(sync(0));
    let handle = hex(&export(word));
    let children: Vec<_> = (0..3).map(|_| spawn(name, "adder", &[(HANDLE, &handle)])).collect();
    for child in children {
        let output = finish(child);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(words(word, 1), [3 * 20 * 64 * 3]);
}

#[test]
fn a_handle_opens_as_often_as_it_is_closed_and_in_one_context() {
    let name = "a_handle_opens_as_often_as_it_is_closed_and_in_one_context";
    if role().is_some() {
        let first = start();
        let address = open_given().unwrap();
        assert_eq!(open_given(), Ok(address));
        start();
        assert_eq!(open_given(), Err(Code::AlreadyMapped));
        ok(cu!(context::cuCtxSetCurrent(first)));
        ok(cu!(ipc::cuIpcCloseMemHandle(address)));
        ok(download(address, 4).map_or_else(|code| code, |_| Code::Success));
        assert_eq!(cu!(memory::cuMemFree_v2(address)), Code::InvalidValue);
        ok(cu!(ipc::cuIpcCloseMemHandle(address)));
        assert_eq!(cu!(ipc::cuIpcCloseMemHandle(address)), Code::InvalidValue);
        return;
    }
    start();
    let handle = hex(&export(alloc(4)));
    let output = finish(spawn(name, "opener", &[(HANDLE, &handle)]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_cannot_be_opened_is_refused() {
    start();
    let address = alloc(4);
    let handle = export(address);
    assert_eq!(open(&handle), Err(Code::InvalidContext), "opened in the process that exported it");
    assert_eq!(open(&IpcHandle { bytes: [1; 64] }), Err(Code::InvalidHandle));
    let mut result = 0;
    assert_eq!(cu!(ipc::cuIpcOpenMemHandle_v2(out(&mut result), handle, 0)), Code::InvalidValue);
    let mut pinned = 0;
    ok(cu!(host_memory::cuMemAllocHost_v2(out(&mut pinned), 64)));
    let mut handle = handle;
    assert_eq!(cu!(ipc::cuIpcGetMemHandle(out(&mut handle), pinned)), Code::InvalidValue);
    ok(cu!(memory::cuMemFree_v2(address)));
    assert_eq!(cu!(ipc::cuIpcGetMemHandle(out(&mut handle), address)), Code::InvalidValue);
}

#[test]
fn freed_memory_does_not_open() {
    let name = "freed_memory_does_not_open";
    if role().is_some() {
        start();
        assert_eq!(open_given(), Err(Code::InvalidHandle));
        return;
    }
    start();
    let address = alloc(4);
    let handle = hex(&export(address));
    ok(cu!(memory::cuMemFree_v2(address)));
    // The descriptor's number may belong to other memory by now.
    alloc(4);
    let output = finish(spawn(name, "opener", &[(HANDLE, &handle)]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn memory_of_a_dead_process_does_not_open() {
    let name = "memory_of_a_dead_process_does_not_open";
    if role().is_some() {
        start();
        say(&hex(&export(alloc(4))));
        until_told();
        return;
    }
    start();
    let mut child = spawn(name, "exporter", &[]);
    let handle = unhex(&hear(&mut child));
    let address = open(&handle).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(download(address, 4).unwrap(), [0xCB; 4], "what is open stays");
    ok(cu!(ipc::cuIpcCloseMemHandle(address)));
    assert_eq!(open(&handle), Err(Code::InvalidHandle));
}

#[test]
fn freeing_what_another_process_has_open_is_a_fault() {
    let name = "freeing_what_another_process_has_open_is_a_fault";
    match role().as_deref() {
        Some("opener") => {
            start();
            let address = open_given().unwrap();
            say("open");
            until_told();
            assert_eq!(words(address, 1), [5], "the mapping went with the memory");
        }
        Some(_) => {
            start();
            let address = alloc(4);
            ok(cu!(set::cuMemsetD32_v2(address, 5, 1)));
            ok(sync(0));
            let handle = hex(&export(address));
            let mut opener = spawn(name, "opener", &[(HANDLE, &handle)]);
            hear(&mut opener);
            ok(cu!(memory::cuMemFree_v2(address)));
            assert_eq!(cu!(context::cuCtxSynchronize()), Code::IllegalAddress);
            let output = finish(opener);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        None => {
            let output = finish(spawn(name, "exporter", &[]));
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{stderr}");
            assert!(stderr.contains("vgpu: fault: device 0: cuMemFree of 4 bytes"), "{stderr}");
        }
    }
}

#[test]
fn a_killed_opener_has_nothing_open() {
    let name = "a_killed_opener_has_nothing_open";
    if role().is_some() {
        start();
        open_given().unwrap();
        say("open");
        until_told();
        return;
    }
    start();
    let address = alloc(4);
    let mut child = spawn(name, "opener", &[(HANDLE, &hex(&export(address)))]);
    hear(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    ok(cu!(memory::cuMemFree_v2(address)));
    ok(cu!(context::cuCtxSynchronize()));
}

#[test]
fn a_process_that_sees_one_device_opens_memory_of_another() {
    let name = "a_process_that_sees_one_device_opens_memory_of_another";
    let machine = ("CPKV_VGPU_DEVICES", "2");
    match role().as_deref() {
        Some("opener") => {
            start_on(0);
            let mut uuid = device::Uuid::default();
            ok(cu!(device::cuDeviceGetUuid(out(&mut uuid), 0)));
            assert_eq!(uuid.bytes[15], 1);
            assert_eq!(words(open_given().unwrap(), 1), [9]);
        }
        Some(_) => {
            start_on(0);
            let address = alloc(4);
            ok(cu!(set::cuMemsetD32_v2(address, 9, 1)));
            ok(sync(0));
            let handle = hex(&export(address));
            let second = [(HANDLE, handle.as_str()), machine, ("CUDA_VISIBLE_DEVICES", "1")];
            let output = finish(spawn(name, "opener", &second));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        None => {
            let output = finish(spawn(name, "exporter", &[machine, ("CUDA_VISIBLE_DEVICES", "0")]));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn a_process_leaves_no_file_and_no_child_behind() {
    let name = "a_process_leaves_no_file_and_no_child_behind";
    if role().is_some() {
        start();
        let (module, address) = (load(), alloc(1 << 20));
        let mut pinned = 0;
        ok(cu!(host_memory::cuMemAllocHost_v2(out(&mut pinned), 64)));
        ok(run(kernel(module, "count_up"), 1, 1, new_stream(0), &[Long(address), Word(1), Word(1)]));
        export(address);
        say("ready");
        until_told();
        return;
    }
    let mut child = spawn(name, "user", &[]);
    hear(&mut child);
    let process = format!("/proc/{}", child.id());
    let mut memfds = 0;
    for entry in std::fs::read_dir(format!("{process}/fd")).unwrap() {
        let Ok(target) = std::fs::read_link(entry.unwrap().path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        let kinds = ["/memfd:", "pipe:", "socket:", "/dev/null", "anon_inode:"];
        assert!(kinds.iter().any(|kind| target.starts_with(kind)), "an open file: {target}");
        memfds += usize::from(target.starts_with("/memfd:cpkv-vgpu"));
    }
    assert_eq!(memfds, 2, "the allocation and the variable of the module");
    let maps = std::fs::read_to_string(format!("{process}/maps")).unwrap();
    assert!(!maps.contains("/dev/shm") && !maps.contains("/SYSV"), "{maps}");
    for task in std::fs::read_dir(format!("{process}/task")).unwrap() {
        let children = std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default();
        assert_eq!(children, "");
    }
    let killed = Instant::now();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(killed.elapsed() < Duration::from_secs(60));
    assert!(!std::path::Path::new(&process).exists());
}
