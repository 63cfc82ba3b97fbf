//! How fast the kernels' bodies move pages and rows on the CPU: one thread, its own memory, launched on no stream.
//!
//! Baseline, in the same run and of the same memory: `baseline_memcpy`, one copy of as many bytes as the kernel writes.
//! Unit: bytes written a second (GiB/s).
//!
//! Sizes: about 64 MiB a run, whole pages of 128 tokens, so that every page size writes the same bytes. Every kernel's bytes
//! are looked at before it is timed.
//!
//! The index-K fill reads 256 B of bf16 for each 132 B that it writes, and converts them: it is no copy, and slower than one.
//! The spec has no targets for the CPU.

#[path = "support/desk.rs"]
mod desk;

use std::time::Duration;

use cpkv::device::DeviceError;
use cpkv::pages::{BufferKind, BufferSpec};
use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use desk::{Case, Desk, KEY_ROW_BYTES};

const PAGE_SIZES: [u32; 4] = [16, 32, 64, 128];
/// About what a kernel writes at once: more than the caches hold.
const RUN_BYTES: u64 = 64 << 20;

const MLA_FP8: BufferKind = BufferKind::TokenKv { row_bytes: 656 };
const MLA_BF16: BufferKind = BufferKind::TokenKv { row_bytes: 1152 };

/// A kernel's case for pages of one kind.
type Make = fn(&Desk, BufferSpec) -> Result<Case, DeviceError>;

const fn name(kind: BufferKind) -> &'static str {
    match kind {
        BufferKind::TokenKv { row_bytes: 656 } => "token_kv_656_bytes",
        BufferKind::TokenKv { .. } => "token_kv_1152_bytes",
        BufferKind::IndexK => "index_k_132_bytes",
    }
}

fn spec(kind: BufferKind, page_size: u32) -> BufferSpec {
    BufferSpec::new(kind, page_size).unwrap_or_else(|error| panic!("{error}"))
}

/// Measures `make`'s kernel for pages of each size, and the baseline.
fn measure(criterion: &mut Criterion, kernel: &str, kind: BufferKind, make: Make) {
    let name = format!("{kernel}/{}", name(kind));
    let page_bytes = spec(kind, PAGE_SIZES[3]).page_bytes();
    let bytes = RUN_BYTES / page_bytes * page_bytes;
    let num_rows = bytes / spec(kind, PAGE_SIZES[3]).row_bytes();
    let src_bytes = if kernel == "fill_index_k" { num_rows * KEY_ROW_BYTES } else { bytes };
    let mut desk = None;
    let mut group = criterion.benchmark_group(&name);
    group.throughput(Throughput::Bytes(bytes)).sampling_mode(SamplingMode::Flat);
    // Memory is had only where one of the benches was asked for.
    let new_desk = || Desk::new(src_bytes, bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    for page_size in PAGE_SIZES {
        let mut case = None;
        group.bench_function(format!("pages_of_{page_size}_tokens"), |bencher| {
            let desk = desk.get_or_insert_with(new_desk);
            let case = case.get_or_insert_with(|| exact(&name, make(desk, spec(kind, page_size))));
            bencher.iter(|| case.run());
        });
    }
    group.bench_function("baseline_memcpy", |bencher| {
        let desk = desk.get_or_insert_with(new_desk);
        bencher.iter(|| desk.memcpy());
    });
    group.finish();
}

/// The case, which has been seen to write the right bytes.
fn exact(name: &str, made: Result<Case, DeviceError>) -> Case {
    let case = made.unwrap_or_else(|error| panic!("{name}: {error}"));
    let is_exact = case.is_exact().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(is_exact, "{name}: a kernel that writes other bytes is not worth timing");
    case
}

fn gather(criterion: &mut Criterion) {
    for kind in [MLA_FP8, MLA_BF16, BufferKind::IndexK] {
        measure(criterion, "gather", kind, Desk::gather);
    }
}

fn fills(criterion: &mut Criterion) {
    for kind in [MLA_FP8, MLA_BF16] {
        measure(criterion, "fill_staging_rows", kind, Desk::fill_staging_rows);
        measure(criterion, "fill_rows_apart", kind, Desk::fill_rows_apart);
    }
    measure(criterion, "fill_index_k", BufferKind::IndexK, Desk::fill_index_k);
    for kind in [MLA_FP8, MLA_BF16, BufferKind::IndexK] {
        measure(criterion, "fill_pages", kind, Desk::fill_pages);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = gather, fills
}
criterion_main!(benches);
