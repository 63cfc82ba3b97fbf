//! The fabric: the endpoints of one process that reach each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::super::EngineError;
use super::endpoint::Endpoint;
use super::{EndpointOptions, InProcessEngine};

/// Numbers the fabrics of the process.
static NUM_FABRICS: AtomicU64 = AtomicU64::new(0);

/// A set of endpoints that reach each other, and no others. Clones are the same fabric.
#[derive(Clone, Debug)]
pub struct Fabric {
    shared: Arc<Shared>,
}

/// What the endpoints share.
#[derive(Debug)]
pub(super) struct Shared {
    id: u64,
    /// Orders what happens on the fabric; relaxed, since every number is taken by one call alone.
    num_ticks: AtomicU64,
    directory: Mutex<Directory>,
}

#[derive(Debug, Default)]
struct Directory {
    num_instances: u64,
    /// By name: the endpoint that had it last.
    latest: BTreeMap<Box<str>, Weak<Endpoint>>,
}

impl Fabric {
    /// A fabric without endpoints.
    pub fn new() -> Self {
        // Relaxed: the numbers differ, and order nothing.
        let id = NUM_FABRICS.fetch_add(1, Ordering::Relaxed);
        let (num_ticks, directory) = (AtomicU64::new(0), Mutex::default());
        Self { shared: Arc::new(Shared { id, num_ticks, directory }) }
    }

    /// An endpoint that behaves, for host memory. A name that is taken is that of a peer which was started anew: the
    /// endpoint that had it is dead from now on.
    ///
    /// # Errors
    /// [`EngineProblem::Unavailable`](super::super::EngineProblem::Unavailable) where its thread cannot be started.
    pub fn endpoint(&self, name: &str) -> Result<InProcessEngine, EngineError> {
        self.endpoint_with(name, EndpointOptions::default())
    }

    /// As [`Fabric::endpoint`], with options.
    ///
    /// # Errors
    /// As [`Fabric::endpoint`].
    pub fn endpoint_with(
        &self,
        name: &str,
        options: EndpointOptions,
    ) -> Result<InProcessEngine, EngineError> {
        let mut directory = self.shared.lock();
        let instance = directory.num_instances;
        let endpoint = Arc::new(Endpoint::new(Arc::clone(&self.shared), name.into(), instance, options));
        let engine = InProcessEngine::start(Arc::clone(&endpoint))?;
        directory.num_instances += 1;
        let before = directory.latest.insert(name.into(), Arc::downgrade(&endpoint));
        drop(directory);
        if let Some(before) = before.and_then(|before| before.upgrade()) {
            before.die();
        }
        Ok(engine)
    }

    /// The next number of the fabric's counter: places an event of the caller among the endpoints' submits
    /// ([`SubmitRecord::tick`](super::SubmitRecord::tick)).
    pub fn tick(&self) -> u64 {
        self.shared.tick()
    }
}

impl Default for Fabric {
    fn default() -> Self {
        Self::new()
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn tick(&self) -> u64 {
        // Relaxed: two calls get different numbers, and one that happens after another a larger one.
        self.num_ticks.fetch_add(1, Ordering::Relaxed)
    }

    /// The endpoint of that name, if it is still that instance.
    pub(super) fn find(&self, name: &str, instance: u64) -> Weak<Endpoint> {
        let latest = self.lock().latest.get(name).cloned();
        let is_it = |latest: &Weak<Endpoint>| latest.upgrade().is_some_and(|it| it.instance() == instance);
        latest.filter(is_it).unwrap_or_default()
    }
}
