//! The kernels of cpkv: the symmetric counting barrier, the slot-dense gather and the fills.
//!
//! Each body is written once. What differs between machines (who am I, wide copies, system-scope atomics, the
//! clock) is behind `arch`. Host and kernel share one definition of everything they exchange: [`abi`].

#![no_std]

pub mod abi;
mod arch;
mod barrier;
mod fill_index_k;
mod fill_pages;
mod fill_rows;
pub mod fp8;
mod gather;
mod half;
mod kernel;
mod probe;
pub mod signal;
mod zero;

pub use arch::now_ns;
pub use kernel::Kernel;
