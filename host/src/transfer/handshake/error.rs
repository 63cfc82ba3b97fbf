//! Why two sides cannot send pages to each other.

use thiserror::Error;

use crate::transfer::PoolMapError;

/// Why two sides cannot send pages to each other: the field, with both values.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// Another version of what the sides exchange.
    #[error(
        "handshake: version {mine} here, {theirs} there: run the same version of the library on both sides"
    )]
    Version {
        /// This side's.
        mine: u32,
        /// The other's.
        theirs: u32,
    },
    /// Pages of another number of tokens.
    #[error("handshake: page size {mine} here, {theirs} there: start both sides with the same page size")]
    PageSize {
        /// Tokens a page of this side.
        mine: u32,
        /// Tokens a page of the other.
        theirs: u32,
    },
    /// Other buffers.
    #[error("handshake: buffers {mine} here, {theirs} there: both sides must serve the same model")]
    Buffers {
        /// The names of this side's, in order.
        mine: String,
        /// The names of the other's.
        theirs: String,
    },
    /// A buffer with rows of another format.
    #[error(
        "handshake: buffer `{buffer}`: rows of {mine} bytes here, of {theirs} there: use the same KV data type"
    )]
    RowFormat {
        /// The buffer.
        buffer: String,
        /// The parts of this side's rows: `128 + 4`.
        mine: String,
        /// The parts of the other's.
        theirs: String,
    },
    /// A buffer with pages of another size, although rows and page size are the same.
    #[error(
        "handshake: buffer `{buffer}`: pages of {mine} bytes here, of {theirs} there: pages must not be padded"
    )]
    PageBytes {
        /// The buffer.
        buffer: String,
        /// Bytes of this side's.
        mine: u64,
        /// Bytes of the other's.
        theirs: u64,
    },
    /// Another number of layers.
    #[error(
        "handshake: {mine} layers here, {theirs} there (draft layers included): both sides must serve the same model"
    )]
    NumLayers {
        /// Layers of this side.
        mine: usize,
        /// Layers of the other.
        theirs: usize,
    },
    /// A layer with other buffers.
    #[error("handshake: layer {layer} has {mine} here, {theirs} there: both sides must serve the same model")]
    LayerBuffers {
        /// The first such layer.
        layer: usize,
        /// The names of this side's buffers.
        mine: String,
        /// The names of the other's.
        theirs: String,
    },
    /// Another engine.
    #[error("handshake: engine `{mine}` here, `{theirs}` there: start both sides with the same engine")]
    Engine {
        /// This side's.
        mine: String,
        /// The other's.
        theirs: String,
    },
    /// Inboxes for prefill groups of another size.
    #[error(
        "handshake: this prefill group has {mine} ranks, worker {worker} has inboxes for {theirs}: \
         start it for groups of {mine}"
    )]
    GroupSize {
        /// The worker.
        worker: u32,
        /// Ranks of this prefill group.
        mine: u32,
        /// Ranks that the inboxes are made for.
        theirs: u32,
    },
    /// A worker whose memory is not what its geometry says.
    #[error("handshake: worker {worker}: its geometry (here) and its memory (there) differ: {problem}")]
    Memory {
        /// The worker.
        worker: u32,
        /// How.
        problem: PoolMapError,
    },
    /// A value that cannot be.
    #[error(
        "handshake: worker {worker} says {field} is {got}, which must be {expected}: is the message damaged?"
    )]
    Value {
        /// The worker.
        worker: u32,
        /// The field.
        field: &'static str,
        /// What can be.
        expected: &'static str,
        /// What was said.
        got: u64,
    },
    /// A message that cannot be read, or not be written.
    #[error("handshake: {call}: {reason}: is it a message of this library, and whole?")]
    Message {
        /// The call.
        call: &'static str,
        /// Where and why.
        reason: Box<str>,
    },
}
