//! The manager of one rank: registered requests, worker threads, and the calls that a runtime makes.
//!
//! | call | by whom | waits |
//! |---|---|---|
//! | `register`, `open_chunk` | before the forward | never for a stream or the engine's peers |
//! | `on_layer_end`, `end_forward` | the forward's thread | never |
//! | `poll_finish` | any thread | never |
//! | `finish`, `drop_request` | any thread but the forward's | to a deadline |

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::board::Board;
use super::clock::Until;
use super::context::Context;
use super::desk::Desk;
use super::failure::{Cause, Counts, Payload, TransferError};
use super::ids::RequestId;
use super::options::ManagerOptions;
use super::outbox::Outboxes;
use super::polled::Polled;
use super::request::{Quiet, RequestSpec};
use super::route::{RequestRun, check_offer};
use super::shared::{ManagerParts, Shared};
use super::start_error::StartError;
use super::threads;
use crate::deadline::Deadline;
use crate::device::DeviceError;

/// How long a manager that is dropped waits for its threads, and for the engine to forget its memory.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends the pages of registered requests, layer by layer.
pub struct TransferManager {
    pub(super) desk: Arc<Desk>,
    pub(super) outboxes: Outboxes,
    threads: Vec<JoinHandle<()>>,
    end_timeout: Duration,
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
            polled: Polled::default(),
            work_came: Condvar::new(),
            stepped: Condvar::new(),
            num_open: AtomicUsize::new(0),
            num_hooked: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
        });
        let mut manager = Self { desk, outboxes, threads: Vec::new(), end_timeout: END_TIMEOUT };
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
        let added = context.plan(&prefix).and_then(|part| context.add(&prefix, part));
        let registered = added.and_then(|(part, has_pages)| {
            let event =
                if has_pages && is_per_layer { Some(shared.record_for(Payload::Layer(0))?) } else { None };
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
        let context = self.desk.lock().context(request).ok_or(Cause::NotRegistered)?;
        let part = context.plan(pages)?;
        // Held from here: the request is not closed meanwhile.
        let mut board = self.desk.lock();
        if !board.is_there(&context) {
            return Err(Cause::NotRegistered);
        }
        if board.is_in_forward() {
            return Err(Cause::ForwardOpen);
        }
        if board.is_closed(request) {
            return Err(Cause::Closed);
        }
        let (part, has_pages) = context.add(pages, part)?;
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

    /// Ends the manager: drops every request, and returns those that could not be confirmed quiet within `timeout`, which bounds
    /// what its end waits for, too: its threads, and the engine that forgets its memory. A manager that is merely dropped waits for
    /// those alone, five seconds at most, and
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
        self.end_timeout = until.remaining(&*self.desk.shared.clock);
        quarantined
    }

    /// Has the threads end, and waits for those that do.
    fn end_threads(&mut self, deadline: Deadline) {
        self.desk.is_stopping.store(true, Ordering::Relaxed);
        // Under the lock, so that no thread is between its look and its wait.
        drop(self.desk.lock());
        self.desk.work_came.notify_all();
        self.threads.drain(..).for_each(|thread| threads::end_thread(thread, deadline));
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
        let deadline = Deadline::after(self.end_timeout);
        self.end_threads(deadline);
        self.outboxes.unregister(&self.desk.shared.engine, deadline);
    }
}

pub(super) fn refused(request: RequestId, cause: Cause) -> TransferError {
    TransferError { request, cause: Box::new(cause), counts: Counts::default() }
}
