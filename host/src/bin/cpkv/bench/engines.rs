//! The transfer engines that are measured: pairs of endpoints in this process.

use std::sync::Arc;

#[cfg(feature = "nixl")]
use cpkv::transfer::engine::nixl::{NixlEngine, NixlOptions};
use cpkv::transfer::{EndpointOptions, EngineError, Fabric, TransferEngine};

use super::report::LeftOut;

/// An engine that sends, and one that is written to.
pub(crate) struct EnginePair {
    pub(crate) name: &'static str,
    pub(crate) sender: Arc<dyn TransferEngine>,
    pub(crate) receiver: Arc<dyn TransferEngine>,
}

/// The engine that is always there.
pub(crate) fn in_process() -> Result<EnginePair, EngineError> {
    let fabric = Fabric::new();
    let endpoint = |name| {
        let options = EndpointOptions { log_submits: false, ..EndpointOptions::default() };
        fabric.endpoint_with(name, options)
    };
    let (sender, receiver) = (Arc::new(endpoint("bench sender")?), Arc::new(endpoint("bench receiver")?));
    Ok(EnginePair { name: "in-process", sender, receiver })
}

/// NIXL, where this build and this machine have it.
#[cfg(feature = "nixl")]
pub(crate) fn nixl() -> Result<EnginePair, LeftOut> {
    let open = |name| NixlEngine::open(NixlOptions::new(name));
    let pair =
        open("bench sender").and_then(|sender| Ok((Arc::new(sender), Arc::new(open("bench receiver")?))));
    let (sender, receiver) = pair.map_err(|error| LeftOut::new("transfer over NIXL", error.to_string()))?;
    Ok(EnginePair { name: "nixl", sender, receiver })
}

/// NIXL, where this build and this machine have it.
#[cfg(not(feature = "nixl"))]
pub(crate) fn nixl() -> Result<EnginePair, LeftOut> {
    Err(LeftOut::new("transfer over NIXL", "this build has no NIXL: build with `--features nixl`"))
}
