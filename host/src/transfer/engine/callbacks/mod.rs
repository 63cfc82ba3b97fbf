//! An engine of the caller's: its submit and poll functions, behind our ids, checks and errors.
//!
//! What the caller's engine does not check is checked here: sources lie in registered memory, peers and batches are known,
//! and an end is told once. No lock is held while a function of the caller's runs, but that of the one batch which is asked
//! for.

mod batches;
mod functions;

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::registry::Registry;
use super::{
    BatchId, BatchState, EngineError, EngineInfo, EngineProblem, PeerId, RegistrationId, TransferEngine,
};
use crate::device::DeviceBuffer;
use crate::transfer::Block;
use batches::{Batches, Handle};
use functions::{guarded, guarded_blocks, is_panic};

pub use functions::{
    AbandonFn, AddPeerFn, CallbackFailure, EngineCallbacks, MetadataFn, PollFn, RegisterFn, RemovePeerFn,
    SubmitFn, UnregisterFn,
};

/// The engine's name.
const NAME: &str = "callbacks";

/// How much of a peer's name an error shows, in characters.
const SHOWN_CHARS: usize = 64;

/// The engine that a caller brings.
///
/// A function that panics is an error, with code `i64::MIN`. A batch whose submit panicked may have been taken: it is
/// accepted, and fails when it is asked about. One whose submit or poll panicked may still be written.
#[derive(Debug)]
pub struct CallbackEngine {
    callbacks: EngineCallbacks,
    registry: Mutex<Registry>,
    peers: Mutex<Vec<Peer>>,
    batches: Batches,
}

/// A peer, as the caller names it.
#[derive(Clone, Debug)]
struct Peer {
    metadata: Box<[u8]>,
    current: bool,
}

impl Peer {
    /// What errors call it.
    fn name(&self) -> String {
        String::from_utf8_lossy(&self.metadata).chars().take(SHOWN_CHARS).collect()
    }
}

impl CallbackEngine {
    /// The engine behind `callbacks`.
    pub fn new(callbacks: EngineCallbacks) -> Self {
        Self { callbacks, registry: Mutex::default(), peers: Mutex::default(), batches: Batches::default() }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn peers(&self) -> MutexGuard<'_, Vec<Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A peer that is known, or was.
    fn peer(&self, peer: PeerId) -> Option<Peer> {
        self.peers().get(peer.0 as usize).cloned()
    }

    /// Asks the caller whether a batch is done.
    fn ask(&self, handle: u64, peer: PeerId, blocks: (u64, u64)) -> Result<bool, EngineError> {
        let asked = guarded_blocks("poll", blocks, || (self.callbacks.poll)(handle));
        asked.map_err(|error| match self.peer(peer) {
            Some(peer) => error.of(&peer.name()),
            None => error,
        })
    }
}

impl TransferEngine for CallbackEngine {
    fn info(&self) -> EngineInfo {
        let (details, delivery) = (self.callbacks.details.clone(), self.callbacks.delivery);
        EngineInfo { name: NAME, details, delivery }
    }

    fn register(&self, memory: &DeviceBuffer) -> Result<RegistrationId, EngineError> {
        if let Some(register) = &self.callbacks.register {
            guarded("register", || register(memory.addr(), memory.bytes()))?;
        }
        Ok(self.registry().add(memory))
    }

    /// Where the caller's function fails, the registration has ended all the same.
    fn unregister(&self, registration: RegistrationId) -> Result<(), EngineError> {
        let removed = self.registry().remove(registration);
        let unknown = || EngineError::new(NAME, "unregister", EngineProblem::UnknownRegistration);
        let memory = removed.ok_or_else(unknown)?;
        match &self.callbacks.unregister {
            Some(unregister) => guarded("unregister", || unregister(memory.addr(), memory.bytes())),
            None => Ok(()),
        }
    }

    /// [`EngineProblem::Unavailable`] without [`EngineCallbacks::metadata`].
    fn metadata(&self) -> Result<Vec<u8>, EngineError> {
        match &self.callbacks.metadata {
            Some(metadata) => guarded("metadata", metadata),
            None => {
                let reason =
                    "the caller gave no metadata function: exchange the peers' names yourself".into();
                Err(EngineError::new(NAME, "metadata", EngineProblem::Unavailable { reason }))
            }
        }
    }

    /// The metadata are the peer's name: the same bytes are the same peer, added anew.
    fn add_peer(&self, metadata: &[u8]) -> Result<PeerId, EngineError> {
        if metadata.is_empty() {
            return Err(EngineError::new(NAME, "add peer", EngineProblem::BadMetadata { bytes: 0 }));
        }
        let peer = Peer { metadata: metadata.into(), current: true };
        if let Some(add_peer) = &self.callbacks.add_peer {
            guarded("add peer", || add_peer(metadata)).map_err(|error| error.of(&peer.name()))?;
        }
        let mut peers = self.peers();
        for before in peers.iter_mut().filter(|before| before.metadata == peer.metadata) {
            before.current = false;
        }
        let id = PeerId(u32::try_from(peers.len()).unwrap_or(u32::MAX));
        peers.push(peer);
        Ok(id)
    }

    fn remove_peer(&self, peer: PeerId) -> Result<(), EngineError> {
        let mut peers = self.peers();
        let known = peers.get_mut(peer.0 as usize).filter(|peer| peer.current);
        let unknown = || EngineError::new(NAME, "remove peer", EngineProblem::UnknownPeer);
        let known = known.ok_or_else(unknown)?;
        known.current = false;
        let removed = known.clone();
        drop(peers);
        let Some(remove_peer) = &self.callbacks.remove_peer else { return Ok(()) };
        guarded("remove peer", || remove_peer(&removed.metadata)).map_err(|error| error.of(&removed.name()))
    }

    /// Blocks without bytes are left out; a batch of no bytes is done, and the caller's function is not called.
    fn submit(&self, peer: PeerId, blocks: &[Block]) -> Result<BatchId, EngineError> {
        let error = |problem| EngineError::new(NAME, "submit", problem);
        let known = self.peer(peer).filter(|peer| peer.current);
        let known = known.ok_or_else(|| error(EngineProblem::UnknownPeer))?;
        let sources = blocks.iter().map(|block| (block.src, block.bytes));
        let sources = self.registry().cover(sources, u64::MAX).map_err(|gap| {
            let (addr, bytes) = (gap.addr, gap.bytes);
            error(EngineProblem::NotRegistered { addr, bytes }).of(&known.name())
        })?;
        let blocks: Vec<Block> = blocks.iter().filter(|block| block.bytes > 0).copied().collect();
        let Some(first) = blocks.first() else {
            return Ok(self.batches.add(peer, (0, 0), Handle::Nothing, sources));
        };
        let bytes = blocks.iter().fold(0, |sum: u64, block| sum.saturating_add(block.bytes));
        let column = |of: fn(&Block) -> u64| blocks.iter().map(of).collect::<Vec<u64>>();
        let (srcs, dsts) = (column(|block| block.src), column(|block| block.dst));
        let lens = column(|block| block.bytes);
        let handle = guarded_blocks("submit", (first.dst, bytes), || {
            (self.callbacks.submit)(&known.metadata, &srcs, &dsts, &lens)
        });
        let handle = match handle.map_err(|error| error.of(&known.name())) {
            Ok(handle) => Handle::Taken(handle),
            Err(error) if is_panic(&error) => Handle::Unknown(error),
            Err(error) => return Err(error),
        };
        Ok(self.batches.add(peer, (first.dst, bytes), handle, sources))
    }

    /// While another thread asks for the same batch, it is in flight.
    fn poll(&self, batch: BatchId) -> Result<BatchState, EngineError> {
        let unknown = || EngineError::new(NAME, "poll", EngineProblem::UnknownBatch);
        let known = self.batches.get(batch).ok_or_else(unknown)?;
        let Some(mut handle) = known.try_handle() else { return Ok(BatchState::InFlight) };
        let outcome = match handle.clone().ok_or_else(unknown)? {
            Handle::Nothing => Ok(true),
            Handle::Taken(handle) => self.ask(handle, known.peer, known.blocks),
            Handle::Unknown(error) => Err(error),
        };
        if outcome == Ok(false) {
            return Ok(BatchState::InFlight);
        }
        *handle = None;
        self.batches.remove(batch);
        outcome.map(|_| BatchState::Done)
    }

    /// What [`EngineCallbacks::abandon`] says of a batch in flight. A batch that another thread asks for meanwhile is not
    /// known to be quiet.
    fn abandon(&self, batch: BatchId) -> bool {
        let Some(known) = self.batches.remove(batch) else { return true };
        let Some(mut handle) = known.try_handle() else { return false };
        match (handle.take(), &self.callbacks.abandon) {
            (None | Some(Handle::Nothing), _) => true,
            (Some(Handle::Unknown(_)), _) | (Some(Handle::Taken(_)), None) => false,
            (Some(Handle::Taken(handle)), Some(abandon)) => {
                guarded("abandon", || Ok(abandon(handle))).unwrap_or(false)
            }
        }
    }
}

#[cfg(test)]
mod tests;
