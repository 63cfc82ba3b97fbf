//! The kernels of cpkv: the symmetric counting barrier, the slot-dense gather and the fills.
//!
//! Each body is written once. What differs between machines (who am I, wide copies, system-scope atomics, the
//! clock) is behind `arch`. Host and kernel share one definition of everything they exchange: [`abi`].

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch, stdarch_nvptx))]

pub mod abi;
mod add_bytes;
mod arch;
mod barrier;
#[cfg(target_arch = "nvptx64")]
mod entry;
mod fill_index_k;
mod fill_pages;
mod fill_rows;
pub mod fp8;
mod gather;
mod gather_bulk;
mod half;
mod kernel;
mod poison;
mod probe;
pub mod signal;
mod zero;

pub use arch::now_ns;
pub use gather_bulk::{GATHER_BULK_LANES, GATHER_BULK_SHARED_BYTES};
pub use kernel::Kernel;
