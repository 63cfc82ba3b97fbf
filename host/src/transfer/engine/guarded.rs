//! Calls of an engine whose code is not ours: a panic in one must not take a transfer thread with it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{BatchId, BatchState, EngineError, EngineProblem, PeerId, TransferEngine};
use crate::transfer::blocks::Block;

/// What came of a submit.
pub(in crate::transfer) enum Submitted {
    /// The engine has the batch.
    Taken(BatchId),
    /// It has nothing of it.
    Refused(EngineError),
    /// It panicked: nobody knows what it has.
    Unknown(EngineError),
}

/// [`TransferEngine::submit`].
pub(in crate::transfer) fn submit(engine: &dyn TransferEngine, peer: PeerId, blocks: &[Block]) -> Submitted {
    // What an engine leaves behind in a panic is its own affair: nothing of ours is touched in the call.
    match catch_unwind(AssertUnwindSafe(|| engine.submit(peer, blocks))) {
        Ok(Ok(batch)) => Submitted::Taken(batch),
        Ok(Err(error)) => Submitted::Refused(error),
        Err(panic) => Submitted::Unknown(panicked("submit", &*panic)),
    }
}

/// [`TransferEngine::poll`]; the batch has failed where it panics.
pub(in crate::transfer) fn poll(
    engine: &dyn TransferEngine,
    batch: BatchId,
) -> Result<BatchState, EngineError> {
    let answer = catch_unwind(AssertUnwindSafe(|| engine.poll(batch)));
    answer.unwrap_or_else(|panic| Err(panicked("poll", &*panic)))
}

/// [`TransferEngine::abandon`]; nothing is known to be quiet where it panics.
pub(in crate::transfer) fn abandon(engine: &dyn TransferEngine, batch: BatchId) -> bool {
    catch_unwind(AssertUnwindSafe(|| engine.abandon(batch))).unwrap_or(false)
}

fn panicked(call: &'static str, panic: &(dyn Any + Send)) -> EngineError {
    let reason = format!("the engine panicked: {}", message_of(panic)).into();
    EngineError::new("engine", call, EngineProblem::Foreign { code: i64::MIN, reason })
}

/// What a panic says.
pub(super) fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
