//! NIXL: the engine over InfiniBand, RoCE, shared memory and TCP, by its UCX backend.
//!
//! The library is loaded when the first engine is opened, and is not needed to build. A program calls
//! [`NixlEnvironment::set`] at the start of `main`, and leaves with [`exit()`].
//!
//! # What the engine adds to NIXL
//!
//! * Peers keep their names, and each process has another one in NIXL: a peer that is started anew is another process to
//!   it, and what is on its way to the former one is not touched.
//! * NIXL reports a peer that died. One that is frozen it waits for without end: deadlines are the caller's.
//! * NIXL cannot take back a batch. What it reads stays registered and alive until it ends, whoever gives it up.
//! * Over shared memory of one machine a submit copies before it returns. Over a network it returns at once.
//! * NIXL's own lines about errors go to standard error (`NIXL_LOG_LEVEL`, `UCX_LOG_LEVEL`).

mod batch;
mod call;
mod engine;
mod environment;
mod exit;
mod library;
mod memory;
mod metadata;
mod options;
mod remote;
mod state;

pub use engine::{NixlEngine, find_library};
pub use environment::NixlEnvironment;
pub use exit::exit;
pub use library::LIBRARY_VARIABLE;
pub use options::NixlOptions;
