//! Faults: of kernels, and staged ones. Each in a process of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod driver_support;

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cpkv_vgpu::driver::Code;
use cpkv_vgpu::driver::entry::{
    context, copy, device, error, event, host_memory, ipc, launch, memory, module, peer, set, stream,
};
use driver_support::Arg::{Long, Word};
use driver_support::*;

const FAULTS: &str = "CPKV_VGPU_FAULTS";

#[test]
fn a_fault_is_for_ever_and_is_told() {
    let log = std::env::temp_dir().join(format!("vgpu-fault-log-{}", std::process::id()));
    let environment = [("CPKV_VGPU_FAULT_LOG", log.to_str().unwrap())];
    let stderr = in_child("a_fault_is_for_ever_and_is_told", &environment, || {
        start_on(0);
        let (module, address) = (load(), alloc(4));
        let event = new_event();
        let local = 0_u32;
        // A host address is no address of the device.
        let host = std::ptr::from_ref(&local) as u64;
        ok(run(kernel(module, "copy_word"), 1, 1, 0, &[Long(address), Long(host)]));
        assert_eq!(sync(0), Code::IllegalAddress);
        assert_eq!(upload(address, &[1]), Code::IllegalAddress);
        assert_eq!(cu!(event::cuEventQuery(event)), Code::IllegalAddress);
        assert_eq!(cu!(memory::cuMemFree_v2(address)), Code::IllegalAddress);
        let mut stream = 0;
        assert_eq!(cu!(stream::cuStreamCreate(out(&mut stream), 0)), Code::IllegalAddress);
        // The context can be destroyed, and a new one works.
        ok(cu!(device::cuDevicePrimaryCtxReset_v2(0)));
        start_on(0);
        alloc(4);
    });
    let expected = "vgpu: fault: device 0 kernel copy_word: ";
    assert!(stderr.contains(expected), "{stderr}");
    let logged = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    assert!(logged.starts_with(expected) && logged.lines().count() == 1, "{logged}");
}

#[test]
fn the_code_says_what_a_kernel_did() {
    let codes = [
        ("misaligned", Code::MisalignedAddress),
        ("trap", Code::LaunchFailed),
        ("end", Code::IllegalAddress),
    ];
    for (case, code) in codes {
        if role().is_some_and(|role| role != case) {
            continue;
        }
        if role().is_none() {
            let output = finish(spawn("the_code_says_what_a_kernel_did", case, &[]));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            continue;
        }
        start();
        let (module, address) = (load(), alloc(8));
        ok(upload(address, &[0; 8]));
        let run_on = |name, args: &[Arg]| run(kernel(module, name), 1, 1, 0, args);
        ok(match case {
            "misaligned" => run_on("copy_word", &[Long(address), Long(address + 2)]),
            "trap" => run_on("trap_now", &[]),
            _ => run_on("copy_word", &[Long(address), Long(address + 8)]),
        });
        assert_eq!(sync(0), code);
    }
}

#[test]
fn an_add_of_device_scope_is_a_fault_once_the_memory_is_exported() {
    let name = "an_add_of_device_scope_is_a_fault_once_the_memory_is_exported";
    let stderr = in_child(name, &[], || {
        start();
        let (module, word) = (load(), alloc(4));
        let bump_here = kernel(module, "bump_here");
        ok(cu!(set::cuMemsetD32_v2(word, 0, 1)));
        ok(run(bump_here, 1, 1, 0, &[Long(word), Word(2)]));
        ok(sync(0));
        assert_eq!(words(word, 1), [2]);
        export(word);
        ok(run(bump_here, 1, 1, 0, &[Long(word), Word(2)]));
        assert_eq!(sync(0), Code::LaunchFailed);
    });
    assert!(stderr.contains("vgpu: fault: device 0 kernel bump_here"), "{stderr}");
}

#[test]
fn a_read_of_memory_that_nothing_wrote_is_a_fault_when_asked_for() {
    let name = "a_read_of_memory_that_nothing_wrote_is_a_fault_when_asked_for";
    in_child(name, &[("CPKV_VGPU_UNINITIALISED", "1")], || {
        start();
        let (module, words) = (load(), alloc(12));
        let copy_word = kernel(module, "copy_word");
        ok(cu!(set::cuMemsetD32_v2(words, 1, 1)));
        ok(run(copy_word, 1, 1, 0, &[Long(words + 4), Long(words)]));
        ok(run(copy_word, 1, 1, 0, &[Long(words), Long(words + 4)]));
        ok(sync(0));
        // A copy of what nothing wrote is still what nothing wrote.
        ok(cu!(copy::cuMemcpyDtoD_v2(words, words + 8, 4)));
        ok(sync(0));
        ok(run(copy_word, 1, 1, 0, &[Long(words + 4), Long(words)]));
        assert_eq!(sync(0), Code::LaunchFailed);
    });
}

#[test]
fn a_stuck_kernel_ends_the_wait_with_a_report() {
    let environment = [(FAULTS, "stuck=bump"), ("CPKV_VGPU_WATCHDOG_S", "1")];
    let stderr = in_child("a_stuck_kernel_ends_the_wait_with_a_report", &environment, || {
        start();
        let (module, word) = (load(), alloc(4));
        ok(run(kernel(module, "count_up"), 1, 1, 0, &[Long(word), Word(1), Word(1)]));
        ok(sync(0));
        let stream = new_stream(1);
        ok(run(kernel(module, "bump"), 1, 1, stream, &[Long(word), Word(1)]));
        let started = Instant::now();
        assert_eq!(sync(stream), Code::LaunchTimeout);
        assert!(started.elapsed() < Duration::from_secs(60));
        assert_eq!(sync(stream), Code::LaunchTimeout);
    });
    assert!(stderr.contains("stuck: cuStreamSynchronize has waited for 1 s"), "{stderr}");
    assert!(stderr.contains("kernel bump (grid [1, 1, 1], block [1, 1, 1])"), "{stderr}");
}

#[test]
fn the_nth_call_fails_and_the_others_do_not() {
    let faults = "alloc-fails=2,host-alloc-fails=1,stream-fails=2,event-fails=1,launch-fails=2";
    in_child("the_nth_call_fails_and_the_others_do_not", &[(FAULTS, faults)], || {
        start();
        let mut handle = 0;
        let mut alloc_code = || cu!(memory::cuMemAlloc_v2(out(&mut handle), 64));
        assert_eq!(
            [alloc_code(), alloc_code(), alloc_code()],
            [Code::Success, Code::OutOfMemory, Code::Success]
        );
        let mut host = || cu!(host_memory::cuMemAllocHost_v2(out(&mut handle), 64));
        assert_eq!([host(), host()], [Code::OutOfMemory, Code::Success]);
        let mut stream = || cu!(stream::cuStreamCreate(out(&mut handle), 0));
        assert_eq!([stream(), stream(), stream()], [Code::Success, Code::OutOfMemory, Code::Success]);
        let mut event = || cu!(event::cuEventCreate(out(&mut handle), 0));
        assert_eq!([event(), event()], [Code::OutOfMemory, Code::Success]);
        let (module, word) = (load(), alloc(4));
        let launch = || run(kernel(module, "count_up"), 1, 1, 0, &[Long(word), Word(1), Word(1)]);
        assert_eq!(
            [launch(), launch(), launch()],
            [Code::Success, Code::LaunchOutOfResources, Code::Success]
        );
        ok(sync(0));
    });
}

#[test]
fn a_fault_for_another_rank_or_device_is_not_staged() {
    let name = "a_fault_for_another_rank_or_device_is_not_staged";
    let environment = [
        (FAULTS, "alloc-fails=1@1,module-fails@rank3"),
        ("CPKV_VGPU_DEVICES", "2"),
        ("OMPI_COMM_WORLD_RANK", "2"),
    ];
    in_child(name, &environment, || {
        start_on(0);
        alloc(4);
        load();
        start_on(1);
        let mut address = 0;
        assert_eq!(cu!(memory::cuMemAlloc_v2(out(&mut address), 64)), Code::OutOfMemory);
    });
}

#[test]
fn the_environments_module_takes_the_place_of_the_programs() {
    let path = std::env::temp_dir().join(format!("cpkv-vgpu-module-{}.ptx", std::process::id()));
    std::fs::write(&path, PTX.replace("seven = 7", "seven = 8")).unwrap();
    let name = "the_environments_module_takes_the_place_of_the_programs";
    let stderr = in_child(name, &[("CPKV_VGPU_MODULE", path.to_str().unwrap())], || {
        start();
        let (mut address, mut bytes, module) = (0, 0, load());
        ok(cu!(module::cuModuleGetGlobal_v2(out(&mut address), out(&mut bytes), module, c"seven".as_ptr())));
        assert_eq!(words(address, 1), [8]);
        load();
    });
    std::fs::remove_file(&path).unwrap();
    assert_eq!(stderr.matches("modules are replaced by").count(), 1, "{stderr}");
}

#[test]
fn modules_are_refused_when_staged() {
    in_child("modules_are_refused_when_staged", &[(FAULTS, "module-fails")], || {
        start();
        let mut module = 0;
        assert_eq!(cu!(module::cuModuleLoadData(out(&mut module), c"".as_ptr().cast())), Code::InvalidPtx);
    });
}

#[test]
fn an_ecc_error_comes_after_so_many_launches_and_stays() {
    in_child("an_ecc_error_comes_after_so_many_launches_and_stays", &[(FAULTS, "ecc=2")], || {
        start();
        let (module, word) = (load(), alloc(4));
        let launch = || run(kernel(module, "count_up"), 1, 1, 0, &[Long(word), Word(1), Word(1)]);
        ok(launch());
        ok(launch());
        assert_eq!(launch(), Code::EccUncorrectable);
        assert_eq!(cu!(context::cuCtxSynchronize()), Code::EccUncorrectable);
    });
}

#[test]
fn slow_kernels_and_host_functions_are_late() {
    static CALLED: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" fn call(_data: *mut c_void) {
        CALLED.store(true, Ordering::Release);
    }
    let faults = "slow=3000000,slow-host=60000";
    in_child("slow_kernels_and_host_functions_are_late", &[(FAULTS, faults)], || {
        start();
        let (module, word) = (load(), alloc(4));
        let started = Instant::now();
        ok(run(kernel(module, "count_up"), 1, 1, 0, &[Long(word), Word(1), Word(1)]));
        assert_eq!(cu!(stream::cuStreamQuery(0)), Code::NotReady, "the launch itself was late");
        ok(sync(0));
        assert!(started.elapsed() >= Duration::from_secs(3));
        let started = Instant::now();
        ok(cu!(launch::cuLaunchHostFunc(0, Some(call), 0)));
        ok(sync(0));
        assert!(CALLED.load(Ordering::Acquire) && started.elapsed() >= Duration::from_millis(60));
    });
}

#[test]
fn a_misspelt_fault_is_refused_when_the_driver_starts() {
    let name = "a_misspelt_fault_is_refused_when_the_driver_starts";
    let stderr = in_child(name, &[(FAULTS, "peer-lie")], || {
        assert_eq!(cu!(error::cuInit(0)), Code::InvalidValue);
        let mut count = 0;
        assert_eq!(cu!(device::cuDeviceGetCount(out(&mut count))), Code::NotInitialized);
    });
    assert!(stderr.contains("no fault is named `peer-lie`"), "{stderr}");
}

#[test]
fn without_a_visible_device_the_driver_does_not_start() {
    let name = "without_a_visible_device_the_driver_does_not_start";
    in_child(name, &[("CUDA_VISIBLE_DEVICES", "")], || {
        assert_eq!(cu!(error::cuInit(0)), Code::NoDevice);
    });
}

/// What a child answers under a peer fault when it opens memory that this process exports: its standard error.
fn opened_under(name: &str, fault: &str, body: impl FnOnce()) -> Option<u64> {
    if role().is_some() {
        start_on(1);
        body();
        return None;
    }
    let address = alloc_exported();
    let handle = hex(&export(address));
    let environment = [(HANDLE, handle.as_str()), (FAULTS, fault), ("CPKV_VGPU_DEVICES", "2")];
    let output = finish(spawn(name, "opener", &environment));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(address)
}

fn alloc_exported() -> u64 {
    start();
    let address = alloc(8192);
    ok(cu!(set::cuMemsetD32_v2(address, 5, 2048)));
    ok(sync(0));
    address
}

fn can_access() -> i32 {
    let mut can = -1;
    ok(cu!(peer::cuDeviceCanAccessPeer(out(&mut can), 1, 0)));
    can
}

#[test]
fn a_lying_peer_says_yes_and_does_not_open() {
    opened_under("a_lying_peer_says_yes_and_does_not_open", "peer-lies", || {
        assert_eq!(can_access(), 1);
        assert_eq!(open_given(), Err(Code::MapFailed));
    });
}

#[test]
fn a_peer_that_is_off_says_so() {
    opened_under("a_peer_that_is_off_says_so", "peer-off", || {
        assert_eq!(can_access(), 0);
        assert_eq!(open_given(), Err(Code::PeerAccessUnsupported));
    });
}

#[test]
fn a_garbage_peer_opens_other_bytes() {
    opened_under("a_garbage_peer_opens_other_bytes", "peer-garbage", || {
        assert_eq!(words(open_given().unwrap(), 2), [0xCBCB_CBCB; 2]);
    });
}

#[test]
fn lost_adds_do_not_reach_the_owner() {
    let name = "lost_adds_do_not_reach_the_owner";
    let address = opened_under(name, "lost-adds", || {
        let (word, module) = (open_given().unwrap(), load());
        assert_eq!(words(word, 1), [5]);
        ok(run(kernel(module, "bump"), 1, 32, 0, &[Long(word), Word(1)]));
        ok(sync(0));
        assert_eq!(words(word, 1), [37]);
    });
    if let Some(address) = address {
        assert_eq!(words(address, 1), [5]);
    }
}

#[test]
fn an_export_fails_when_staged() {
    in_child("an_export_fails_when_staged", &[(FAULTS, "export-fails")], || {
        start();
        let mut handle = cpkv_vgpu::driver::IpcHandle { bytes: [0; 64] };
        assert_eq!(cu!(ipc::cuIpcGetMemHandle(out(&mut handle), alloc(4))), Code::MapFailed);
    });
}
