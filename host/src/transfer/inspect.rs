//! How far a manager's requests are: for callers that look, and wait for nothing.

use super::failure::TransferError;
use super::ids::RequestId;
use super::ledger::PageState;
use super::manager::TransferManager;
use super::request::{Load, Progress, Quiet};

impl TransferManager {
    /// The failure of a request, as soon as there is one; `None` while it runs, and where it is not registered.
    pub fn failure(&self, request: RequestId) -> Option<TransferError> {
        let context = self.desk.lock().context(request)?;
        let state = context.lock();
        context.error(&state)
    }

    /// How far a request is; `None` where it is not registered.
    pub fn progress(&self, request: RequestId) -> Option<Progress> {
        let context = self.desk.lock().context(request)?;
        let state = context.lock();
        Some(Progress {
            unsent: state.num(PageState::Unsent),
            in_flight: state.num(PageState::InFlight),
            sent: state.num(PageState::Sent),
            unknown: state.num(PageState::Unknown),
            is_quiet: state.is_quiet(),
            is_caught_up: context.is_per_layer
                && state.may_send()
                && state.is_idle()
                && state.counts.processed == context.num_enqueued(),
            num_batches: state.sent.num_batches,
        })
    }

    /// What the manager has to do yet, over all its requests.
    pub fn load(&self) -> Load {
        let board = self.desk.lock();
        let (num_queued, contexts) = (board.num_jobs(), board.contexts());
        drop(board);
        let mut load = Load { num_requests: contexts.len(), num_queued, ..Load::default() };
        for context in contexts {
            let state = context.lock();
            load.num_batches += state.flights.len();
            load.bytes += state.flights.iter().map(|flight| flight.span.bytes).sum::<u64>();
        }
        load
    }

    /// What dropped requests have left in quarantine, by request.
    pub fn quarantined(&self) -> Vec<(RequestId, Quiet)> {
        let contexts = self.desk.lock().contexts();
        let dropped = contexts.iter().filter(|context| context.lock().is_dropped());
        let quarantined = dropped.map(|context| (context.id(), context.unquiet()));
        let mut quarantined: Vec<_> = quarantined.filter(|(_, quiet)| *quiet != Quiet::Confirmed).collect();
        quarantined.sort_by_key(|(request, _)| *request);
        quarantined
    }
}
