//! Errors of devices.

use thiserror::Error;

/// Why a device call failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No memory of that size.
    #[error("{device}: cannot allocate {bytes} bytes: use fewer pages, layers or ranks")]
    OutOfMemory {
        /// The device.
        device: &'static str,
        /// The refused size.
        bytes: u64,
    },
    /// The stream's worker could not be started.
    #[error("{device}: cannot start a stream (os error {code})")]
    NoStream {
        /// The device.
        device: &'static str,
        /// The system's code.
        code: i32,
    },
    /// A range outside a buffer.
    #[error("{call}: bytes {start}..{end} are outside a buffer of {buffer_bytes} bytes")]
    OutOfBounds {
        /// The call.
        call: &'static str,
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// The buffer's size.
        buffer_bytes: u64,
    },
    /// The deadline passed before the device was done.
    #[error(
        "{call}: not done after {waited_ms} ms; running: {running}. Raise the timeout, or see what it waits for"
    )]
    Deadline {
        /// The waiting call.
        call: &'static str,
        /// How long it waited, in milliseconds.
        waited_ms: u64,
        /// What the stream was running; on a GPU, of several pieces of work, the last that may wait for something else.
        running: &'static str,
    },
    /// A host call queued on a stream failed.
    #[error("stream: {call} failed with code {code} on rank {rank}")]
    HostCall {
        /// What ran.
        call: &'static str,
        /// Its own code.
        code: i64,
        /// On which rank.
        rank: u32,
    },
    /// A collective queued on a stream ran into its deadline.
    #[error("stream: {call} on rank {rank} waited {waited_ms} ms for ranks {missing}")]
    CollectiveTimeout {
        /// What ran.
        call: &'static str,
        /// On which rank.
        rank: u32,
        /// How long, in milliseconds.
        waited_ms: u64,
        /// Who was missing.
        missing: crate::units::RankSet,
    },
    /// The ranks of a collective queued buffers of different sizes, or (with equal sizes) that share memory.
    #[error(
        "stream: {call} on rank {rank} has {bytes} bytes but rank {peer} has {peer_bytes}, or they overlap: \
         every rank must queue its own buffer of the same size"
    )]
    CollectiveMismatch {
        /// What ran.
        call: &'static str,
        /// On which rank.
        rank: u32,
        /// Its size in bytes.
        bytes: u64,
        /// The first rank that does not fit.
        peer: u32,
        /// That rank's size in bytes.
        peer_bytes: u64,
    },
    /// A call of the CUDA driver failed.
    #[error("{device}: {call} failed: {name} ({code}). {}", remedy_of(*code))]
    Cuda {
        /// The device.
        device: Box<str>,
        /// The call.
        call: &'static str,
        /// The driver's code.
        code: u32,
        /// The driver's name for it.
        name: Box<str>,
    },
    /// There is no such GPU, or none that can be used.
    #[error("cuda: {reason}")]
    NoGpu {
        /// Why.
        reason: String,
    },
    /// A collective failed while it was queued.
    #[error("all-reduce on rank {rank}: {reason}")]
    Collective {
        /// On which rank.
        rank: u32,
        /// The collective's own error.
        reason: Box<str>,
    },
    /// An event or a graph of another kind of device.
    #[error("{call}: it belongs to another kind of device than the stream")]
    Foreign {
        /// The call.
        call: &'static str,
    },
    /// Work that cannot be captured in a graph.
    #[error("{call}: cannot be captured in a graph; do it outside of the capture")]
    NotCapturable {
        /// The work.
        call: &'static str,
    },
    /// Work on a stream panicked; the stream does nothing more.
    #[error("stream: {call} panicked: {message}")]
    Panicked {
        /// What ran.
        call: &'static str,
        /// The panic's message.
        message: String,
    },
}

/// What to do about a code of the CUDA driver.
const fn remedy_of(code: u32) -> &'static str {
    match code {
        2 => "Use fewer pages, layers or ranks a GPU",
        100 | 101 => "See `nvidia-smi`, and CUDA_VISIBLE_DEVICES",
        200 | 209 | 218 | 222 => "Build for this GPU: see CPKV_CUDA_ARCH",
        214 | 220 => "The hardware reports an error: see `nvidia-smi -q`, and start the process anew",
        700..=719 => "A kernel failed, and its context with it: start the process anew",
        800 | 801 => {
            "The driver or the machine does not allow it: see its version, and the container's rights"
        }
        _ => "See the CUDA driver API's documentation of this code",
    }
}
