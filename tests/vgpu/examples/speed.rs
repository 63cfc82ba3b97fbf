//! Measures the interpreter, in processor time: a loop of arithmetic, and a copy in 16-byte words.
//! `cargo run --release -p cpkv-vgpu --example speed`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measurement may panic")]

#[path = "../tests/support/mod.rs"]
mod support;

use cpkv_kernels::abi::{Descriptor, GatherParams, HalfSelect};
use cpkv_vgpu::exec::{Execution, Rules};
use cpkv_vgpu::machine::Sharing;
use support::shipped::shipped;
use support::{TestMemory, bytes_of, finish, kernel, launch};

fn cpu_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn arithmetic() {
    let module = kernel(
        "mov.b64 %d1, 2000000;\nmov.b32 %r1, 1;\n\
         L: add.s64 %d1, %d1, -1;\nxor.b32 %r1, %r1, 77;\nshl.b32 %r2, %r1, 3;\nadd.s32 %r3, %r2, %r1;\n\
         setp.ne.b64 %p1, %d1, 0;\n@%p1 bra L;",
    );
    let memory = TestMemory::default();
    let launch = launch(1, 1, bytes_of(&[0u64, 0]));
    let mut execution = Execution::new(module, "k", launch, Rules::default()).unwrap();
    let start = cpu_seconds();
    finish(&mut execution, &memory).unwrap();
    let s = cpu_seconds() - start;
    println!("{:.0} M instructions/s", execution.num_instructions() as f64 / s / 1e6);
}

fn copy() {
    let module = kernel(
        "mov.b64 %d1, 65536;\n\
         L: ld.global.L1::no_allocate.v4.u32 {%r1, %r2, %r3, %r4}, [%b];\n\
         st.global.v4.u32 [%a], {%r1, %r2, %r3, %r4};\nadd.s64 %a, %a, 16;\nadd.s64 %b, %b, 16;\n\
         add.s64 %d1, %d1, -1;\nsetp.ne.b64 %p1, %d1, 0;\n@%p1 bra L;",
    );
    for sharing in [Sharing::Private, Sharing::Peer] {
        let mut memory = TestMemory::default();
        let a = memory.allocate(1 << 20, sharing);
        let b = memory.allocate(1 << 20, sharing);
        let mut s = 0.0;
        for _ in 0..10 {
            let launch = launch(1, 1, bytes_of(&[a, b]));
            let mut execution = Execution::new(module.clone(), "k", launch, Rules::default()).unwrap();
            let start = cpu_seconds();
            finish(&mut execution, &memory).unwrap();
            s += cpu_seconds() - start;
        }
        println!("{sharing:?}: {:.0} MB/s", 10.0 * 1.048 / s);
    }
}

/// The gathers that ship, where `CPKV_VGPU_PTX` names them: 16 blocks, 64 pages of 128 KiB.
fn gathers() {
    const PAGE: usize = 128 * 1024;
    let module = shipped();
    for name in ["cpkv_gather", "cpkv_gather_bulk"] {
        let mut memory = TestMemory::default();
        let base = memory.holding(&vec![7; 8 * PAGE], Sharing::Peer);
        let dst = memory.allocate(64 * PAGE, Sharing::Private);
        let descriptors: Vec<_> = (0..64).map(|slot| Descriptor { base: 0, page: slot % 8 }).collect();
        let whole = HalfSelect { state: 0, stride: 0, passed: 0 };
        let params = GatherParams {
            dst,
            descriptors: memory.table(&descriptors),
            bases: memory.table(&[base]),
            pool_offset: 0,
            src_half: whole,
            dst_half: whole,
            page_bytes: PAGE as u64,
            poison: 0,
            num_slots: 64,
            first_halved: 1,
        };
        let mut launch = launch(16, 256, bytes_of(&[params]));
        launch.dynamic_shared_bytes = 128 * 1024;
        let start = cpu_seconds();
        let mut execution = Execution::new(module.clone(), name, launch, Rules::default()).unwrap();
        let started = cpu_seconds();
        finish(&mut execution, &memory).unwrap();
        let s = cpu_seconds() - started;
        println!(
            "{name}: {:.0} MB/s, {:.1} ms to set up",
            64.0 * PAGE as f64 / s / 1e6,
            (started - start) * 1e3
        );
    }
}

fn main() {
    arithmetic();
    copy();
    gathers();
}
