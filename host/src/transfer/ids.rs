//! Names of what is transferred.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A request, as the caller numbers them: unique among the requests that are being transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One transfer of one request: never 0, never the same twice in the memory of a decode worker. Words that carry it are
/// told from what an earlier transfer left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TransferEpoch(pub u64);

impl fmt::Display for TransferEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
