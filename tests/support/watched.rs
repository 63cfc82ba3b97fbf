//! An engine that a test watches, or holds up, and a manager over it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::ops::Range;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use cpkv::device::{CpuDevice, Device, DeviceBuffer};
use cpkv::group::PoisonGate;
use cpkv::transfer::{
    BatchId, BatchState, Block, EngineError, EngineInfo, InProcessEngine, ManagerOptions, ManagerParts,
    Offer, PeerId, RegistrationId, RequestRun, RequestSpec, TransferEngine, TransferManager,
};

use crate::transfer::{LONG, World, pages};

/// A call of an engine.
pub(crate) enum Call<'a> {
    Submit(&'a [Block]),
    Poll,
    Unregister,
}

/// An engine that does `before` in each call, and fails where that does.
pub(crate) struct Watched<F> {
    pub(crate) inner: Arc<InProcessEngine>,
    pub(crate) before: F,
}

impl<F: Fn(Call<'_>) -> Result<(), EngineError> + Send + Sync> TransferEngine for Watched<F> {
    fn info(&self) -> EngineInfo {
        self.inner.info()
    }

    fn register(&self, memory: &DeviceBuffer) -> Result<RegistrationId, EngineError> {
        self.inner.register(memory)
    }

    fn unregister(&self, registration: RegistrationId) -> Result<(), EngineError> {
        (self.before)(Call::Unregister)?;
        self.inner.unregister(registration)
    }

    fn metadata(&self) -> Result<Vec<u8>, EngineError> {
        self.inner.metadata()
    }

    fn add_peer(&self, metadata: &[u8]) -> Result<PeerId, EngineError> {
        self.inner.add_peer(metadata)
    }

    fn remove_peer(&self, peer: PeerId) -> Result<(), EngineError> {
        self.inner.remove_peer(peer)
    }

    fn submit(&self, peer: PeerId, blocks: &[Block]) -> Result<BatchId, EngineError> {
        (self.before)(Call::Submit(blocks))?;
        self.inner.submit(peer, blocks)
    }

    fn poll(&self, batch: BatchId) -> Result<BatchState, EngineError> {
        (self.before)(Call::Poll)?;
        self.inner.poll(batch)
    }

    fn abandon(&self, batch: BatchId) -> bool {
        self.inner.abandon(batch)
    }
}

/// An engine that does not come back from some calls before the test says so, or ends; told when it is in one.
pub(crate) type Blocked = (Arc<dyn TransferEngine>, mpsc::Receiver<()>, mpsc::Sender<()>);

pub(crate) fn blocked(inner: &Arc<InProcessEngine>, in_call: fn(&Call<'_>) -> bool) -> Blocked {
    let (entered, has_entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let may_leave = Mutex::new(may_leave);
    let before = move |call: Call<'_>| {
        if in_call(&call) {
            let _ = entered.send(());
            let _ = may_leave.lock().unwrap().recv();
        }
        Ok(())
    };
    (Arc::new(Watched { inner: Arc::clone(inner), before }), has_entered, leave)
}

/// A manager of the world's first rank, over `engine`, with one thread.
pub(crate) fn manager(world: &World, engine: Arc<dyn TransferEngine>) -> TransferManager {
    manager_on(world, engine, Arc::new(CpuDevice), within(LONG))
}

/// Batches have `transfer_timeout`.
pub(crate) fn within(transfer_timeout: Duration) -> ManagerOptions {
    ManagerOptions { transfer_timeout, ..ManagerOptions::default() }
}

/// The same, on `device`, with `options`.
pub(crate) fn manager_on(
    world: &World,
    engine: Arc<dyn TransferEngine>,
    device: Arc<dyn Device>,
    options: ManagerOptions,
) -> TransferManager {
    let rank = &world.ranks[0];
    let parts = ManagerParts {
        engine,
        device,
        stream: Arc::clone(&rank.stream) as _,
        gate: PoisonGate::default(),
        source: rank.source.clone(),
    };
    TransferManager::start(parts, ManagerOptions { num_threads: 1, min_prompt_tokens: 0, ..options }).unwrap()
}

/// A manager whose only thread the engine keeps, in the submit of layer 0 of these requests, until the test says so or drops the
/// sender. Their forward has ended.
pub(crate) fn kept(
    world: &World,
    options: ManagerOptions,
    numbers: Range<u32>,
) -> (TransferManager, mpsc::Sender<()>) {
    let (engine, has_entered, leave) =
        blocked(&world.ranks[0].engine, |call| matches!(call, Call::Submit(_)));
    let manager = manager_on(world, engine, Arc::new(CpuDevice), options);
    hand_in(world, &manager, numbers);
    has_entered.recv_timeout(LONG).unwrap();
    manager.end_forward().unwrap();
    (manager, leave)
}

/// Requests of two pages each, registered with `manager`; their layer 0 is handed in.
pub(crate) fn hand_in(world: &World, manager: &TransferManager, numbers: Range<u32>) -> Vec<Offer> {
    let offers: Vec<_> = numbers.clone().map(|at| world.offer(u64::from(at), 2, 2 * at, &[])).collect();
    for (at, offer) in numbers.zip(&offers) {
        let (prefix, current) = (RequestRun { first: 0, pages: Vec::new() }, pages(2 * at as i32, 2));
        let decode = world.decode(0);
        manager.register(RequestSpec { offer: offer.clone(), decode, prompt_tokens: 4096, prefix }).unwrap();
        manager.open_chunk(offer.request, &RequestRun { first: 0, pages: current.clone() }).unwrap();
        world.write_all(&current, 1);
    }
    manager.on_layer_end(0).unwrap();
    world.ranks[0].stream.fire_all();
    offers
}
