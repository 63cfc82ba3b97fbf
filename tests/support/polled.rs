//! The end of a request by polls.

use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use cpkv::transfer::{RequestId, Sent, TransferError, TransferManager};

use crate::transfer::LONG;

/// Polls a request's end until there is an answer.
pub(crate) fn polled(manager: &TransferManager, id: RequestId) -> Result<Sent, TransferError> {
    let begun = Instant::now();
    loop {
        if let Poll::Ready(answer) = manager.poll_finish(id, &[]) {
            return answer;
        }
        assert!(begun.elapsed() < LONG, "never ready");
        thread::sleep(Duration::from_micros(200));
    }
}
