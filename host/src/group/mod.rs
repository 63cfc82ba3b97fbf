//! The group: who the ranks are, how they exchange small blobs at set-up, the barrier, and the faults that end it.

mod bootstrap;
mod callbacks;
mod consensus;
mod error;
mod frame;
mod gate;
mod handle;
mod local_poison;
#[cfg(feature = "mpi")]
pub mod mpi;
mod options;
#[cfg(test)]
pub(crate) mod parrot;
mod phase;
mod reach;
pub(crate) mod rendezvous;
mod signal_region;
mod signals;
mod threads;
mod timings;
mod together;
pub(crate) mod turn;
mod whole;

pub use bootstrap::{Bootstrap, BootstrapError, MAX_BLOB_BYTES, Transport};
pub use callbacks::{AllGatherFn, CallbackBootstrap};
pub use consensus::majority;
pub use error::GroupError;
pub use gate::PoisonGate;
pub use handle::Group;
pub use options::GroupOptions;
pub use phase::Fault;
pub use signal_region::SignalRegion;
pub use threads::ThreadBootstrap;
pub(crate) use timings::TimedBarrier;
pub use whole::all_gather_whole;
