//! Captured work: it runs when it is replayed, and what cannot be captured is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cpkv::device::{CpuDevice, Device, DeviceError, Keep};

use crate::lab::{Dropped, Lab, add, nothing, soon};
use crate::vgpu::{faults, in_child};

#[test]
fn captured_work_runs_at_each_replay_and_keeps_what_it_needs() {
    let stderr = in_child(&[], || {
        let lab = Lab::open();
        let (ones, sum) = (lab.holding(&[1; 64]), lab.device.alloc(64).unwrap());
        let copy = lab.device.alloc(64).unwrap();
        let num_dropped = Arc::new(AtomicUsize::new(0));
        lab.stream.begin_capture().unwrap();
        add(&*lab.stream, &sum, &ones, Arc::new(Dropped(Arc::clone(&num_dropped)))).unwrap();
        lab.stream.copy(&sum, &copy).unwrap();
        // Nothing to copy is nothing to capture.
        lab.stream.copy(&sum.slice(0..0).unwrap(), &copy).unwrap();
        let graph = lab.stream.end_capture().unwrap();
        lab.synchronize().unwrap();
        assert_eq!((lab.read(&sum), lab.read(&copy)), (vec![0; 64], vec![0; 64]));
        let ones_addr = ones.addr();
        drop(ones);
        for round in 1..=3 {
            // SAFETY: the graph keeps all that its work needs, and nothing else touches it.
            unsafe { lab.stream.replay(&graph) }.unwrap();
            // What the graph still reads is not handed out.
            assert_ne!(lab.device.alloc(64).unwrap().addr(), ones_addr);
            lab.synchronize().unwrap();
            assert_eq!((lab.read(&sum), lab.read(&copy)), (vec![round; 64], vec![round; 64]));
        }
        // SAFETY: as above.
        unsafe { lab.stream.replay(&graph) }.unwrap();
        drop(graph);
        assert_eq!(num_dropped.load(Ordering::SeqCst), 0, "the queued replay still needs it");
        lab.synchronize().unwrap();
        assert_eq!(num_dropped.load(Ordering::SeqCst), 1);
        assert_eq!(lab.read(&copy), [4; 64]);
    });
    assert_eq!(faults(&stderr), [""; 0]);
}

#[test]
fn a_graph_runs_on_another_stream_too() {
    in_child(&[], || {
        let lab = Lab::open();
        let (ones, sum) = (lab.holding(&[1; 16]), lab.device.alloc(16).unwrap());
        lab.stream.begin_capture().unwrap();
        add(&*lab.stream, &sum, &ones, Arc::new(())).unwrap();
        let graph = lab.stream.end_capture().unwrap();
        let other = lab.device.stream().unwrap();
        // SAFETY: the graph keeps all that its work needs, and nothing else touches it.
        unsafe { other.replay(&graph) }.unwrap();
        other.synchronize(soon()).unwrap();
        assert_eq!(lab.read(&sum), [1; 16]);
    });
}

#[test]
fn what_cannot_be_captured_is_refused_at_once_and_at_the_end() {
    in_child(&[], || {
        let lab = Lab::open();
        let buffer = lab.holding(&[6; 16]);
        let event = lab.stream.record().unwrap();
        lab.stream.begin_capture().unwrap();
        nothing(&*lab.stream, &(Arc::new(()) as Keep)).unwrap();
        let graph = lab.stream.end_capture().unwrap();
        let calls = ["upload", "download", "call", "record event", "wait for event", "synchronize"];
        for name in [&calls[..], &["begin capture", "replay"]].concat() {
            lab.stream.begin_capture().unwrap();
            nothing(&*lab.stream, &(Arc::new(()) as Keep)).unwrap();
            let outcome = match name {
                "upload" => lab.stream.upload(vec![0; 16], &buffer),
                "download" => lab.stream.download(&buffer, &mut [0; 16], soon()),
                "call" => lab.stream.host_call("call", Box::new(|| Ok(()))),
                "record event" => lab.stream.record().map(drop),
                "wait for event" => lab.stream.wait(&event),
                "begin capture" => lab.stream.begin_capture(),
                // SAFETY: the graph's one kernel touches no memory.
                "replay" => unsafe { lab.stream.replay(&graph) },
                _ => lab.synchronize(),
            };
            // A synchronisation of the stream is what a download begins with.
            let refused = Err(DeviceError::NotCapturable {
                call: if name == "download" { "synchronize" } else { name },
            });
            assert_eq!(outcome, refused, "{name}");
            // A second beginning is refused by this library, and the capture goes on.
            let ended = if name == "begin capture" { Ok(()) } else { refused };
            assert_eq!(lab.stream.end_capture().map(drop), ended, "{name}");
        }
        // Nothing of it has run, and the stream works.
        lab.synchronize().unwrap();
        assert_eq!(lab.read(&buffer), [6; 16]);
        let none = DeviceError::NotCapturable { call: "end capture" };
        assert_eq!(lab.stream.end_capture().map(drop), Err(none));
    });
}

#[test]
fn a_graph_of_another_kind_of_device_is_refused() {
    in_child(&[], || {
        let lab = Lab::open();
        let cpu = CpuDevice.stream().unwrap();
        cpu.begin_capture().unwrap();
        let foreign = cpu.end_capture().unwrap();
        // SAFETY: refused.
        let outcome = unsafe { lab.stream.replay(&foreign) };
        assert_eq!(outcome, Err(DeviceError::Foreign { call: "replay" }));
        lab.stream.begin_capture().unwrap();
        let graph = lab.stream.end_capture().unwrap();
        // SAFETY: refused.
        let outcome = unsafe { cpu.replay(&graph) };
        assert_eq!(outcome, Err(DeviceError::Foreign { call: "replay" }));
        lab.synchronize().unwrap();
    });
}

#[test]
fn a_stream_dropped_in_a_capture_leaves_the_others_alone() {
    in_child(&[], || {
        let lab = Lab::open();
        let (ones, sum) = (lab.holding(&[1; 16]), lab.device.alloc(16).unwrap());
        let doomed = lab.device.stream().unwrap();
        doomed.begin_capture().unwrap();
        add(&*doomed, &sum, &ones, Arc::new(())).unwrap();
        drop(doomed);
        add(&*lab.stream, &sum, &ones, Arc::new(())).unwrap();
        lab.synchronize().unwrap();
        assert_eq!(lab.read(&sum), [1; 16]);
    });
}
