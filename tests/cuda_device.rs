//! The CUDA device on the virtual GPU: memory, streams, graphs, which GPU is taken, and what the driver refuses.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "cuda_device/choice.rs"]
mod choice;
#[path = "cuda_device/failures.rs"]
mod failures;
#[path = "cuda_device/gather.rs"]
mod gather;
#[path = "cuda_device/graphs.rs"]
mod graphs;
#[path = "cuda_device/keeps.rs"]
mod keeps;
#[path = "cuda_device/lab.rs"]
mod lab;
#[path = "cuda_device/memory.rs"]
mod memory;
#[path = "cuda_device/streams.rs"]
mod streams;
#[path = "support/vgpu.rs"]
mod vgpu;
#[path = "cuda_device/waits.rs"]
mod waits;
