//! Why NCCL cannot be used, or failed.

use thiserror::Error;

use super::library::{MIN_VERSION, Version};

/// Why a call of NCCL, or the way to it, failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NcclError {
    /// The library cannot be loaded.
    #[error(
        "no libnccl.so can be loaded: install NCCL, or put a folder that has it on LD_LIBRARY_PATH (scripts/setup makes \
         one, see CPKV_NCCL_DIR; where a machine has only libnccl.so.2, link libnccl.so to it)"
    )]
    NotFound,
    /// The library lacks a function.
    #[error("libnccl.so lacks {symbol} ({detail}): install NCCL {MIN_VERSION} or later")]
    NoSymbol {
        /// The function.
        symbol: &'static str,
        /// What the loader says.
        detail: String,
    },
    /// The library is too old.
    #[error("libnccl.so is NCCL {found}: install {MIN_VERSION} or later")]
    TooOld {
        /// Its version.
        found: Version,
    },
    /// An environment variable makes calls of NCCL wait without a deadline.
    #[error("NCCL_COMM_BLOCKING is set, with which calls of NCCL wait without a deadline: unset it")]
    Blocking,
    /// A call failed, or an operation did that it had started.
    #[error("{call} failed: {name} ({code}); NCCL says: {detail}. Set NCCL_DEBUG=INFO to see more")]
    Call {
        /// The call.
        call: &'static str,
        /// NCCL's code.
        code: i32,
        /// NCCL's words for the code.
        name: String,
        /// The last error NCCL has logged, which may be of an earlier call.
        detail: String,
    },
    /// The deadline passed first.
    #[error(
        "{call}: not done after {waited_ms} ms: see which rank died or never came (NCCL_DEBUG=INFO), or raise the timeout"
    )]
    Deadline {
        /// The call.
        call: &'static str,
        /// How long it waited, in milliseconds.
        waited_ms: u64,
    },
    /// The thread that bounds a call could not be started.
    #[error("{call}: no thread for it could be started (os error {code})")]
    NoThread {
        /// The call.
        call: &'static str,
        /// The system's code.
        code: i32,
    },
    /// The GPU could not be made the calling thread's.
    #[error("{call}: {reason}")]
    Gpu {
        /// The call.
        call: &'static str,
        /// Why.
        reason: String,
    },
    /// The communicator was aborted before.
    #[error("{call}: the communicator was aborted before: register the group anew")]
    Aborted {
        /// The call.
        call: &'static str,
    },
}
