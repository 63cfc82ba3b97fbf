//! The delivery thread of an endpoint: copies turn by turn, and looks between turns whether it may go on.

use std::sync::PoisonError;

use super::copy::copy;
use super::endpoint::{Endpoint, TICK};
use super::queue::Turn;

/// The thread's work, until the endpoint is closed.
pub(super) fn deliver(endpoint: &Endpoint) {
    while let Some(turn) = next_turn(endpoint) {
        for &piece in &turn.pieces {
            // SAFETY: the submit found source and destination in registered host memory, which `turn.keep` keeps alive.
            // Who submitted leaves both alone until the batch is done, but for loads of words.
            unsafe { copy(piece) };
        }
        // Before the end is told: who learns of it may count on the memory being let go.
        drop(turn.keep);
        endpoint.lock().queue.end_turn(endpoint.around());
        endpoint.changed.notify_all();
    }
}

/// Waits for something to copy; `None` once closed.
fn next_turn(endpoint: &Endpoint) -> Option<Turn> {
    let mut inner = endpoint.lock();
    loop {
        if inner.closed {
            return None;
        }
        let around = endpoint.around();
        inner.queue.sweep(around);
        if let Some(turn) = inner.queue.begin_turn(around) {
            return Some(turn);
        }
        // Without batches only a caller brings work, and wakes this thread.
        inner = match inner.queue.is_empty() {
            true => endpoint.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
            false => endpoint.pause(inner, TICK),
        };
    }
}
