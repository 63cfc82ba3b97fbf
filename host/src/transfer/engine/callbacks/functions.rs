//! The functions that the caller brings, and how they are called.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::guarded::message_of;
use super::super::{Delivery, EngineError, EngineProblem};
use super::NAME;

/// Why a function of the caller failed, with the code of the caller's engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackFailure {
    /// The engine failed.
    Failed(i64),
    /// A block lies outside the peer's registered memory.
    Refused(i64),
    /// The peer is gone, or refuses the connection.
    PeerLost(i64),
}

/// Starts writing, and returns at once: the peer, and of each block the address here, the address there, and the number of
/// bytes (never 0). Gives a handle, which may be any number; after a failure nothing of the batch is in flight.
pub type SubmitFn = Box<dyn Fn(&[u8], &[u64], &[u64], &[u64]) -> Result<u64, CallbackFailure> + Send + Sync>;

/// Says whether the batch of a handle is done, and returns at once. A handle is asked for by one thread at a time, and not
/// again after it was done or had failed.
pub type PollFn = Box<dyn Fn(u64) -> Result<bool, CallbackFailure> + Send + Sync>;

/// Is told that a handle in flight is not asked for again; says whether its batch is known to be quiet.
pub type AbandonFn = Box<dyn Fn(u64) -> bool + Send + Sync>;

/// Registers memory, by address and bytes.
pub type RegisterFn = Box<dyn Fn(u64, u64) -> Result<(), CallbackFailure> + Send + Sync>;

/// Ends the registration of memory, by address and bytes.
pub type UnregisterFn = Box<dyn Fn(u64, u64) -> Result<(), CallbackFailure> + Send + Sync>;

/// Gives what a peer names this engine by: a session id, or more.
pub type MetadataFn = Box<dyn Fn() -> Result<Vec<u8>, CallbackFailure> + Send + Sync>;

/// Is told of a peer, by its metadata.
pub type AddPeerFn = Box<dyn Fn(&[u8]) -> Result<(), CallbackFailure> + Send + Sync>;

/// Is told that a peer was removed, by its metadata.
pub type RemovePeerFn = Box<dyn Fn(&[u8]) -> Result<(), CallbackFailure> + Send + Sync>;

/// An engine of the caller's. Every function may be called from any thread, and several at a time.
pub struct EngineCallbacks {
    /// What the engine is, for people.
    pub details: String,
    /// What completion means there.
    pub delivery: Delivery,
    /// Starts a batch.
    pub submit: SubmitFn,
    /// Asks for a batch.
    pub poll: PollFn,
    /// Gives up a batch. Without it, a batch that is given up is never known to be quiet.
    pub abandon: Option<AbandonFn>,
    /// Registers memory. Without it, the engine has all memory registered already.
    pub register: Option<RegisterFn>,
    /// Ends a registration.
    pub unregister: Option<UnregisterFn>,
    /// Names this engine to peers. Without it, the caller exchanges the names itself.
    pub metadata: Option<MetadataFn>,
    /// Takes up a peer. Without it, every name is taken for a peer's.
    pub add_peer: Option<AddPeerFn>,
    /// Forgets a peer.
    pub remove_peer: Option<RemovePeerFn>,
}

impl EngineCallbacks {
    /// An engine that has all memory registered, and whose peers' names the caller exchanges.
    pub fn new(submit: SubmitFn, poll: PollFn) -> Self {
        Self {
            details: String::new(),
            delivery: Delivery::BeforeCompletion,
            submit,
            poll,
            abandon: None,
            register: None,
            unregister: None,
            metadata: None,
            add_peer: None,
            remove_peer: None,
        }
    }
}

impl fmt::Debug for EngineCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineCallbacks")
            .field("details", &self.details)
            .field("delivery", &self.delivery)
            .finish_non_exhaustive()
    }
}

/// The code of a function that panicked: none of the engine's.
pub(super) const PANICKED: i64 = i64::MIN;

/// Calls a function of the caller that concerns no blocks.
pub(super) fn guarded<T>(
    call: &'static str,
    function: impl FnOnce() -> Result<T, CallbackFailure>,
) -> Result<T, EngineError> {
    guarded_blocks(call, (0, 0), function)
}

/// As [`guarded`], for blocks of which the first goes to `addr`, `bytes` in all.
pub(super) fn guarded_blocks<T>(
    call: &'static str,
    (addr, bytes): (u64, u64),
    function: impl FnOnce() -> Result<T, CallbackFailure>,
) -> Result<T, EngineError> {
    let problem = match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(CallbackFailure::Failed(code))) => {
            EngineProblem::Foreign { code, reason: "a code of the caller's function".into() }
        }
        Ok(Err(CallbackFailure::Refused(code))) => EngineProblem::Refused { addr, bytes, code },
        Ok(Err(CallbackFailure::PeerLost(code))) => EngineProblem::PeerLost { code },
        Err(panic) => {
            let reason = format!("the caller's function panicked: {}", message_of(&*panic)).into();
            EngineProblem::Foreign { code: PANICKED, reason }
        }
    };
    Err(EngineError::new(NAME, call, problem))
}

/// Whether the caller's function panicked.
pub(super) fn is_panic(error: &EngineError) -> bool {
    matches!(error.problem, EngineProblem::Foreign { code: PANICKED, .. })
}
