//! What queued work keeps alive until it has run: let go behind events, never by waiting.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use cust_raw::CUstream;

use super::context::Shared;
use super::event::RawEvent;
use crate::device::{DeviceError, Keep};

/// Keeps behind one event.
const KEEPS_AN_EVENT: usize = 64;

/// The keeps of a stream, in the order of its work.
#[derive(Default)]
pub(super) struct Keeps {
    newest: Vec<Keep>,
    behind: VecDeque<(RawEvent, Vec<Keep>)>,
}

impl Keeps {
    /// Keeps `keep` until what was queued on `stream` so far has run.
    pub(super) fn push(
        &mut self,
        shared: &Arc<Shared>,
        stream: CUstream,
        keep: Keep,
    ) -> Result<(), DeviceError> {
        if self.newest.last().is_some_and(|last| Arc::ptr_eq(last, &keep)) {
            return Ok(());
        }
        self.newest.push(keep);
        if self.newest.len() >= KEEPS_AN_EVENT {
            self.seal(shared, stream)?;
            drop(self.take_done());
        }
        Ok(())
    }

    /// Puts an event behind the newest.
    fn seal(&mut self, shared: &Arc<Shared>, stream: CUstream) -> Result<(), DeviceError> {
        if !self.newest.is_empty() {
            let event = RawEvent::record(shared, stream)?;
            self.behind.push_back((event, mem::take(&mut self.newest)));
        }
        Ok(())
    }

    /// What has run.
    pub(super) fn take_done(&mut self) -> Vec<Keep> {
        let mut done = Vec::new();
        while let Some((_, keeps)) = self.behind.pop_front_if(|(event, _)| is_over(event.query())) {
            done.extend(keeps);
        }
        done
    }

    /// Everything: the stream is idle.
    pub(super) fn take_all(&mut self) -> Vec<Keep> {
        let mut all = mem::take(&mut self.newest);
        all.extend(mem::take(&mut self.behind).into_iter().flat_map(|(_, keeps)| keeps));
        all
    }
}

/// Whether work behind an event that answers so runs no more: it has fired, or a kernel failed, and its context with it.
fn is_over(answer: Result<bool, DeviceError>) -> bool {
    match answer {
        Ok(fired) => fired,
        Err(DeviceError::Cuda { code, .. }) => matches!(code, 214 | 220 | 700..=719),
        Err(_) => false,
    }
}

/// The keeps of streams that were dropped while they had work to do. Of the process, not of a GPU: they hold its context.
static ORPHANS: Mutex<Vec<Keeps>> = Mutex::new(Vec::new());

/// Takes the keeps of `stream`, which is about to be destroyed.
pub(super) fn adopt(shared: &Arc<Shared>, stream: CUstream, mut keeps: Keeps) {
    if keeps.seal(shared, stream).is_err() {
        // Whether the work has run is not known: what it needs stays.
        mem::forget(keeps);
        return;
    }
    ORPHANS.lock().unwrap_or_else(PoisonError::into_inner).push(keeps);
}

/// Lets go of what dropped streams have done since.
pub(super) fn release_orphans() {
    let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
    let done: Vec<_> = orphans.iter_mut().map(Keeps::take_done).collect();
    let (waiting, over): (Vec<Keeps>, Vec<Keeps>) =
        mem::take(&mut *orphans).into_iter().partition(|keeps| !keeps.behind.is_empty());
    *orphans = waiting;
    drop(orphans);
    // Outside the lock: memory goes back to its list here, and perhaps a context to the driver.
    drop((done, over));
}
