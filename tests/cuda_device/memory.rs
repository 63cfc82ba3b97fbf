//! Memory: zeroed, bounded, reused, and refused with its size.

use cpkv::device::{Device, DeviceError, MemoryKind};

use crate::lab::{Lab, soon};
use crate::vgpu::{faults, in_child};

const MIB: u64 = 1 << 20;

#[test]
fn memory_of_any_size_is_zero_and_aligned_even_where_it_was_used_before() {
    let stderr = in_child(&[], || {
        let lab = Lab::open();
        assert_eq!(lab.device.memory(), MemoryKind::Cuda);
        for bytes in [0, 1, 511, 512, 513, 4096, MIB + 1, 2 * MIB + 3] {
            let first = lab.device.alloc(bytes).unwrap();
            assert_eq!((first.bytes(), first.addr() % 256), (bytes, 0));
            assert!(lab.read(&first).iter().all(|&byte| byte == 0), "{bytes} bytes");
            lab.device.write(&vec![0xAB; bytes as usize], &first).unwrap();
            assert!(lab.read(&first).iter().all(|&byte| byte == 0xAB));
            let addr = first.addr();
            drop(first);
            let second = lab.device.alloc(bytes).unwrap();
            assert_eq!(second.addr(), addr, "from the list");
            assert!(lab.read(&second).iter().all(|&byte| byte == 0), "{bytes} bytes, used before");
            let third = lab.device.alloc(bytes).unwrap();
            assert!(!third.overlaps(&second) && third.addr() != addr);
        }
    });
    assert_eq!(faults(&stderr), [""; 0]);
}

#[test]
fn host_memory_is_zero_reused_and_at_the_same_address_for_the_host() {
    in_child(&[], || {
        let lab = Lab::open();
        for bytes in [0_u64, 1, 256, 257, 70_000] {
            let pinned = lab.device.alloc_host(bytes).unwrap();
            assert_eq!(pinned.bytes(), bytes);
            let host = |addr: u64| std::ptr::with_exposed_provenance_mut::<u8>(addr as usize);
            // SAFETY: host memory of this length, which nothing else touches.
            let slice = unsafe { std::slice::from_raw_parts_mut(host(pinned.addr()), bytes as usize) };
            assert!(slice.iter().all(|&byte| byte == 0), "{bytes} bytes");
            slice.fill(7);
            let copy = lab.device.alloc(bytes).unwrap();
            lab.stream.copy(&pinned, &copy).unwrap();
            lab.synchronize().unwrap();
            assert!(lab.read(&copy).iter().all(|&byte| byte == 7));
            let addr = pinned.addr();
            drop(pinned);
            let again = lab.device.alloc_host(bytes).unwrap();
            assert_eq!(again.addr(), addr, "from the list");
            // SAFETY: as above.
            let slice = unsafe { std::slice::from_raw_parts(host(again.addr()), bytes as usize) };
            assert!(slice.iter().all(|&byte| byte == 0), "{bytes} bytes, used before");
        }
        for bytes in [1 << 47, u64::MAX] {
            let error = lab.device.alloc_host(bytes).unwrap_err();
            assert_eq!(error, DeviceError::OutOfMemory { device: "cuda (host memory)", bytes });
        }
    });
}

#[test]
fn more_than_the_gpu_has_is_refused_with_its_size_and_the_rest_goes_on() {
    in_child(&[("CPKV_VGPU_MEMORY_MB", "64")], || {
        let lab = Lab::open();
        let kept = lab.holding(&[5; 1000]);
        for bytes in [100 * MIB, 1 << 40] {
            let error = lab.device.alloc(bytes).unwrap_err();
            assert_eq!(error, DeviceError::OutOfMemory { device: "cuda", bytes });
            let said = error.to_string();
            assert!(said.contains(&bytes.to_string()) && said.contains("fewer pages"), "{said}");
        }
        for bytes in [u64::MAX, i64::MAX as u64 + 1] {
            let error = lab.device.alloc(bytes).unwrap_err();
            assert_eq!(error, DeviceError::OutOfMemory { device: "cuda", bytes });
        }
        assert_eq!(lab.read(&kept), [5; 1000]);
        let other = lab.device.alloc(40 * MIB).unwrap();
        lab.stream.upload(vec![9; 100], &other).unwrap();
        lab.synchronize().unwrap();
    });
}

#[test]
fn memory_that_nobody_holds_is_given_back_before_more_is_refused() {
    in_child(&[("CPKV_VGPU_MEMORY_MB", "64")], || {
        let lab = Lab::open();
        drop(lab.device.alloc(30 * MIB).unwrap());
        drop(lab.device.alloc(28 * MIB).unwrap());
        // Neither of the two is large enough, and beside both there is no room.
        let large = lab.device.alloc(50 * MIB).unwrap();
        assert!(lab.device.alloc(30 * MIB).is_err());
        drop(large);
        lab.device.alloc(60 * MIB).unwrap();
    });
}

#[test]
fn an_allocation_that_the_driver_refuses_once_is_tried_again_where_something_can_be_given_back() {
    // Opening the GPU allocates three times, and gives all three to the list.
    in_child(&[("CPKV_VGPU_FAULTS", "alloc-fails=4")], || {
        let lab = Lab::open();
        lab.device.alloc(5 * MIB).unwrap();
    });
}

#[test]
fn copies_in_many_parts_arrive_whole() {
    in_child(&[], || {
        let lab = Lab::open();
        // More than goes through the bounce buffer, and more than is downloaded, at a time.
        for bytes in [3 * MIB + 5, 17 * MIB + 3] {
            let pattern: Vec<u8> = (0..bytes).map(|at| (at.wrapping_mul(0x9E37_79B1) >> 13) as u8).collect();
            let buffer = lab.holding(&pattern);
            assert!(lab.read(&buffer) == pattern);
            let other = lab.device.alloc(bytes).unwrap();
            lab.stream.copy(&buffer, &other).unwrap();
            let mut downloaded = vec![0; bytes as usize];
            lab.stream.download(&other, &mut downloaded, soon()).unwrap();
            assert!(downloaded == pattern);
        }
    });
}

#[test]
fn lengths_that_do_not_fit_are_refused_with_both_and_nothing_is_copied() {
    in_child(&[], || {
        let lab = Lab::open();
        let buffer = lab.holding(&[3; 100]);
        let larger = lab.holding(&[4; 101]);
        let refused = |call, end| DeviceError::OutOfBounds { call, start: 0, end, buffer_bytes: 100 };
        assert_eq!(lab.device.write(&[0; 101], &buffer), Err(refused("write", 101)));
        for length in [0, 99, 101] {
            let mut bytes = vec![0; length];
            let end = length as u64;
            assert_eq!(lab.device.read(&buffer, &mut bytes), Err(refused("read", end)));
            assert_eq!(lab.stream.download(&buffer, &mut bytes, soon()), Err(refused("download", end)));
        }
        assert_eq!(lab.stream.upload(vec![0; 101], &buffer), Err(refused("upload", 101)));
        assert_eq!(lab.stream.copy(&larger, &buffer), Err(refused("copy", 101)));
        let slice = buffer.slice(90..101).unwrap_err();
        assert_eq!(slice, DeviceError::OutOfBounds { call: "slice", start: 90, end: 101, buffer_bytes: 100 });
        lab.synchronize().unwrap();
        assert_eq!(lab.read(&buffer), [3; 100]);
        // What fits goes to the start, and nothing goes nowhere.
        lab.stream.copy(&buffer.slice(0..10).unwrap(), &larger).unwrap();
        lab.stream.upload(Vec::new(), &buffer).unwrap();
        lab.stream.copy(&buffer.slice(5..5).unwrap(), &larger).unwrap();
        lab.device.write(&[], &buffer).unwrap();
        lab.synchronize().unwrap();
        assert_eq!(lab.read(&larger), [&[3; 10][..], &[4; 91]].concat());
        assert_eq!(lab.read(&buffer), [3; 100]);
    });
}
