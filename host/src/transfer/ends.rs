//! The calls that end requests: finished, by a wait or by polls, or dropped.

use std::iter;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::board::Closed;
use super::clock::Until;
use super::context::{Context, Sent};
use super::extras::AuxBlock;
use super::failure::{Cause, Payload, TransferError};
use super::finish::{self, Ending};
use super::ids::RequestId;
use super::manager::{TransferManager, refused};
use super::request::Quiet;
use super::wait;

impl TransferManager {
    /// Ends a request, after [`TransferManager::end_forward`] of the last forward that computed a part of it: sends what no hook
    /// handed in, then the `aux` blocks (whose sources are written by what is queued on the stream now), waits until all is
    /// complete, then leaves the completion records. Asked again, it answers the same.
    ///
    /// # Errors
    /// [`Cause::ForwardOpen`], [`Cause::AuxWorker`], [`Cause::NotRegistered`], with nothing done. Else the first cause, and how
    /// far it was: drop the request, then see whether its pages are quiet. Past `timeout` the request has failed, too, unless somebody
    /// else finishes it: who does not want to wait calls [`TransferManager::poll_finish`]. `aux` of a second call is not looked at.
    pub fn finish(
        &self,
        request: RequestId,
        aux: &[AuxBlock],
        timeout: Duration,
    ) -> Result<Sent, TransferError> {
        let ended = self.finish_all(&[(request, aux)], timeout).pop();
        ended.unwrap_or_else(|| Err(refused(request, Cause::NotRegistered)))
    }

    /// Ends requests as [`TransferManager::finish`] does, side by side: none waits for another's completion, and the call returns
    /// with the last. The answers are in the order of `requests`; one that fails does not keep the others from their ends (but
    /// pages that went as one batch are lost together).
    pub fn finish_all(
        &self,
        requests: &[(RequestId, &[AuxBlock])],
        timeout: Duration,
    ) -> Vec<Result<Sent, TransferError>> {
        let desk = &*self.desk;
        let until = Until::after(&*desk.shared.clock, timeout);
        let closed: Vec<_> =
            requests.iter().map(|(request, aux)| self.close_request(*request, aux)).collect();
        let now = self.desk.shared.record_for(Payload::Record);
        let mut endings = Vec::new();
        let answers: Vec<_> = iter::zip(closed, requests)
            .map(|(closed, (_, aux))| {
                let (context, closed) = closed?;
                match (closed, &now) {
                    (Some(closed), Ok(now)) => {
                        let (context, now) = (Arc::clone(&context), Arc::clone(now));
                        endings.push(Ending::begin(desk, context, closed, now, aux.to_vec()));
                    }
                    (Some(_), Err(cause)) => {
                        context.fail(cause.clone());
                        context.keep_outcome();
                    }
                    (None, _) => {}
                }
                Ok(context)
            })
            .collect();
        finish::carry_out(desk, endings, until);
        answers.into_iter().map(|context| wait::await_outcome(desk, &context?, until)).collect()
    }

    /// [`TransferManager::finish`] for a caller that has other things to do: goes as far as it can without waiting, and is called
    /// again until it is ready. It has no deadline of its own: an event that does not fire and a batch that does not end fail the
    /// request in their time, and who gives up drops it (until then the engine is asked as often as if he waited). `aux` of a later
    /// call is not looked at. Without threads, each call does what [`TransferManager::drive`] does.
    ///
    /// # Errors
    /// As of [`TransferManager::finish`], but for a timeout.
    pub fn poll_finish(&self, request: RequestId, aux: &[AuxBlock]) -> Poll<Result<Sent, TransferError>> {
        let desk = &*self.desk;
        let (context, closed) = match self.close_request(request, aux) {
            Ok(closed) => closed,
            Err(refused) => return Poll::Ready(Err(refused)),
        };
        match closed.map(|closed| self.desk.shared.record_for(Payload::Record).map(|now| (closed, now))) {
            Some(Ok((closed, now))) => {
                desk.polled
                    .insert(desk, Ending::begin(desk, Arc::clone(&context), closed, now, aux.to_vec()));
            }
            Some(Err(cause)) => {
                context.fail(cause);
                context.keep_outcome();
            }
            None => {}
        }
        if desk.shared.options.num_threads == 0 {
            self.drive();
        }
        desk.polled.advance(desk, &context);
        let outcome = context.lock().outcome.clone();
        outcome.map_or(Poll::Pending, Poll::Ready)
    }

    /// Closes a request to hooks, for finish; `None` where somebody did before.
    fn close_request(
        &self,
        request: RequestId,
        aux: &[AuxBlock],
    ) -> Result<(Arc<Context>, Option<Closed>), TransferError> {
        let mut board = self.desk.lock();
        let context = board.context(request).ok_or_else(|| refused(request, Cause::NotRegistered))?;
        let num_workers = context.decode.workers().len();
        let strange = aux.iter().find(|aux| aux.worker as usize >= num_workers);
        if let Some(aux) = strange.filter(|_| !board.is_closed(request)) {
            return Err(refused(request, Cause::AuxWorker { worker: aux.worker, num_workers }));
        }
        if board.is_open(request) && context.lock().may_send() {
            return Err(refused(request, Cause::ForwardOpen));
        }
        let closed = board.close(request);
        drop(board);
        if let Some((_, was_open)) = closed {
            self.desk.count_ended(&context, was_open);
        }
        Ok((context, closed.map(|(closed, _)| closed)))
    }

    /// Drops a request, finished or not: nothing more is sent, and what is in flight is waited for. Where that does not end in
    /// time the request stays registered, its pages quarantined; ask again, or [`TransferManager::confirm_quiet`].
    ///
    /// # Errors
    /// [`Cause::NotRegistered`].
    pub fn drop_request(&self, request: RequestId, timeout: Duration) -> Result<Quiet, TransferError> {
        let mut board = self.desk.lock();
        let context = board.context(request).ok_or_else(|| refused(request, Cause::NotRegistered))?;
        let closed = board.close(request).map(|(_, was_open)| was_open);
        drop(board);
        let is_news = context.stop();
        if let Some(was_open) = closed {
            self.desk.count_ended(&context, was_open);
            // Nobody finishes it: who asks is told that it was dropped.
            context.keep_outcome();
        }
        // Whoever polls it may have stopped to.
        self.desk.polled.advance(&self.desk, &context);
        if is_news {
            self.desk.tell(&mut self.desk.lock());
        }
        let until = Until::after(&*self.desk.shared.clock, timeout);
        wait::await_idle(&self.desk, &context, until);
        let quiet = context.unquiet();
        // Who removes it gives its outbox back: one call, whoever else drops it at the same time.
        if quiet == Quiet::Confirmed && self.desk.lock().remove(&context) {
            self.outboxes.recycle(&context.outbox);
        }
        Ok(quiet)
    }

    /// The caller knows from elsewhere that nothing of a failed or dropped request touches memory any more: the worker's
    /// process has ended, or its registrations have. Then drop it: that gives its room back. Batches in flight are given up, by
    /// [`TransferEngine::abandon`](super::TransferEngine::abandon) on this thread.
    ///
    /// # Errors
    /// [`Cause::NotRegistered`]; [`Cause::Unconfirmable`] where it still runs, or the engine is taking a batch of it.
    pub fn confirm_quiet(&self, request: RequestId) -> Result<(), TransferError> {
        let context =
            self.desk.lock().context(request).ok_or_else(|| refused(request, Cause::NotRegistered))?;
        let confirmed = context.confirm_quiet().map_err(|cause| refused(request, cause));
        self.desk.tell(&mut self.desk.lock());
        confirmed
    }
}
