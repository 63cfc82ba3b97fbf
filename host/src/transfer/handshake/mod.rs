//! The handshake: what prefill and decode compare before a page is sent. Pure.
//!
//! Both sides must have pages of the same bytes: the same version, page size, row formats, buffers and layers. How many
//! ranks or workers a side has, and which of them stores a page, is its own affair, and not compared.

mod error;
mod geometry;
mod hello;
mod hex;
mod inboxes;

pub use error::HandshakeError;
pub use geometry::{BufferGeometry, Geometry, check};
pub use hello::WorkerHello;
pub use inboxes::InboxMemory;
