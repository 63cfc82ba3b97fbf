//! A peer's process, as NIXL knows it: connection and memory. It is forgotten when nothing is on its way there any more.

use std::sync::atomic::{AtomicBool, Ordering};

use nixl_sys::{Agent, NixlError};

use crate::transfer::engine::{EngineError, EngineProblem};

use super::call::{code, foreign, problem};
use super::memory::Place;
use super::metadata::Metadata;

/// A connection to a peer's process. The peer's entry and every batch to it share it: NIXL must not forget where a batch
/// goes while that batch is in flight.
pub(super) struct Remote {
    agent: Agent,
    /// The peer's own name.
    pub(super) name: Box<str>,
    /// Its process, in NIXL's words.
    pub(super) agent_name: Box<str>,
    /// What its memory is.
    pub(super) place: Place,
    /// A batch failed: nothing goes through any more.
    failed: AtomicBool,
    /// NIXL has forgotten it.
    forgotten: AtomicBool,
}

impl Remote {
    /// Tells NIXL of a process that it does not know.
    pub(super) fn load(agent: &Agent, metadata: &Metadata) -> Result<Self, EngineError> {
        let remote = Self {
            agent: agent.clone(),
            name: metadata.name.as_str().into(),
            agent_name: metadata.agent.as_str().into(),
            place: Place { memory: metadata.memory, device_id: metadata.device_id },
            failed: AtomicBool::new(false),
            forgotten: AtomicBool::new(false),
        };
        // Where this fails, the drop makes NIXL forget what it has understood.
        remote.load_more(metadata)?;
        Ok(remote)
    }

    /// Tells NIXL of further memory of the process.
    pub(super) fn load_more(&self, metadata: &Metadata) -> Result<(), EngineError> {
        let loaded = self.agent.load_remote_md(&metadata.nixl);
        let loaded = loaded.map_err(|error| self.not_loaded(&error))?;
        if *loaded != *self.agent_name {
            let bytes = metadata.nixl.len();
            return Err(problem("add_peer", EngineProblem::BadMetadata { bytes }).of(&self.name));
        }
        Ok(())
    }

    /// The metadata are whole, so what is left is the way to the peer, unless NIXL has another word for it.
    fn not_loaded(&self, error: &NixlError) -> EngineError {
        let error = match error {
            NixlError::BackendError => problem("add_peer", EngineProblem::PeerLost { code: code(error) }),
            other => foreign("add_peer", other),
        };
        error.of(&self.name)
    }

    /// Whether a batch has failed.
    pub(super) fn has_failed(&self) -> bool {
        // Relaxed: read and written under the engine's lock, here and below.
        self.failed.load(Ordering::Relaxed)
    }

    /// Notes that a batch failed.
    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Makes NIXL forget the process. No batch to it is in flight.
    pub(super) fn forget(&self) {
        if !self.forgotten.swap(true, Ordering::Relaxed) {
            // It fails only where NIXL does not know the process, which is what is wanted.
            let _ = self.agent.invalidate_remote_md(&self.agent_name);
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.forget();
    }
}
