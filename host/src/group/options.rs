//! What a group may be told.

use std::time::Duration;

use crate::units::GroupSize;

/// What a group may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// A barrier gives up after this.
    pub barrier_timeout: Duration,
    /// The host gives up waiting for its stream after this; longer than the barrier's, so that the barrier says
    /// who was missing.
    pub host_timeout: Duration,
    /// Registration and agreement give up after this.
    pub bootstrap_timeout: Duration,
    /// Whether ranks compare plan and epoch before each batch, and look at guards after it.
    pub checked: bool,
    /// Polls of a waiting barrier before it gives its processor away; `None`: decided from the number of cores.
    pub num_spins: Option<u32>,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            barrier_timeout: Duration::from_secs(30),
            host_timeout: Duration::from_secs(90),
            bootstrap_timeout: Duration::from_secs(60),
            checked: cfg!(debug_assertions),
            num_spins: None,
        }
    }
}

/// Spinning pays only where every rank has a core of its own, and then for some microseconds: where two ranks share one all the
/// same (the system puts them there, or other ranks of the machine take the others), each barrier takes what the first spins.
pub(super) fn spins_for(group_size: GroupSize) -> u32 {
    let num_cores = std::thread::available_parallelism().map_or(1, usize::from);
    if group_size.len() > num_cores { 0 } else { 128 }
}
