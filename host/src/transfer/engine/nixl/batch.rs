//! One batch of writes on its way.

use std::sync::Arc;

use nixl_sys::{Agent, NixlError, XferDescList, XferOp, XferRequest, XferStatus};

use crate::transfer::blocks::Block;
use crate::transfer::engine::{BatchState, EngineError, EngineProblem};

use super::call::{code, foreign, problem};
use super::memory::{Place, Registration};
use super::remote::Remote;

/// A batch. It holds what NIXL uses while it is in flight, and gives it up after the request (fields drop in order).
pub(super) struct Batch {
    /// NIXL's; None where there was nothing to write, or nothing is in flight any more.
    request: Option<XferRequest>,
    /// NIXL failed to post it: some of it may be on its way.
    failed: Option<EngineError>,
    /// What it reads.
    pub(super) sources: Vec<Arc<Registration>>,
    /// Where it goes.
    pub(super) remote: Arc<Remote>,
}

impl Batch {
    /// Hands `blocks`, which lie in `sources`, to NIXL. After an error NIXL has none of it. Where it fails to post them,
    /// nobody knows: the batch has failed when it is asked about, and `remote` is marked as lost.
    pub(super) fn start(
        agent: &Agent,
        place: Place,
        sources: Vec<Arc<Registration>>,
        remote: Arc<Remote>,
        blocks: &[Block],
    ) -> Result<Self, EngineError> {
        let first = blocks.iter().find(|block| block.bytes > 0);
        let Some(first) = first else { return Ok(Self { request: None, failed: None, sources, remote }) };
        let refuse = |addr: u64, code: i64| {
            let bytes = blocks.iter().map(|block| block.bytes).sum();
            problem("submit", EngineProblem::Refused { addr, bytes, code }).of(&remote.name)
        };
        // NIXL adds without looking: a destination that runs past the last address would seem to be registered.
        if let Some(block) = blocks.iter().find(|block| block.dst.checked_add(block.bytes).is_none()) {
            return Err(refuse(block.dst, 0));
        }
        let list = |place: Place, addr: fn(&Block) -> u64| {
            let mut list = XferDescList::new(place.mem_type())?;
            for block in blocks.iter().filter(|block| block.bytes > 0) {
                list.add_desc(addr(block) as usize, block.bytes as usize, place.device_id);
            }
            Ok(list)
        };
        let of = |error: NixlError| foreign("submit", &error).of(&remote.name);
        let local = list(place, |block| block.src).map_err(of)?;
        let target = list(remote.place, |block| block.dst).map_err(of)?;
        let made = agent.create_xfer_req(XferOp::Write, &local, &target, &remote.agent_name, None);
        let request = made.map_err(|error| refuse(first.dst, code(&error)))?;
        let (in_flight, failed) = match agent.post_xfer_req(&request, None) {
            Ok(in_flight) => (in_flight, None),
            Err(error) => {
                remote.fail();
                let lost = EngineProblem::PeerLost { code: code(&error) };
                (true, Some(problem("submit", lost).of(&remote.name)))
            }
        };
        Ok(Self { request: in_flight.then_some(request), failed, sources, remote })
    }

    /// How far it is. NIXL gives the same answer again once it is over.
    ///
    /// # Errors
    /// [`EngineProblem::PeerLost`]: NIXL has one code for whatever ends a write, and it is the peer or the way to it.
    pub(super) fn state(&self, agent: &Agent) -> Result<BatchState, EngineError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let Some(request) = &self.request else { return Ok(BatchState::Done) };
        match agent.get_xfer_status(request) {
            Ok(XferStatus::Success) => Ok(BatchState::Done),
            Ok(XferStatus::InProgress) => Ok(BatchState::InFlight),
            Err(error) => {
                self.remote.fail();
                Err(problem("poll", EngineProblem::PeerLost { code: code(&error) }).of(&self.remote.name))
            }
        }
    }
}
