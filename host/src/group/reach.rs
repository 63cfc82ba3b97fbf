//! What registering a group came to: whether its ranks reach each other's memory.

use super::gate::PoisonGate;
use super::local_poison::LocalPoison;
use super::signals::Signals;
use crate::device::Keep;
use crate::units::GroupSize;

/// The outcome of registering: what all ranks agreed on.
pub(super) enum Reach {
    Peers(Signals),
    Nobody { reason: String, poison: LocalPoison },
}

impl Reach {
    pub(super) const fn peers(&self) -> Option<&Signals> {
        match self {
            Self::Peers(signals) => Some(signals),
            Self::Nobody { .. } => None,
        }
    }

    /// Address of this rank's poison word.
    pub(super) fn poison_addr(&self) -> u64 {
        match self {
            Self::Peers(signals) => signals.poison(),
            Self::Nobody { poison, .. } => poison.poison(),
        }
    }

    /// What queued work looks at before it starts.
    pub(super) fn gate(&self, size: GroupSize) -> PoisonGate {
        match self {
            Self::Peers(signals) => signals.gate(size),
            Self::Nobody { poison, .. } => poison.gate(),
        }
    }

    /// What launched kernels need of it.
    pub(super) fn keep(&self) -> Keep {
        match self {
            Self::Peers(signals) => signals.keep(),
            Self::Nobody { poison, .. } => poison.keep(),
        }
    }
}
