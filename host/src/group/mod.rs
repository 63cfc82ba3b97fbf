//! Groups.
mod bootstrap;
mod consensus;
pub use bootstrap::{Bootstrap, BootstrapError, MAX_BLOB_BYTES, Transport};
pub use consensus::majority;
