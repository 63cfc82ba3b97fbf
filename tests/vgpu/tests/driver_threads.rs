//! Many threads in one process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod driver_support;

use std::thread;

use cpkv_vgpu::driver::Code;
use cpkv_vgpu::driver::entry::{context, copy, event, memory, set, stream};
use driver_support::Arg::{Long, Word};
use driver_support::*;

#[test]
fn threads_of_one_context_do_not_disturb_each_other() {
    let handle = start();
    let module = load();
    let (count_up, bump, word) = (kernel(module, "count_up"), kernel(module, "bump"), alloc(4));
    ok(cu!(set::cuMemsetD32_v2(word, 0, 1)));
    ok(sync(0));
    let threads: Vec<_> = (0..4_u32)
        .map(|index| {
            thread::spawn(move || {
                ok(cu!(context::cuCtxSetCurrent(handle)));
                let (stream, other, event) = (new_stream(1), new_stream(1), new_event());
                for round in 0..40_u32 {
                    let value = index * 1000 + round;
                    let (from, to) = (alloc(256), alloc(256));
                    ok(run(count_up, 2, 32, stream, &[Long(from), Word(value), Word(64)]));
                    ok(cu!(event::cuEventRecord(event, stream)));
                    ok(cu!(stream::cuStreamWaitEvent(other, event, 0)));
                    ok(cu!(copy::cuMemcpyDtoDAsync_v2(to, from, 256, other)));
                    ok(run(bump, 1, 1, other, &[Long(word), Word(1)]));
                    ok(sync(other));
                    assert_eq!(words(to, 64), (value..value + 64).collect::<Vec<_>>());
                    ok(cu!(memory::cuMemFree_v2(from)));
                    ok(cu!(memory::cuMemFree_v2(to)));
                    assert_eq!(download(to, 4), Err(Code::InvalidValue));
                }
                ok(cu!(event::cuEventDestroy_v2(event)));
                ok(cu!(stream::cuStreamDestroy_v2(stream)));
                ok(cu!(stream::cuStreamDestroy_v2(other)));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(words(word, 1), [160]);
    ok(cu!(context::cuCtxDestroy_v2(handle)));
    assert_eq!(download(word, 4), Err(Code::InvalidContext));
}
