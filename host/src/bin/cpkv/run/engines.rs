//! The engines of a run: one for each rank, one for each decode worker.

use std::sync::Arc;

#[cfg(feature = "nixl")]
use cpkv::transfer::engine::nixl::{self, NixlEngine, NixlEnvironment, NixlOptions};
use cpkv::transfer::{EndpointOptions, Fabric, TransferEngine};

use super::args::EngineArg;
use crate::error::RunError;

/// Where engines come from.
pub(crate) enum Engines {
    /// Endpoints of one process.
    InProcess(Fabric),
    /// NIXL.
    Nixl,
}

impl Engines {
    /// Those that the run uses.
    pub(crate) fn new(engine: EngineArg) -> Self {
        match engine {
            EngineArg::InProcess => Self::InProcess(Fabric::new()),
            EngineArg::Nixl => Self::Nixl,
        }
    }

    /// Whether engines can be opened here, as far as that is seen without one.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        match self {
            Self::InProcess(_) => Ok(()),
            Self::Nixl => find_nixl(),
        }
    }

    /// The engine of a rank or worker, called `name` in errors; its own thread runs `niceness` below this one.
    pub(crate) fn open(&self, name: &str, niceness: u8) -> Result<Arc<dyn TransferEngine>, RunError> {
        match self {
            Self::InProcess(fabric) => {
                let options = EndpointOptions { log_submits: false, ..EndpointOptions::default() };
                Ok(Arc::new(fabric.endpoint_with(name, options)?))
            }
            Self::Nixl => open_nixl(name, niceness),
        }
    }
}

/// Settings that NIXL's transport reads when it is loaded. Called first in `main`.
#[cfg(feature = "nixl")]
pub(crate) fn prepare_engine() {
    // Decode workers are on this machine. Over shared memory a submit would copy, and there would be nothing to overlap.
    let environment = NixlEnvironment { loopback: true, tcp_only: true };
    // SAFETY: called at the start of `main`, when the process has one thread.
    unsafe { environment.set() };
}

/// Settings that NIXL's transport reads when it is loaded.
#[cfg(not(feature = "nixl"))]
pub(crate) const fn prepare_engine() {}

/// Ends the process where it has used NIXL, past what would make it crash.
#[cfg(feature = "nixl")]
pub(crate) fn leave(code: u8) {
    nixl::exit(i32::from(code));
}

/// Ends the process where it has used NIXL.
#[cfg(not(feature = "nixl"))]
pub(crate) const fn leave(_code: u8) {}

#[cfg(feature = "nixl")]
fn find_nixl() -> Result<(), RunError> {
    Ok(nixl::find_library(None).map(drop)?)
}

#[cfg(not(feature = "nixl"))]
const fn find_nixl() -> Result<(), RunError> {
    Err(RunError::NoNixl)
}

#[cfg(feature = "nixl")]
fn open_nixl(name: &str, niceness: u8) -> Result<Arc<dyn TransferEngine>, RunError> {
    Ok(Arc::new(NixlEngine::open(NixlOptions { niceness, ..NixlOptions::new(name) })?))
}

#[cfg(not(feature = "nixl"))]
fn open_nixl(_name: &str, _niceness: u8) -> Result<Arc<dyn TransferEngine>, RunError> {
    Err(RunError::NoNixl)
}
