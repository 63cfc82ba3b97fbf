//! cpkv: composes a shared, paged KV cache across the ranks of a context-parallel group, byte for byte.

pub mod collective;
pub mod compose;
pub mod deadline;
pub mod device;
pub mod error;
pub mod group;
pub mod model;
pub mod pages;
pub mod plan;
pub mod symm;
pub mod units;
pub mod verify;
pub mod workload;
