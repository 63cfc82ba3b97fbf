//! The reference engine: copies between the threads of one process. It can be told to misbehave.
//!
//! An endpoint delivers its batches on a thread of its own, one after another, in the order of their submission. Words
//! that a peer polls arrive after what stands before them in their batch: `copy` says which. What it shares, and how: see
//! `endpoint`.
//!
//! ```
//! use std::time::Duration;
//! use cpkv::deadline::Deadline;
//! use cpkv::device::{CpuDevice, Device};
//! use cpkv::transfer::{Block, Fabric, TransferEngine};
//!
//! let fabric = Fabric::new();
//! let (prefill, decode) = (fabric.endpoint("prefill")?, fabric.endpoint("decode")?);
//! let (src, dst) = (CpuDevice.alloc(64)?, CpuDevice.alloc(64)?);
//! CpuDevice.write(&[7; 64], &src)?;
//! prefill.register(&src)?;
//! decode.register(&dst)?;
//! let peer = prefill.add_peer(&decode.metadata()?)?;
//! let batch = prefill.submit(peer, &[Block { src: src.addr(), dst: dst.addr(), bytes: 64 }])?;
//! prefill.wait(batch, Deadline::after(Duration::from_secs(10)))?;
//! let mut bytes = [0; 64];
//! CpuDevice.read(&dst, &mut bytes)?;
//! assert_eq!(bytes, [7; 64]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod card;
mod codes;
mod controls;
mod copy;
mod delivery;
mod endpoint;
mod fabric;
mod faults;
mod log;
mod options;
mod payload;
mod peers;
mod presence;
mod queue;
mod snapshot;

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::{
    BatchId, BatchState, EngineError, EngineInfo, EngineProblem, PeerId, RegistrationId, TransferEngine,
};
use crate::device::{DeviceBuffer, MemoryKind};
use crate::transfer::Block;
use card::Card;
use endpoint::Endpoint;

pub use fabric::Fabric;
pub use faults::Faults;
pub use log::{Counters, SubmitRecord};
pub use options::EndpointOptions;

/// The engine's name.
const NAME: &str = "in-process";

/// One endpoint of a [`Fabric`]. Dropped, it is dead to its peers, and writes nothing any more.
#[derive(Debug)]
pub struct InProcessEngine {
    endpoint: Arc<Endpoint>,
    worker: Option<JoinHandle<()>>,
}

impl InProcessEngine {
    /// Starts the delivery thread of `endpoint`.
    fn start(endpoint: Arc<Endpoint>) -> Result<Self, EngineError> {
        let delivered = Arc::clone(&endpoint);
        let worker = thread::Builder::new()
            .name("cpkv-delivery".to_owned())
            .spawn(move || delivery::deliver(&delivered))
            .map_err(|error| {
                let reason = format!("its thread cannot be started: {error}").into();
                EngineError::new(NAME, "start", EngineProblem::Unavailable { reason })
            })?;
        Ok(Self { endpoint, worker: Some(worker) })
    }
}

impl TransferEngine for InProcessEngine {
    fn info(&self) -> EngineInfo {
        let details = format!("endpoint {}", self.endpoint.name());
        EngineInfo { name: NAME, details, delivery: self.endpoint.options.delivery }
    }

    /// [`EngineProblem::MemoryKind`] where the endpoint was made for memory that the host does not reach.
    fn register(&self, memory: &DeviceBuffer) -> Result<RegistrationId, EngineError> {
        self.endpoint.check_alive("register")?;
        let kind = self.endpoint.options.memory;
        if kind != MemoryKind::Host {
            return Err(EngineError::new(NAME, "register", EngineProblem::MemoryKind { kind: kind.name() }));
        }
        Ok(self.endpoint.registry().add(memory))
    }

    /// Batches in flight keep the memory alive, even so.
    fn unregister(&self, registration: RegistrationId) -> Result<(), EngineError> {
        self.endpoint.check_alive("unregister")?;
        let removed = self.endpoint.registry().remove(registration);
        let unknown = || EngineError::new(NAME, "unregister", EngineProblem::UnknownRegistration);
        removed.map(drop).ok_or_else(unknown)
    }

    /// Memory that is registered later is unknown to peers that got these.
    fn metadata(&self) -> Result<Vec<u8>, EngineError> {
        self.endpoint.check_alive("metadata")?;
        self.endpoint.card().to_bytes().ok_or_else(|| {
            let reason = "its name cannot be written down".into();
            EngineError::new(NAME, "metadata", EngineProblem::Unavailable { reason })
        })
    }

    /// An instance that is dead may be added; what is sent to it fails.
    fn add_peer(&self, metadata: &[u8]) -> Result<PeerId, EngineError> {
        self.endpoint.check_alive("add peer")?;
        let peer = Card::from_bytes(metadata).and_then(|card| self.endpoint.add_peer(card));
        let bytes = metadata.len();
        peer.ok_or_else(|| EngineError::new(NAME, "add peer", EngineProblem::BadMetadata { bytes }))
    }

    fn remove_peer(&self, peer: PeerId) -> Result<(), EngineError> {
        self.endpoint.check_alive("remove peer")?;
        let mut inner = self.endpoint.lock();
        if !inner.peers.remove(peer) {
            return Err(EngineError::new(NAME, "remove peer", EngineProblem::UnknownPeer));
        }
        inner.queue.forget(peer);
        Ok(())
    }

    fn submit(&self, peer: PeerId, blocks: &[Block]) -> Result<BatchId, EngineError> {
        self.endpoint.submit(peer, blocks)
    }

    fn poll(&self, batch: BatchId) -> Result<BatchState, EngineError> {
        self.endpoint.check_alive("poll")?;
        let mut inner = self.endpoint.lock();
        inner.num_polls += 1;
        inner.queue.sweep(self.endpoint.around());
        inner.queue.poll(batch).map_err(|(peer, problem)| {
            let error = EngineError::new(NAME, "poll", problem);
            match peer.and_then(|peer| inner.peers.name(peer)) {
                Some(name) => error.of(name),
                None => error,
            }
        })
    }

    /// `true` where the batch was done, had failed, or could be cancelled. `false` where a frozen side may write it once it
    /// thaws, or where it was reported as done before its bytes had arrived.
    fn abandon(&self, batch: BatchId) -> bool {
        self.endpoint.abandon(batch)
    }
}

impl Drop for InProcessEngine {
    fn drop(&mut self) {
        self.endpoint.die();
        self.endpoint.lock().closed = true;
        self.endpoint.changed.notify_all();
        // The thread ends after the turn that it is at: half a megabyte at most.
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
        self.endpoint.lock().queue.clear();
    }
}

#[cfg(test)]
mod tests;
