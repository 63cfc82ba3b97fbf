//! What queued work needs stays until it has run, whatever else is done with its stream.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cpkv::device::Device;

use crate::lab::{Lab, soon};
use crate::vgpu::{faults, in_child};

/// Keeps a stream busy for `milliseconds`.
fn busy(lab: &Lab, milliseconds: u64) {
    let sleep = move || {
        thread::sleep(Duration::from_millis(milliseconds));
        Ok(())
    };
    lab.stream.host_call("busy", Box::new(sleep)).unwrap();
}

#[test]
fn work_queued_while_another_thread_synchronises_keeps_its_memory() {
    let stderr = in_child(&[], || {
        let lab = Lab::open();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    lab.stream.synchronize(soon()).unwrap();
                }
            });
            for round in 0..2000u32 {
                let byte = (round % 250) as u8 + 1;
                let buffer = lab.device.alloc(4096).unwrap();
                busy(&lab, 1);
                lab.stream.upload(vec![byte; 4096], &buffer).unwrap();
                // Zeroed: it would wipe out the upload's bytes, had their memory been let go.
                let other = lab.device.alloc_host(4096).unwrap();
                lab.stream.synchronize(soon()).unwrap();
                assert_eq!(lab.read(&buffer), [byte; 4096], "round {round}");
                drop(other);
            }
            done.store(true, Ordering::Relaxed);
        });
    });
    assert_eq!(faults(&stderr), [""; 0]);
}

#[test]
fn a_stream_dropped_while_it_captures_keeps_what_was_queued_before() {
    let stderr = in_child(&[], || {
        let lab = Lab::open();
        let buffer = lab.holding(&[6; 4096]);
        busy(&lab, 400);
        lab.stream.upload(vec![0xAB; 4096], &buffer).unwrap();
        drop(buffer);
        lab.stream.begin_capture().unwrap();
        let Lab { device, stream } = lab;
        drop(stream);
        let next = device.alloc(4096).unwrap();
        thread::sleep(Duration::from_millis(800));
        let mut bytes = [1; 4096];
        device.read(&next, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 4096]);
    });
    assert_eq!(faults(&stderr), [""; 0]);
}
