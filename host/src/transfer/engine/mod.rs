//! Transfer engines: what writes this process's memory into a peer's, one-sided.
//!
//! # Life of an engine
//!
//! 1. Memory is registered: [`TransferEngine::register`].
//! 2. Processes exchange [`TransferEngine::metadata`] and give it to [`TransferEngine::add_peer`].
//! 3. [`TransferEngine::submit`] starts a batch of writes and returns; [`TransferEngine::poll`] says when it is done.
//! 4. A peer that was started anew is added again; its old [`PeerId`] is refused from then on.

mod callbacks;
mod error;
pub(in crate::transfer) mod guarded;
mod in_process;
#[cfg(feature = "nixl")]
pub mod nixl;
mod registry;

use crate::deadline::Deadline;
use crate::device::DeviceBuffer;

use super::blocks::Block;
pub use callbacks::{
    AbandonFn, AddPeerFn, CallbackEngine, CallbackFailure, EngineCallbacks, MetadataFn, PollFn, RegisterFn,
    RemovePeerFn, SubmitFn, UnregisterFn,
};
pub use error::{EngineError, EngineProblem};
pub use in_process::{Counters, EndpointOptions, Fabric, Faults, InProcessEngine, SubmitRecord};

/// A peer of one engine, by the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// A batch of writes of one engine: never the same twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// Registered memory of one engine: never the same twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistrationId(pub u64);

/// How far a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchState {
    /// It may still read its source memory, and write its destination.
    InFlight,
    /// It is complete, and touches neither any more (but see [`Delivery`]).
    Done,
}

/// What a batch that is done says of the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All bytes are there.
    BeforeCompletion,
    /// Bytes may arrive later; the last block of a batch arrives after the others. The sources are not read any more.
    InOrder,
}

/// What an engine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// `nixl`, `in-process`, `callbacks`.
    pub name: &'static str,
    /// Version and transport, for people; may be empty.
    pub details: String,
    /// What completion means.
    pub delivery: Delivery,
}

/// An engine. All calls may come from any thread.
pub trait TransferEngine: Send + Sync {
    /// What it is.
    fn info(&self) -> EngineInfo;

    /// Registers `memory`, as source of own batches and as destination of peers' ones, and keeps it alive.
    ///
    /// # Errors
    /// [`EngineError`].
    fn register(&self, memory: &DeviceBuffer) -> Result<RegistrationId, EngineError>;

    /// Ends a registration. No batch that touches the memory is in flight.
    ///
    /// # Errors
    /// [`EngineProblem::UnknownRegistration`]; the engine's own.
    fn unregister(&self, registration: RegistrationId) -> Result<(), EngineError>;

    /// What peers need to write into the memory registered so far.
    ///
    /// # Errors
    /// [`EngineError`].
    fn metadata(&self) -> Result<Vec<u8>, EngineError>;

    /// Makes the peer known whose [`TransferEngine::metadata`] this is. A peer of the same name is replaced: batches to its
    /// old id fail.
    ///
    /// # Errors
    /// [`EngineError`].
    fn add_peer(&self, metadata: &[u8]) -> Result<PeerId, EngineError>;

    /// Forgets a peer.
    ///
    /// # Errors
    /// [`EngineProblem::UnknownPeer`]; the engine's own.
    fn remove_peer(&self, peer: PeerId) -> Result<(), EngineError>;

    /// Starts writing every block into the memory of `peer`. All or nothing: after an error nothing of it is in flight. A
    /// batch of which that is not certain is accepted, and fails when it is asked about.
    /// May copy before it returns; waits for no peer.
    ///
    /// # Errors
    /// [`EngineProblem::NotRegistered`] for a source outside registered memory; [`EngineProblem::Refused`] for a
    /// destination outside the peer's; [`EngineProblem::PeerLost`]; the engine's own.
    fn submit(&self, peer: PeerId, blocks: &[Block]) -> Result<BatchId, EngineError>;

    /// How far a batch is. Once [`BatchState::Done`] or an error was returned the batch is forgotten.
    ///
    /// # Errors
    /// The batch failed: some of its bytes may have been written, or may be yet. [`EngineProblem::UnknownBatch`].
    fn poll(&self, batch: BatchId) -> Result<BatchState, EngineError>;

    /// Gives up a batch that is in flight: it is forgotten here, and may write for as long as the engine pleases. Returns
    /// whether it is known to be quiet: to touch neither side's memory any more.
    fn abandon(&self, batch: BatchId) -> bool;

    /// Waits until a batch is done.
    ///
    /// # Errors
    /// As [`TransferEngine::poll`]; [`EngineProblem::Deadline`] past the deadline, with the batch still in flight.
    fn wait(&self, batch: BatchId, deadline: Deadline) -> Result<(), EngineError> {
        while self.poll(batch)? == BatchState::InFlight {
            if deadline.expired() {
                let waited_ms = deadline.waited_ms();
                return Err(EngineError::new(
                    self.info().name,
                    "wait",
                    EngineProblem::Deadline { waited_ms },
                ));
            }
            std::thread::sleep(WAIT_POLL.min(deadline.remaining()));
        }
        Ok(())
    }
}

/// How often a waiting host looks.
const WAIT_POLL: std::time::Duration = std::time::Duration::from_micros(50);
