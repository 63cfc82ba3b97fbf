//! Device memory, copies and sets, through the C entry points.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod driver_support;

use cpkv_vgpu::driver::Code;
use cpkv_vgpu::driver::entry::{context, copy, device, host_memory, memory, pointer, set};
use driver_support::*;

#[test]
fn bytes_come_back_as_they_were_sent() {
    start();
    let address = alloc(1000);
    let sent: Vec<u8> = (0..1000).map(|i| (i * 7) as u8).collect();
    ok(upload(address, &sent));
    assert_eq!(download(address, 1000).unwrap(), sent);
    assert_eq!(download(address + 10, 5).unwrap(), sent[10..15]);
}

#[test]
fn new_memory_is_poison_and_no_address_of_the_process() {
    start();
    let address = alloc(64);
    assert_eq!(download(address, 64).unwrap(), [0xCB; 64]);
    assert!(address > 1 << 47, "{address:#x} could be mapped");
    assert_eq!(address % 512, 0);
}

#[test]
fn a_copy_past_the_end_or_of_freed_memory_is_refused() {
    start();
    let address = alloc(64);
    assert_eq!(upload(address + 1, &[0; 64]), Code::InvalidValue);
    assert_eq!(download(address, 65), Err(Code::InvalidValue));
    assert_eq!(cu!(set::cuMemsetD8_v2(address, 1, 65)), Code::InvalidValue);
    assert_eq!(cu!(set::cuMemsetD32_v2(address + 2, 1, 4)), Code::InvalidValue);
    assert_eq!(cu!(memory::cuMemFree_v2(address + 8)), Code::InvalidValue);
    ok(cu!(memory::cuMemFree_v2(address)));
    assert_eq!(cu!(memory::cuMemFree_v2(address)), Code::InvalidValue);
    assert_eq!(download(address, 4), Err(Code::InvalidValue));
    assert_eq!(upload(0, &[1]), Code::InvalidValue);
}

#[test]
fn sets_and_copies_on_the_device_do_what_they_say() {
    start();
    let (one, two) = (alloc(64), alloc(64));
    ok(cu!(set::cuMemsetD32_v2(one, 0x0102_0304, 16)));
    ok(cu!(set::cuMemsetD16_v2(one + 4, 0xAABB, 2)));
    ok(cu!(set::cuMemsetD8_v2(one + 8, 9, 1)));
    ok(cu!(copy::cuMemcpyDtoD_v2(two + 4, one, 12)));
    ok(cu!(context::cuCtxSynchronize()));
    assert_eq!(words(two, 5), [0xCBCB_CBCB, 0x0102_0304, 0xAABB_AABB, 0x0102_0309, 0xCBCB_CBCB]);
}

#[test]
fn memory_beyond_the_limit_is_refused_and_freed_memory_counts_no_more() {
    in_child(
        "memory_beyond_the_limit_is_refused_and_freed_memory_counts_no_more",
        &[("CPKV_VGPU_MEMORY_MB", "1")],
        || {
            start();
            let first = alloc(600 << 10);
            let mut address = 0;
            assert_eq!(cu!(memory::cuMemAlloc_v2(out(&mut address), 600 << 10)), Code::OutOfMemory);
            assert_eq!(cu!(memory::cuMemAlloc_v2(out(&mut address), 0)), Code::InvalidValue);
            let (mut free, mut total) = (0, 0);
            ok(cu!(memory::cuMemGetInfo_v2(out(&mut free), out(&mut total))));
            assert_eq!((free, total), (424 << 10, 1 << 20));
            ok(cu!(memory::cuMemFree_v2(first)));
            alloc(1 << 20);
        },
    );
}

#[test]
fn pinned_memory_has_one_address_for_both_sides() {
    start();
    let mut pinned = 0_u64;
    ok(cu!(host_memory::cuMemAllocHost_v2(out(&mut pinned), 64)));
    let mut seen = 0;
    ok(cu!(host_memory::cuMemHostGetDevicePointer_v2(out(&mut seen), pinned, 0)));
    assert_eq!(seen, pinned);
    // SAFETY: pinned memory is mapped, and 64 bytes long.
    unsafe { (pinned as *mut u8).write_bytes(5, 64) };
    let address = alloc(64);
    ok(cu!(copy::cuMemcpyHtoDAsync_v2(address, pinned, 64, 0)));
    ok(sync(0));
    assert_eq!(download(address, 64).unwrap(), [5; 64]);
    let mut kind = 0_i32;
    ok(cu!(pointer::cuPointerGetAttribute(std::ptr::from_mut(&mut kind).cast(), 2, pinned)));
    assert_eq!(kind, 1);
    ok(cu!(pointer::cuPointerGetAttribute(std::ptr::from_mut(&mut kind).cast(), 2, address)));
    assert_eq!(kind, 2);
    ok(cu!(host_memory::cuMemFreeHost(pinned)));
    assert_eq!(cu!(host_memory::cuMemFreeHost(pinned)), Code::InvalidValue);
}

#[test]
fn the_range_of_an_inner_address_is_its_allocation() {
    start();
    let address = alloc(3000);
    let (mut base, mut bytes) = (0, 0);
    ok(cu!(memory::cuMemGetAddressRange_v2(out(&mut base), out(&mut bytes), address + 2999)));
    assert_eq!((base, bytes), (address, 3000));
    assert_eq!(
        cu!(memory::cuMemGetAddressRange_v2(out(&mut base), out(&mut bytes), address + 3000)),
        Code::NotFound
    );
}

#[test]
fn devices_differ_by_uuid_and_the_variable_chooses_among_them() {
    let uuid = |ordinal| {
        let mut uuid = device::Uuid::default();
        ok(cu!(device::cuDeviceGetUuid(out(&mut uuid), ordinal)));
        uuid
    };
    in_child(
        "devices_differ_by_uuid_and_the_variable_chooses_among_them",
        &[("CPKV_VGPU_DEVICES", "4"), ("CUDA_VISIBLE_DEVICES", "3,1")],
        || {
            start_on(0);
            let mut count = 0;
            ok(cu!(device::cuDeviceGetCount(out(&mut count))));
            assert_eq!(count, 2);
            assert_eq!(uuid(0).bytes[..8], *b"cpkvvgpu");
            assert_eq!((uuid(0).bytes[15], uuid(1).bytes[15]), (3, 1));
            let mut value = 0;
            ok(cu!(device::cuDeviceGetAttribute(out(&mut value), 75, 0)));
            assert_eq!(value, 9);
            assert_eq!(cu!(device::cuDeviceGetAttribute(out(&mut value), 75, 2)), Code::InvalidDevice);
            let mut at = -1;
            ok(cu!(device::cuDeviceGetByPCIBusId(out(&mut at), c"0000:02:00.0".as_ptr())));
            assert_eq!(at, 1);
        },
    );
}

#[test]
fn a_primary_context_goes_with_its_last_release() {
    in_child("a_primary_context_goes_with_its_last_release", &[], || {
        start_on(0);
        start_on(0);
        let address = alloc(64);
        ok(cu!(device::cuDevicePrimaryCtxRelease_v2(0)));
        ok(upload(address, &[1; 64]));
        ok(cu!(device::cuDevicePrimaryCtxRelease_v2(0)));
        assert_eq!(upload(address, &[1; 64]), Code::ContextIsDestroyed);
        assert_eq!(cu!(device::cuDevicePrimaryCtxRelease_v2(0)), Code::InvalidContext);
        start_on(0);
        assert_eq!(upload(address, &[1; 64]), Code::InvalidValue);
    });
}
