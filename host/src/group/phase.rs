//! The states of a group, and what leads from one to the next. Pure.
//!
//! | state | what is allowed | leaves by |
//! |---|---|---|
//! | *registering* | nothing: no [`Group`](super::Group) exists yet | `register` returns: ready, or an error and nothing is left |
//! | *ready* | everything | a fault: poisoned; `close`: closed |
//! | *poisoned* | nothing: every call returns the fault | never; the memory stays mapped until the last holder drops it |
//! | *closed* | nothing: the value is gone | never |
//!
//! *Registering* and *closed* have no value: the first is inside `register`, the second after `close` took the
//! group. So only two states can be asked for.

use thiserror::Error;

use crate::device::DeviceError;
use crate::units::{Epoch, Rank, RankSet};

/// Where a group stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// It can be used.
    #[default]
    Ready,
    /// It cannot be used any more, for the first fault that was met.
    Poisoned(Fault),
}

/// What ended a group.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// A barrier timed out, on this rank or another.
    #[error(
        "group poisoned at epoch {epoch} (tag {tag}): rank {by} waited {waited_ms} ms in the barrier for ranks \
         {missing}. Nothing was composed after it; see why they died or stopped, and register the group anew"
    )]
    Barrier {
        /// Who gave up first.
        by: Rank,
        /// The barrier.
        epoch: Epoch,
        /// Who had not arrived.
        missing: RankSet,
        /// How long the first one waited, in milliseconds.
        waited_ms: u64,
        /// What the caller called the barrier.
        tag: u32,
    },
    /// The stream of another rank failed.
    #[error(
        "group poisoned at epoch {epoch}: the stream of rank {by} failed{}. See its own error, and register the group \
         anew", waiting_for(*missing)
    )]
    PeerStream {
        /// Whose stream.
        by: Rank,
        /// Its epoch.
        epoch: Epoch,
        /// Whom it waited for; empty where it failed otherwise.
        missing: RankSet,
    },
    /// The host of some rank gave up waiting for its stream.
    #[error(
        "group poisoned at epoch {epoch}: the host of rank {by} waited {waited_ms} ms for its stream, which was \
         running: {running}. See what that waits for (a collective has no deadline of its own), and register the group \
         anew"
    )]
    Host {
        /// Whose host.
        by: Rank,
        /// Its epoch.
        epoch: Epoch,
        /// How long, in milliseconds.
        waited_ms: u64,
        /// What its stream was running; only that rank knows.
        running: &'static str,
    },
    /// Some rank gave up waiting for the others in an exchange: a registration, or the agreement on a batch.
    #[error(
        "group poisoned at epoch {epoch}: rank {by} waited {waited_ms} ms for ranks {missing} in an exchange between \
         the ranks. Nothing was launched after it; see why they died or stopped, and register the group anew"
    )]
    Exchange {
        /// Who gave up first.
        by: Rank,
        /// Its epoch.
        epoch: Epoch,
        /// Who had not arrived.
        missing: RankSet,
        /// How long it waited, in milliseconds.
        waited_ms: u64,
    },
    /// This rank's stream failed.
    #[error("group poisoned at epoch {epoch}: {problem}. Register the group anew")]
    Stream {
        /// This rank's epoch.
        epoch: Epoch,
        /// Why.
        problem: DeviceError,
    },
    /// A record was claimed but never completed: its writer died while writing.
    #[error("group poisoned at an unknown epoch: the rank that gave up died while it said why")]
    Unrecorded,
}

fn waiting_for(missing: RankSet) -> String {
    if missing.is_empty() { String::new() } else { format!(", waiting for ranks {missing}") }
}

impl Phase {
    /// The state after `fault`: the first fault stays.
    pub(super) fn after(self, fault: Fault) -> Self {
        match self {
            Self::Ready => Self::Poisoned(fault),
            poisoned @ Self::Poisoned(_) => poisoned,
        }
    }

    /// Refuses everything once poisoned.
    pub(super) fn check(&self) -> Result<(), Fault> {
        match self {
            Self::Ready => Ok(()),
            Self::Poisoned(fault) => Err(fault.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fault_is_the_one_every_later_call_sees() {
        let first = Fault::Host { by: Rank(1), epoch: Epoch(7), waited_ms: 5, running: "gather" };
        let phase = Phase::default().after(first.clone()).after(Fault::Unrecorded);
        assert_eq!(phase.check(), Err(first));
        assert_eq!(Phase::default().check(), Ok(()));
    }
}
