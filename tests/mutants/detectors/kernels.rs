//! Every kernel on the virtual GPU against its body on the CPU: all memory of a case is compared afterwards, what was
//! only read and guards around it included.

use std::sync::Arc;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::device::cuda::{CudaDevice, GpuChoice};
use cpkv::device::{CpuDevice, Device, Keep, Stream};

use crate::cases::{self, Case, Piece};
use crate::fixture;

const GUARD: [u8; 256] = [0xA5; 256];
/// No case takes a tenth of it.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn look() {
    let gpu = CudaDevice::open(&GpuChoice::Ordinal(0)).unwrap();
    let (on_gpu, on_cpu) = (gpu.stream().unwrap(), CpuDevice.stream().unwrap());
    for case in cases::all() {
        let (kernel, expected) = execute(&CpuDevice, &*on_cpu, &case);
        let (_, got) = execute(&gpu, &*on_gpu, &case);
        for (piece, (expected, got)) in expected.iter().zip(&got).enumerate() {
            let Some(at) = expected.iter().zip(got).position(|(expected, got)| expected != got) else {
                continue;
            };
            let place = at as i64 - GUARD.len() as i64;
            panic!(
                "{kernel}, {}: memory {piece}, byte {place}: {:#04x} instead of {:#04x}",
                case.name, got[at], expected[at]
            );
        }
    }
}

/// Runs the case on `device`: the kernel's name, and what its memory holds afterwards.
fn execute(device: &dyn Device, stream: &dyn Stream, case: &Case) -> (&'static str, Vec<Vec<u8>>) {
    let mut memory = Vec::new();
    for piece in &case.pieces {
        memory.push(device.alloc((piece.len() + 2 * GUARD.len()) as u64).unwrap());
    }
    let addrs: Vec<u64> = memory.iter().map(|memory| memory.addr() + GUARD.len() as u64).collect();
    for (piece, memory) in case.pieces.iter().zip(&memory) {
        device.write(&[&GUARD[..], &piece.bytes(&addrs), &GUARD].concat(), memory).unwrap();
    }
    let kernel = (case.kernel)(&addrs);
    let keep: Keep = Arc::new(memory.clone());
    // SAFETY: the addresses are those of the case's memory, which `keep` holds and nobody else touches.
    unsafe { stream.launch(kernel, &keep) }.unwrap();
    let done = stream.synchronize(Deadline::after(TIMEOUT));
    done.unwrap_or_else(|error| panic!("{}, {}: {error}", kernel.name(), case.name));
    let mut after: Vec<_> = memory.iter().map(|memory| fixture::read(device, memory)).collect();
    for (piece, after) in case.pieces.iter().zip(&mut after) {
        // Addresses differ between devices: only whether they were changed counts.
        if let Piece::Addresses(_) = piece {
            let bytes = piece.bytes(&addrs);
            assert!(after[GUARD.len()..].starts_with(&bytes), "a table of addresses was overwritten");
            after[GUARD.len()..GUARD.len() + bytes.len()].fill(0);
        }
    }
    for &(piece, at) in &case.durations {
        let range = GUARD.len() + at..GUARD.len() + at + 8;
        let ns = u64::from_le_bytes(after[piece][range.clone()].try_into().unwrap());
        assert!(ns == 0 || ns >= cases::TIMEOUT_NS, "gave up after {ns} ns of {}", cases::TIMEOUT_NS);
        after[piece][range].fill(u8::from(ns != 0));
    }
    (kernel.name(), after)
}
