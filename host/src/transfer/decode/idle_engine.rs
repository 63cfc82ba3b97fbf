//! An engine that only registers, for tests of what happens before a byte is sent.

use std::sync::{Mutex, PoisonError};

use crate::device::DeviceBuffer;
use crate::transfer::{
    BatchId, BatchState, Block, Delivery, EngineError, EngineInfo, EngineProblem, PeerId, RegistrationId,
    TransferEngine,
};

/// An engine that registers memory and sends nothing. Its metadata are one byte: the number of registrations.
#[derive(Default)]
pub(super) struct IdleEngine {
    max: Option<u64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_id: u64,
    registered: Vec<(u64, DeviceBuffer)>,
    num_unregistered: usize,
}

impl IdleEngine {
    /// One that refuses all but the first `max` registrations.
    pub(super) fn that_takes(max: u64) -> Self {
        Self { max: Some(max), ..Self::default() }
    }

    /// Address and bytes of what is registered, in the order in which it was.
    pub(super) fn registered(&self) -> Vec<(u64, u64)> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.registered.iter().map(|(_, memory)| (memory.addr(), memory.bytes())).collect()
    }

    pub(super) fn num_unregistered(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).num_unregistered
    }

    fn error(call: &'static str, problem: EngineProblem) -> EngineError {
        EngineError::new("idle", call, problem)
    }
}

impl TransferEngine for IdleEngine {
    fn info(&self) -> EngineInfo {
        EngineInfo { name: "idle", details: String::new(), delivery: Delivery::BeforeCompletion }
    }

    fn register(&self, memory: &DeviceBuffer) -> Result<RegistrationId, EngineError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let id = state.next_id;
        if self.max.is_some_and(|max| id >= max) {
            return Err(Self::error("register", EngineProblem::MemoryKind { kind: "such" }));
        }
        state.next_id += 1;
        state.registered.push((id, memory.clone()));
        Ok(RegistrationId(id))
    }

    fn unregister(&self, registration: RegistrationId) -> Result<(), EngineError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.registered.retain(|(id, _)| *id != registration.0);
        state.num_unregistered += 1;
        Ok(())
    }

    fn metadata(&self) -> Result<Vec<u8>, EngineError> {
        Ok(vec![self.registered().len() as u8])
    }

    fn add_peer(&self, _metadata: &[u8]) -> Result<PeerId, EngineError> {
        Ok(PeerId(0))
    }

    fn remove_peer(&self, _peer: PeerId) -> Result<(), EngineError> {
        Err(Self::error("remove_peer", EngineProblem::UnknownPeer))
    }

    fn submit(&self, _peer: PeerId, _blocks: &[Block]) -> Result<BatchId, EngineError> {
        Err(Self::error("submit", EngineProblem::UnknownPeer))
    }

    fn poll(&self, _batch: BatchId) -> Result<BatchState, EngineError> {
        Err(Self::error("poll", EngineProblem::UnknownBatch))
    }

    fn abandon(&self, _batch: BatchId) -> bool {
        true
    }
}
