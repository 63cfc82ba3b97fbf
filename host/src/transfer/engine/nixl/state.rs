//! An engine's registrations, peers and batches: everything behind its lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use nixl_sys::Agent;

use crate::device::DeviceBuffer;
use crate::transfer::blocks::Block;
use crate::transfer::engine::{BatchId, BatchState, EngineError, EngineProblem, PeerId};

use super::batch::Batch;
use super::call::problem;
use super::memory::{Place, Registration, Registrations};
use super::metadata::Metadata;
use super::remote::Remote;

/// What an engine has. Fields drop in order: batches before where they go and what they read, NIXL's agent after all that
/// it knows, the memory last.
pub(super) struct State {
    batches: HashMap<BatchId, Batch>,
    /// Batches that were given up in flight. NIXL cannot take back what it has handed to UCX, so they stay until they end.
    abandoned: Vec<Batch>,
    peers: BTreeMap<PeerId, Arc<Remote>>,
    pub(super) registrations: Registrations,
    /// What failed batches read: NIXL does not say when UCX has let go of it. Each once.
    retained: Vec<Arc<Registration>>,
    pub(super) agent: Agent,
    /// Filled at the end.
    memory: Vec<DeviceBuffer>,
    num_peers: u32,
    num_batches: u64,
}

impl State {
    pub(super) fn new(agent: Agent) -> Self {
        Self {
            batches: HashMap::new(),
            abandoned: Vec::new(),
            peers: BTreeMap::new(),
            registrations: Registrations::default(),
            retained: Vec::new(),
            agent,
            memory: Vec::new(),
            num_peers: 0,
            num_batches: 0,
        }
    }

    /// Makes a peer known, in place of those of the same name.
    pub(super) fn add_peer(&mut self, metadata: &Metadata) -> Result<PeerId, EngineError> {
        self.sweep();
        self.peers.retain(|_, other| *other.name != *metadata.name);
        let known = self.all_batches().find(|batch| *batch.remote.agent_name == *metadata.agent);
        let remote = match known.map(|batch| Arc::clone(&batch.remote)) {
            // A process that NIXL knows, with batches on their way to it: they go on.
            Some(remote) if !remote.has_failed() => {
                remote.load_more(metadata)?;
                remote
            }
            Some(remote) if self.is_in_use(&remote) => {
                let reason = "batches of the lost connection are still ending: poll them, then add it again";
                let still = EngineProblem::Foreign { code: 0, reason: reason.into() };
                return Err(problem("add_peer", still).of(&metadata.name));
            }
            Some(remote) => {
                remote.forget();
                Arc::new(Remote::load(&self.agent, metadata)?)
            }
            None => Arc::new(Remote::load(&self.agent, metadata)?),
        };
        let id = PeerId(self.num_peers);
        self.num_peers += 1;
        self.peers.insert(id, remote);
        Ok(id)
    }

    pub(super) fn remove_peer(&mut self, peer: PeerId) -> Result<(), EngineError> {
        self.sweep();
        let removed = self.peers.remove(&peer).map(drop);
        removed.ok_or_else(|| problem("remove_peer", EngineProblem::UnknownPeer))
    }

    pub(super) fn submit(
        &mut self,
        place: Place,
        peer: PeerId,
        blocks: &[Block],
    ) -> Result<BatchId, EngineError> {
        self.sweep();
        let remote = self.peers.get(&peer).ok_or_else(|| problem("submit", EngineProblem::UnknownPeer))?;
        let sources = self.registrations.sources_of(blocks).map_err(|error| error.of(&remote.name))?;
        let batch = Batch::start(&self.agent, place, sources, Arc::clone(remote), blocks)?;
        let id = BatchId(self.num_batches);
        self.batches.insert(id, batch);
        self.num_batches += 1;
        Ok(id)
    }

    pub(super) fn poll(&mut self, id: BatchId) -> Result<BatchState, EngineError> {
        let batch = self.batches.get(&id).ok_or_else(|| problem("poll", EngineProblem::UnknownBatch))?;
        let state = batch.state(&self.agent);
        if state != Ok(BatchState::InFlight)
            && let Some(batch) = self.batches.remove(&id)
            && state.is_err()
        {
            self.retain(batch.sources);
        }
        state
    }

    /// The peer that a batch goes to.
    pub(super) fn peer_of(&self, id: BatchId) -> Option<Box<str>> {
        self.batches.get(&id).map(|batch| batch.remote.name.clone())
    }

    /// Gives a batch up. True where it was complete.
    pub(super) fn abandon(&mut self, id: BatchId) -> bool {
        let Some(batch) = self.batches.remove(&id) else { return false };
        match batch.state(&self.agent) {
            Ok(BatchState::Done) => return true,
            Ok(BatchState::InFlight) => self.abandoned.push(batch),
            Err(_) => self.retain(batch.sources),
        }
        false
    }

    /// Lets go of batches that were given up and have ended since.
    pub(super) fn sweep(&mut self) {
        let batches = std::mem::take(&mut self.abandoned);
        for batch in batches {
            match batch.state(&self.agent) {
                Ok(BatchState::Done) => {}
                Ok(BatchState::InFlight) => self.abandoned.push(batch),
                Err(_) => self.retain(batch.sources),
            }
        }
    }

    /// Gives up all batches, and holds all memory until NIXL's agent is gone. Returns how many batches are in flight.
    pub(super) fn wind_up(&mut self) -> usize {
        let batches = std::mem::take(&mut self.batches);
        self.abandoned.extend(batches.into_values());
        self.sweep();
        self.memory = self.registrations.memory().collect();
        self.memory.extend(self.retained.iter().map(|registration| registration.memory.clone()));
        self.abandoned.len()
    }

    fn all_batches(&self) -> impl Iterator<Item = &Batch> {
        self.batches.values().chain(&self.abandoned)
    }

    /// Whether a batch to `remote` is in flight.
    fn is_in_use(&self, remote: &Arc<Remote>) -> bool {
        let mut to_it = self.all_batches().filter(|batch| Arc::ptr_eq(&batch.remote, remote));
        to_it.any(|batch| batch.state(&self.agent) == Ok(BatchState::InFlight))
    }

    fn retain(&mut self, sources: Vec<Arc<Registration>>) {
        for source in sources {
            if !self.retained.iter().any(|other| Arc::ptr_eq(other, &source)) {
                self.retained.push(source);
            }
        }
    }
}
