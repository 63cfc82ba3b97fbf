//! Streams: asynchronous, in order, joined by events, and dead after their first error.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cpkv::device::{CpuDevice, Device, DeviceError, Keep};
use cpkv_kernels::now_ns;

use crate::lab::{Dropped, Lab, add, gate, note, nothing, soon, until, within_ms};
use crate::vgpu::{faults, in_child};

#[test]
fn work_is_queued_at_once_and_runs_in_order() {
    let stderr = in_child(&[], || {
        let lab = Lab::open();
        let (ones, sum) = (lab.holding(&[1; 4096]), lab.device.alloc(4096).unwrap());
        let snapshots: Vec<_> = (0..5).map(|_| lab.device.alloc(4096).unwrap()).collect();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (open, closed) = gate();
        let begun = Instant::now();
        lab.stream.host_call("closed gate", closed).unwrap();
        for (round, snapshot) in (0..).zip(&snapshots) {
            add(&*lab.stream, &sum, &ones, Arc::new(())).unwrap();
            lab.stream.copy(&sum, snapshot).unwrap();
            lab.stream.host_call("note", note(&log, round)).unwrap();
        }
        lab.stream.upload(vec![9; 4096], &sum).unwrap();
        let end = lab.stream.record().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing waited for the gate");
        assert!(!end.query() && end.fired_at_ns().is_none() && log.lock().unwrap().is_empty());
        assert_eq!(lab.read(&sum), [0; 4096]);
        assert_eq!(lab.stream.num_host_syncs(), 0);
        open.send(()).unwrap();
        lab.synchronize().unwrap();
        assert_eq!(lab.stream.num_host_syncs(), 1);
        assert!(end.query());
        assert_eq!(*log.lock().unwrap(), [0, 1, 2, 3, 4]);
        for (round, snapshot) in (1..).zip(&snapshots) {
            assert_eq!(lab.read(snapshot), [round; 4096]);
        }
        assert_eq!(lab.read(&sum), [9; 4096]);
    });
    assert_eq!(faults(&stderr), [""; 0]);
}

#[test]
fn a_stream_waits_for_an_event_of_another_and_the_host_does_not() {
    in_child(&[], || {
        let lab = Lab::open();
        let other = lab.device.stream().unwrap();
        let (ones, sum) = (lab.holding(&[1; 64]), lab.device.alloc(64).unwrap());
        let seen = lab.device.alloc(64).unwrap();
        let (open, closed) = gate();
        lab.stream.host_call("closed gate", closed).unwrap();
        add(&*lab.stream, &sum, &ones, Arc::new(())).unwrap();
        let event = lab.stream.record().unwrap();
        other.wait(&event).unwrap();
        other.copy(&sum, &seen).unwrap();
        // The event may go before it fires.
        let waiting = Arc::clone(&event);
        let error = waiting.wait(within_ms(30)).unwrap_err();
        let DeviceError::Deadline { call: "event wait", running, .. } = error else { panic!("{error}") };
        assert_eq!(running, "work before the event");
        drop((event, waiting));
        let error = other.synchronize(within_ms(30)).unwrap_err();
        assert!(
            matches!(error, DeviceError::Deadline { call: "synchronize", running: "wait for event", .. }),
            "{error}"
        );
        open.send(()).unwrap();
        other.synchronize(soon()).unwrap();
        assert_eq!(lab.read(&seen), [1; 64]);
        lab.synchronize().unwrap();
    });
}

#[test]
fn events_fire_in_order_on_the_clock_of_the_host() {
    in_child(&[], || {
        let lab = Lab::open();
        let check = || {
            let before = now_ns();
            let first = lab.stream.record().unwrap();
            lab.stream
                .host_call(
                    "sleep",
                    Box::new(|| {
                        std::thread::sleep(Duration::from_millis(20));
                        Ok(())
                    }),
                )
                .unwrap();
            let second = lab.stream.record().unwrap();
            second.wait(soon()).unwrap();
            first.wait(soon()).unwrap();
            let after = now_ns();
            let (first, second) = (first.fired_at_ns().unwrap(), second.fired_at_ns().unwrap());
            assert!(second - first >= 19_000_000, "{first} {second}");
            // Anchor and event are each seen a little late.
            let slack = 5_000_000_000;
            assert!(before - slack < first && second < after + slack, "{before} {first} {second} {after}");
        };
        check();
        // An idle stream's anchor is renewed once it is old.
        std::thread::sleep(Duration::from_millis(1100));
        lab.synchronize().unwrap();
        check();
    });
}

#[test]
fn an_event_of_another_kind_of_device_is_refused_and_the_stream_goes_on() {
    in_child(&[], || {
        let lab = Lab::open();
        let foreign = CpuDevice.stream().unwrap().record().unwrap();
        assert_eq!(lab.stream.wait(&foreign), Err(DeviceError::Foreign { call: "wait for event" }));
        lab.nothing().unwrap();
        lab.synchronize().unwrap();
    });
}

#[test]
fn the_first_error_of_a_host_call_ends_its_stream_and_no_other() {
    in_child(&[], || {
        let lab = Lab::open();
        let log = Arc::new(Mutex::new(Vec::new()));
        let error = DeviceError::HostCall { call: "fails", code: -7, rank: 3 };
        let (open, closed) = gate();
        lab.stream.host_call("closed gate", closed).unwrap();
        lab.stream.host_call("note", note(&log, 1)).unwrap();
        let failing = error.clone();
        lab.stream.host_call("fails", Box::new(move || Err(failing))).unwrap();
        lab.stream.host_call("note", note(&log, 2)).unwrap();
        let second = DeviceError::HostCall { call: "fails again", code: -8, rank: 3 };
        lab.stream.host_call("fails again", Box::new(move || Err(second))).unwrap();
        open.send(()).unwrap();
        assert_eq!(lab.synchronize(), Err(error.clone()));
        for (call, outcome) in lab.every_call() {
            assert_eq!(outcome, Err(error.clone()), "{call}");
        }
        assert_eq!(*log.lock().unwrap(), [1], "nothing behind the error has run");
        let other = lab.device.stream().unwrap();
        other.host_call("note", note(&log, 3)).unwrap();
        other.synchronize(soon()).unwrap();
        assert_eq!(*log.lock().unwrap(), [1, 3]);
    });
}

#[test]
fn a_panic_in_a_host_call_is_an_error_with_its_message() {
    in_child(&[], || {
        let lab = Lab::open();
        let panics: [(&str, fn()); 3] = [
            ("out of luck", || panic!("out of luck")),
            ("out of 3", || panic!("out of {}", std::hint::black_box(3))),
            ("no message", || std::panic::panic_any(3)),
        ];
        for (message, panic) in panics {
            let stream = lab.device.stream().unwrap();
            let call = move || {
                panic();
                Ok(())
            };
            stream.host_call("unlucky", Box::new(call)).unwrap();
            let message = message.to_owned();
            let expected = Err(DeviceError::Panicked { call: "unlucky", message });
            assert_eq!(stream.synchronize(soon()), expected);
            assert_eq!(stream.synchronize(soon()), expected, "for ever");
        }
    });
}

#[test]
fn a_dropped_stream_does_not_wait_and_its_work_runs_on_memory_that_is_still_its_own() {
    let stderr = in_child(&[], || {
        let lab = Lab::open();
        let (ones, sum) = (lab.holding(&[1; 4096]), lab.device.alloc(4096).unwrap());
        let num_dropped = Arc::new(AtomicUsize::new(0));
        let doomed = lab.device.stream().unwrap();
        let (open, closed) = gate();
        doomed.host_call("closed gate", closed).unwrap();
        add(&*doomed, &sum, &ones, Arc::new(Dropped(Arc::clone(&num_dropped)))).unwrap();
        let ones_addr = ones.addr();
        drop(ones);
        let begun = Instant::now();
        drop(doomed);
        assert!(begun.elapsed() < Duration::from_secs(20), "the gate is closed");
        for _ in 0..3 {
            assert_ne!(lab.device.alloc(4096).unwrap().addr(), ones_addr, "queued work reads it");
        }
        assert_eq!(num_dropped.load(Ordering::SeqCst), 0);
        open.send(()).unwrap();
        until("what the dropped stream's work needed is let go", || {
            drop(lab.device.alloc(16).unwrap());
            num_dropped.load(Ordering::SeqCst) == 1
        });
        assert_eq!(lab.read(&sum), [1; 4096]);
        assert_eq!(lab.device.alloc(4096).unwrap().addr(), ones_addr, "from the list again");
    });
    assert_eq!(faults(&stderr), [""; 0]);
}

#[test]
fn what_has_run_is_let_go_without_a_synchronisation() {
    in_child(&[], || {
        let lab = Lab::open();
        let num_dropped = Arc::new(AtomicUsize::new(0));
        let launch = |num: usize| {
            for _ in 0..num {
                nothing(&*lab.stream, &(Arc::new(Dropped(Arc::clone(&num_dropped))) as Keep)).unwrap();
            }
        };
        launch(64);
        lab.stream.record().unwrap().wait(soon()).unwrap();
        launch(64);
        // Those before the event that has fired, and those behind it or not.
        let num = num_dropped.load(Ordering::SeqCst);
        assert!(num == 64 || num == 128, "{num}");
        assert_eq!(lab.stream.num_host_syncs(), 0);
        lab.synchronize().unwrap();
        assert_eq!(num_dropped.load(Ordering::SeqCst), 128);
        // What all of many launches need is kept once, so no event is spent on it.
        let one: Keep = Arc::new(Dropped(Arc::clone(&num_dropped)));
        (0..200).for_each(|_| nothing(&*lab.stream, &one).unwrap());
        assert_eq!(Arc::strong_count(&one), 2);
    });
}
