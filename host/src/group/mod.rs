//! The group: who the ranks are, how they exchange small blobs at set-up, the barrier, and the faults that end it.

mod bootstrap;
mod callbacks;
mod consensus;
mod frame;
mod handle;
#[cfg(feature = "mpi")]
pub mod mpi;
mod phase;
pub(crate) mod rendezvous;
mod signals;
mod threads;
pub(crate) mod turn;

pub use bootstrap::{Bootstrap, BootstrapError, MAX_BLOB_BYTES, Transport};
pub use callbacks::{AllGatherFn, CallbackBootstrap};
pub use consensus::majority;
pub use handle::{Group, GroupError, GroupOptions, SignalRegion};
pub use phase::Fault;
pub use threads::ThreadBootstrap;
