//! What an endpoint is made with.

use std::fmt;
use std::sync::Arc;

use super::super::Delivery;
use super::Faults;
use crate::device::MemoryKind;
use crate::transfer::{Clock, SystemClock};

/// Options of an endpoint.
#[derive(Clone)]
pub struct EndpointOptions {
    /// What memory will be registered. Only [`MemoryKind::Host`] can be: registrations of another kind are refused.
    pub memory: MemoryKind,
    /// With [`Delivery::InOrder`] a batch is done as soon as it was submitted, and its bytes arrive later.
    pub delivery: Delivery,
    /// What [`Faults::delay`] is read from.
    pub clock: Arc<dyn Clock>,
    /// Whether submits are logged. The log grows for as long as the endpoint lives.
    pub log_submits: bool,
    /// Misbehaviour from the start.
    pub faults: Faults,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            memory: MemoryKind::Host,
            delivery: Delivery::BeforeCompletion,
            clock: Arc::new(SystemClock),
            log_submits: true,
            faults: Faults::default(),
        }
    }
}

impl fmt::Debug for EndpointOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointOptions")
            .field("memory", &self.memory)
            .field("delivery", &self.delivery)
            .field("log_submits", &self.log_submits)
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}
