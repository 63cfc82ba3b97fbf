//! Why an engine could not do something: the call, the peer, and the engine's own code.

use thiserror::Error;

/// An engine's error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{engine} engine, {call}{}: {problem}", of_peer(peer.as_deref()))]
pub struct EngineError {
    /// The engine.
    pub engine: &'static str,
    /// What it was asked to do.
    pub call: &'static str,
    /// The peer, by its own name, where one is concerned.
    pub peer: Option<Box<str>>,
    /// Why it did not.
    pub problem: EngineProblem,
}

fn of_peer(peer: Option<&str>) -> String {
    peer.map_or(String::new(), |peer| format!(", peer {peer}"))
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EngineProblem {
    /// The engine cannot be had on this machine.
    #[error("{reason}")]
    Unavailable {
        /// Why, and what to do.
        reason: Box<str>,
    },
    /// No such peer, or one that was replaced or removed.
    #[error("no such peer: it was removed, or added anew under another id")]
    UnknownPeer,
    /// No such batch, or its end was told before.
    #[error("no such batch: its end was told already")]
    UnknownBatch,
    /// No such registration.
    #[error("no such registration")]
    UnknownRegistration,
    /// Source memory that was not registered.
    #[error("{bytes} bytes at {addr:#x} are not registered here: register the whole pool first")]
    NotRegistered {
        /// Start, in this process.
        addr: u64,
        /// Length.
        bytes: u64,
    },
    /// Memory of a kind that the engine does not reach.
    #[error("it does not reach {kind} memory")]
    MemoryKind {
        /// The kind.
        kind: &'static str,
    },
    /// The peer's metadata are not of this engine, or damaged.
    #[error("the peer's metadata ({bytes} bytes) are not of this engine, or damaged")]
    BadMetadata {
        /// Their length.
        bytes: usize,
    },
    /// The engine or the peer refused the blocks: a destination outside the peer's registered memory.
    #[error("refused (code {code}): {bytes} bytes at {addr:#x} of the peer may not be its registered memory")]
    Refused {
        /// The first block's destination.
        addr: u64,
        /// Bytes of all blocks.
        bytes: u64,
        /// The engine's code.
        code: i64,
    },
    /// The peer is gone.
    #[error("the peer is gone or refuses the connection (code {code}): see why it ended, and add it anew")]
    PeerLost {
        /// The engine's code.
        code: i64,
    },
    /// The deadline passed first.
    #[error("not done after {waited_ms} ms: is the peer stopped?")]
    Deadline {
        /// How long, in milliseconds.
        waited_ms: u64,
    },
    /// The engine failed with a code of its own.
    #[error("it failed with code {code}: {reason}")]
    Foreign {
        /// The code.
        code: i64,
        /// What the engine says of it.
        reason: Box<str>,
    },
}

impl EngineError {
    /// An error that concerns no peer.
    pub const fn new(engine: &'static str, call: &'static str, problem: EngineProblem) -> Self {
        Self { engine, call, peer: None, problem }
    }

    /// The error, with the peer it concerns.
    #[must_use]
    pub fn of(mut self, peer: &str) -> Self {
        self.peer = Some(peer.into());
        self
    }
}
