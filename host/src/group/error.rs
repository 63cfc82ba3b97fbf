//! Why a call on a group failed.

use thiserror::Error;

use super::bootstrap::BootstrapError;
use super::phase::Fault;

/// Why a call on a group failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The group is poisoned.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The ranks' memory cannot be mapped here, so there is no barrier.
    #[error("{call}: the ranks cannot read each other's memory ({reason}): use a collective strategy")]
    NoPeerAccess {
        /// The call.
        call: &'static str,
        /// Why.
        reason: String,
    },
    /// The exchange between the ranks.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
}
