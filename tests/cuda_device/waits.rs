//! Waits for kernels that are slow or never end: the deadline comes, and says what runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cpkv::deadline::Deadline;
use cpkv::device::{Device, DeviceError, Keep};
use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{BarrierParams, GroupState};
use cpkv_kernels::signal::{FaultRecord, SignalPad};

use crate::lab::{Lab, add, nothing, soon, within_ms};
use crate::vgpu::in_child;

#[track_caller]
fn expect_deadline(outcome: Result<(), DeviceError>, what: &str) {
    let error = outcome.unwrap_err();
    let DeviceError::Deadline { call: "synchronize", waited_ms, running } = error else { panic!("{error}") };
    assert_eq!(running, what);
    assert!((100..20_000).contains(&waited_ms), "{waited_ms}");
    assert!(error.to_string().contains("Raise the timeout"), "{error}");
}

#[test]
fn a_kernel_that_never_ends_is_named_at_the_deadline_and_holds_up_no_other_stream() {
    // The first one warms up.
    in_child(&[("CPKV_VGPU_FAULTS", "stuck=cpkv_zero:2")], || {
        let lab = Lab::open();
        // A stuck kernel is waited for when the context goes.
        std::mem::forget(lab.device.clone());
        let (ones, sum) = (lab.holding(&[1; 64]), lab.device.alloc(64).unwrap());
        lab.nothing().unwrap();
        expect_deadline(lab.stream.synchronize(within_ms(100)), "zero");
        let mut bytes = [0; 64];
        expect_deadline(lab.stream.download(&sum, &mut bytes, within_ms(100)), "zero");
        let other = lab.device.stream().unwrap();
        add(&*other, &sum, &ones, Arc::new(())).unwrap();
        other.synchronize(soon()).unwrap();
        assert_eq!(lab.read(&sum), [1; 64]);
        let begun = Instant::now();
        drop(lab.stream);
        assert!(begun.elapsed() < Duration::from_secs(20));
    });
}

#[test]
fn a_barrier_that_waits_is_named_though_other_work_was_queued_behind_it() {
    in_child(&[], || {
        let lab = Lab::open();
        let pads: Vec<_> = (0..2).map(|_| lab.device.alloc(size_of::<SignalPad>() as u64).unwrap()).collect();
        let table: Vec<u8> = pads.iter().flat_map(|pad| pad.addr().to_le_bytes()).collect();
        let table = lab.holding(&table);
        let state = lab.device.alloc(size_of::<GroupState>() as u64).unwrap();
        let status = lab.device.alloc_host(size_of::<FaultRecord>() as u64).unwrap();
        let barrier = Kernel::Barrier(BarrierParams {
            pads: table.addr(),
            state: state.addr(),
            status: status.addr(),
            timing: 0,
            timeout_ns: 3_000_000_000,
            rank: 0,
            num_ranks: 2,
            num_spins: 0,
            tag: 0,
        });
        let keep: Keep = Arc::new((pads, table, state, status));
        // SAFETY: all addresses live in `keep`; the other rank never comes, so its pad is written here alone.
        unsafe { lab.stream.launch(barrier, &keep) }.unwrap();
        nothing(&*lab.stream, &keep).unwrap();
        expect_deadline(lab.stream.synchronize(within_ms(100)), "barrier");
        // The barrier's own deadline ends it.
        lab.synchronize().unwrap();
    });
}

#[test]
fn a_slow_kernel_is_waited_for_as_long_as_the_deadline_allows() {
    in_child(&[("CPKV_VGPU_FAULTS", "slow=1200000,slow-host=1200000")], || {
        let lab = Lab::open();
        lab.nothing().unwrap();
        expect_deadline(lab.stream.synchronize(within_ms(100)), "zero");
        lab.synchronize().unwrap();
        lab.stream.host_call("slow call", Box::new(|| Ok(()))).unwrap();
        lab.nothing().unwrap();
        expect_deadline(lab.stream.synchronize(within_ms(100)), "slow call");
        lab.stream.synchronize(Deadline::after(Duration::from_secs(30))).unwrap();
        // A deadline that has passed is no reason not to see that all is done.
        lab.stream.synchronize(within_ms(0)).unwrap();
    });
}
