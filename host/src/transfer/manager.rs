//! The manager of one rank: registered requests, worker threads, and the calls that a runtime makes.
//!
//! | call | by whom | waits |
//! |---|---|---|
//! | `register`, `open_chunk` | before the forward | never for a stream or the engine's peers |
//! | `on_layer_end`, `end_forward` | the forward's thread | never |
//! | `finish`, `drop_request` | any thread but the forward's | to a deadline |

use std::iter;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::board::{Board, Closed};
use super::clock::Until;
use super::context::{Context, Sent};
use super::desk::Desk;
use super::failure::{Cause, Counts, Payload, TransferError};
use super::finish::{self, AuxBlock, Ending};
use super::ids::RequestId;
use super::outbox::{Outboxes, StartError};
use super::request::{Quiet, RequestSpec};
use super::route::{RequestRun, check_offer};
use super::shared::{ManagerOptions, ManagerParts, Shared};
use super::{threads, wait};
use crate::deadline::Deadline;
use crate::device::{DeviceError, Event};

/// How long a manager that is dropped waits for its threads.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const END_PAUSE: Duration = Duration::from_micros(200);

/// Sends the pages of registered requests, layer by layer.
pub struct TransferManager {
    pub(super) desk: Arc<Desk>,
    outboxes: Outboxes,
    threads: Vec<JoinHandle<()>>,
}

impl TransferManager {
    /// Starts the worker threads. The pool's memory is registered with the engine already.
    ///
    /// # Errors
    /// [`StartError`]: an option that is none, no memory for completion records, or no thread.
    pub fn start(parts: ManagerParts, options: ManagerOptions) -> Result<Self, StartError> {
        options.check()?;
        let num_threads = options.num_threads;
        let shared = Arc::new(Shared::new(parts, options));
        let (max_requests, max_workers) = (shared.options.max_requests, shared.options.max_workers);
        let outboxes = Outboxes::new(&*shared.device, &*shared.engine, max_requests, max_workers)?;
        let desk = Arc::new(Desk {
            shared,
            board: Mutex::<Board>::default(),
            work_came: Condvar::new(),
            stepped: Condvar::new(),
            num_open: AtomicUsize::new(0),
            num_hooked: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
        });
        let mut manager = Self { desk, outboxes, threads: Vec::new() };
        for number in 1..=num_threads {
            manager.threads.push(threads::start(&manager.desk, number)?);
        }
        Ok(manager)
    }

    /// Registers a request, before its forward. Pages that are in the pool already are sent once what is queued on the
    /// stream now is done. A prompt shorter than [`ManagerOptions::min_prompt_tokens`] goes as a whole at `finish`: hooks do nothing
    /// for it.
    ///
    /// # Errors
    /// [`Cause::Registered`], [`Cause::Full`]; an offer or pages that do not fit. Nothing is registered then.
    pub fn register(&self, spec: RequestSpec) -> Result<(), TransferError> {
        let request = spec.offer.request;
        self.try_register(spec).map_err(|cause| refused(request, cause))
    }

    fn try_register(&self, spec: RequestSpec) -> Result<(), Cause> {
        let RequestSpec { offer, decode, prompt_tokens, prefix } = spec;
        let shared = &self.desk.shared;
        let (request, options) = (offer.request, &shared.options);
        check_offer(&shared.source, &decode, &offer)?;
        let max_requests = options.max_requests;
        if decode.workers().len() > options.max_workers as usize {
            let problem =
                format!("has over {} workers, the most that max_workers allows", options.max_workers);
            return Err(Cause::Offer { problem });
        }
        if self.desk.lock().has(request) {
            return Err(Cause::Registered);
        }
        let outbox = self.outboxes.take(&*shared.device, offer.epoch)?;
        let outbox = outbox.ok_or(Cause::Full { max_requests })?;
        let is_per_layer = prompt_tokens >= options.min_prompt_tokens && options.min_prompt_tokens < u32::MAX;
        let context = Context::new(Arc::clone(shared), decode, offer, outbox, is_per_layer);
        let registered = context.add_part(&prefix).and_then(|(part, has_pages)| {
            let event = if has_pages && is_per_layer { Some(self.record(Payload::Layer(0))?) } else { None };
            let mut board = self.desk.lock();
            if board.has(request) {
                return Err(Cause::Registered);
            }
            board.insert(Arc::clone(&context));
            let layers = 0..shared.source.pool.num_layers();
            match event {
                Some(event) => board.enqueue(request, part, layers, &event, shared.event_until()),
                None if has_pages => board.leave_to_finish(request, part, layers),
                None => {}
            }
            self.desk.wake(board);
            Ok(())
        });
        if registered.is_err() {
            self.outboxes.recycle(&context.outbox);
        }
        registered
    }

    /// Whether a request is registered here: the monolithic path then leaves it alone.
    #[doc(alias = "has_room")]
    pub fn has_request(&self, request: RequestId) -> bool {
        self.desk.lock().has(request)
    }

    /// The forward that comes next computes these pages of the request: hooks hand in their layers. Called by the forward's
    /// thread, between forwards. An earlier chunk of it is computed.
    ///
    /// # Errors
    /// [`Cause::NotRegistered`], [`Cause::Closed`]; [`Cause::ForwardOpen`] where a forward has begun; pages that do not fit, or
    /// are part of the request already.
    pub fn open_chunk(&self, request: RequestId, pages: &RequestRun) -> Result<(), TransferError> {
        self.try_open_chunk(request, pages).map_err(|cause| refused(request, cause))
    }

    fn try_open_chunk(&self, request: RequestId, pages: &RequestRun) -> Result<(), Cause> {
        let num_layers = self.desk.shared.source.pool.num_layers();
        // Held throughout: the request is not closed meanwhile.
        let mut board = self.desk.lock();
        let context = board.context(request).ok_or(Cause::NotRegistered)?;
        if board.is_in_forward() {
            return Err(Cause::ForwardOpen);
        }
        if board.is_closed(request) {
            return Err(Cause::Closed);
        }
        let (part, has_pages) = context.add_part(pages)?;
        let was_open = board.end_part(request).ok_or(Cause::Closed)?;
        self.desk.count_ended(&context, was_open);
        // Where nothing of it is sent from here, every layer is complete at once.
        if has_pages {
            board.open(request, part, if context.is_per_layer { num_layers } else { 0 });
            self.desk.count_opened(&context);
        }
        if has_pages && !context.is_per_layer {
            board.leave_to_finish(request, part, 0..num_layers);
        }
        Ok(())
    }

    /// The writes of `layer` to the pool are queued on the stream (compose's `persist_layer` was called: before it, old bytes
    /// would be sent): records ONE event behind them and hands the layer of every open part to the workers. Does nothing where no
    /// part is open, and nothing the second time. A layer that is written several times a forward
    /// ([`ManagerOptions::multi_fire`]) is left to `finish`.
    ///
    /// # Errors
    /// The stream's. The layer is left to `finish`, which says the same.
    pub fn on_layer_end(&self, layer: usize) -> Result<(), DeviceError> {
        // Relaxed: parts are opened by this thread, or before it goes on.
        if self.desk.num_hooked.load(Ordering::Relaxed) == 0 || self.desk.shared.is_multi_fire(layer) {
            return Ok(());
        }
        let event = self.desk.shared.record()?;
        let until = self.desk.shared.event_until();
        let mut board = self.desk.lock();
        if board.hook(layer, &event, until) > 0 {
            self.desk.wake(board);
        }
        Ok(())
    }

    /// Everything of the forward is queued on the stream: records ONE event, behind which `finish` sends what no hook handed
    /// in. Hooks do nothing until the next chunk.
    ///
    /// # Errors
    /// The stream's.
    pub fn end_forward(&self) -> Result<(), DeviceError> {
        if self.desk.num_open.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let event = self.desk.shared.record()?;
        let ended = self.desk.lock().end_forward(&event);
        ended.iter().for_each(|context| self.desk.count_ended(context, true));
        Ok(())
    }

    /// Ends a request, after [`TransferManager::end_forward`] of the last forward that computed a part of it: sends what no hook
    /// handed in, then the `aux` blocks (whose sources are written by what is queued on the stream now), waits until all is
    /// complete, then leaves the completion records. Asked again, it answers the same.
    ///
    /// # Errors
    /// [`Cause::ForwardOpen`], [`Cause::AuxWorker`], [`Cause::NotRegistered`], with nothing done. Else the first cause, and how
    /// far it was: drop the request, then see whether its pages are quiet. Past `timeout` the request has failed, too: this is no
    /// call to poll with ([`TransferManager::progress`] is). `aux` of a second call is not looked at.
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
        let now = self.record(Payload::Record);
        let mut endings = Vec::new();
        let answers: Vec<_> = iter::zip(closed, requests)
            .map(|(closed, (_, aux))| {
                let (context, closed) = closed?;
                match (closed, &now) {
                    (Some(closed), Ok(now)) => {
                        endings.push(Ending::begin(desk, Arc::clone(&context), closed, now, aux.to_vec()));
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
        if let Ok(now) = &now {
            finish::carry_out(desk, endings, now, until);
        }
        answers.into_iter().map(|context| wait::await_outcome(desk, &*context?, until)).collect()
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
        if let Some(aux) = aux.iter().find(|aux| aux.worker as usize >= num_workers) {
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

    /// An event behind everything queued on the stream by now.
    fn record(&self, payload: Payload) -> Result<Arc<dyn Event>, Cause> {
        let shared = &self.desk.shared;
        shared.record().map_err(|source| {
            // The fault that the group found is the better explanation.
            let fault = shared.check_poison(payload).err();
            fault.unwrap_or(Cause::Event { payload, source })
        })
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

    /// Ends the manager: drops every request, and returns those that could not be confirmed quiet within `timeout`, which bounds
    /// the wait for its threads, too. A manager that is merely dropped waits for its threads alone, five seconds at most, and
    /// nobody learns what is in flight.
    pub fn close(mut self, timeout: Duration) -> Vec<(RequestId, Quiet)> {
        let until = Until::after(&*self.desk.shared.clock, timeout);
        let contexts = self.desk.lock().contexts();
        // None goes on sending while another is waited for.
        for context in &contexts {
            context.stop();
        }
        self.desk.tell(&mut self.desk.lock());
        for request in contexts.iter().map(|context| context.id()) {
            let left = until.remaining(&*self.desk.shared.clock);
            // Dropped by somebody else meanwhile.
            let _ = self.drop_request(request, left);
        }
        let quarantined = self.quarantined();
        self.end_threads(until.remaining(&*self.desk.shared.clock));
        quarantined
    }

    /// Has the threads end, and waits for those that do.
    fn end_threads(&mut self, timeout: Duration) {
        self.desk.is_stopping.store(true, Ordering::Relaxed);
        // Under the lock, so that no thread is between its look and its wait.
        drop(self.desk.lock());
        self.desk.work_came.notify_all();
        let deadline = Deadline::after(timeout);
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && !deadline.expired() {
                thread::sleep(END_PAUSE);
            }
            // One that the engine blocks goes on alone, and ends when it comes back.
            if thread.is_finished() {
                // A thread that panicked has nothing more to do.
                let _ = thread.join();
            }
        }
    }

    /// Does what a worker would do next, without waiting for an event that has not fired; whether there was anything. For
    /// callers that bring their own threads.
    pub fn drive(&self) -> bool {
        let has_stepped = threads::step(&self.desk);
        if !has_stepped {
            self.desk.look();
        }
        has_stepped
    }
}

impl Drop for TransferManager {
    fn drop(&mut self) {
        let contexts = self.desk.lock().contexts();
        for context in contexts {
            context.stop();
        }
        self.end_threads(END_TIMEOUT);
        // Where something may read it yet, the engine keeps it.
        if self.outboxes.all_free() {
            let _ = self.desk.shared.engine.unregister(self.outboxes.registration());
        }
    }
}

fn refused(request: RequestId, cause: Cause) -> TransferError {
    TransferError { request, cause: Box::new(cause), counts: Counts::default() }
}
