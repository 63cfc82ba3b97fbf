//! A context: what belongs together on one device of one process, and fails together.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::code::Code;
use super::device::Device;
use super::done::Done;
use super::lock;
use super::stream::Stream;

/// The streams of a context. Work is put on streams under this lock, so that the default stream's order is one order.
#[derive(Default)]
pub(super) struct Streams {
    /// The legacy default stream, once used.
    pub(super) legacy: Option<Arc<Stream>>,
    /// The others, and those destroyed whose work is not finished.
    pub(super) others: Vec<Arc<Stream>>,
}

/// A context.
pub(super) struct Context {
    /// Its number, which is its handle.
    pub(super) number: u64,
    /// Where it lives.
    pub(super) device: Arc<Device>,
    /// Whether it is its device's primary context.
    pub(super) primary: bool,
    /// The flags it was made with.
    pub(super) flags: AtomicU32,
    failure: OnceLock<Code>,
    destroyed: AtomicBool,
    peers: Mutex<BTreeSet<u64>>,
    streams: Mutex<Streams>,
}

impl Context {
    pub(super) fn new(number: u64, device: Arc<Device>, primary: bool, flags: u32) -> Context {
        Context {
            number,
            device,
            primary,
            flags: AtomicU32::new(flags),
            failure: OnceLock::new(),
            destroyed: AtomicBool::new(false),
            peers: Mutex::default(),
            streams: Mutex::default(),
        }
    }

    /// Fails the context for ever: every later call on it gives `code`. The first failure stays.
    pub(super) fn fail(&self, code: Code) {
        let _ = self.failure.set(code);
    }

    /// What it failed with.
    pub(super) fn failure(&self) -> Option<Code> {
        self.failure.get().copied()
    }

    /// Whether calls on it still mean something.
    ///
    /// # Errors
    ///
    /// `ContextIsDestroyed`, or what it failed with.
    pub(super) fn check(&self) -> Result<(), Code> {
        if self.destroyed.load(Ordering::Acquire) {
            return Err(Code::ContextIsDestroyed);
        }
        self.failure().map_or(Ok(()), Err)
    }

    /// Whether running work is to be given up.
    pub(super) fn is_over(&self) -> bool {
        self.check().is_err()
    }

    /// Gives it up; its streams' threads end.
    pub(super) fn destroy(&self) {
        self.destroyed.store(true, Ordering::Release);
        let streams = std::mem::take(&mut *self.streams());
        streams.legacy.iter().chain(&streams.others).for_each(|stream| stream.close());
    }

    /// The streams, locked.
    pub(super) fn streams(&self) -> MutexGuard<'_, Streams> {
        lock::mutex(&self.streams)
    }

    /// Whether any stream of it is being captured.
    pub(super) fn is_capturing(&self) -> bool {
        self.streams().others.iter().any(|stream| stream.capture().is_some())
    }

    /// Everything put on its streams and not finished.
    pub(super) fn unfinished(&self) -> Vec<Arc<Done>> {
        let streams = self.streams();
        let all = streams.legacy.iter().chain(&streams.others);
        all.filter_map(|stream| stream.unfinished()).collect()
    }

    /// What its streams are doing, for a report.
    pub(super) fn describe(&self) -> String {
        let streams = self.streams();
        let all = streams.legacy.iter().chain(&streams.others);
        let busy: Vec<String> = all.filter_map(|stream| stream.describe()).collect();
        if busy.is_empty() { "its streams are idle".to_owned() } else { busy.join("; ") }
    }

    /// Whether peer access to another context's memory is enabled.
    pub(super) fn reaches(&self, other: u64) -> bool {
        lock::mutex(&self.peers).contains(&other)
    }

    /// Enables peer access; false if it was enabled.
    pub(super) fn enable_peer(&self, other: u64) -> bool {
        lock::mutex(&self.peers).insert(other)
    }

    /// Disables peer access; false if it was not enabled.
    pub(super) fn disable_peer(&self, other: u64) -> bool {
        lock::mutex(&self.peers).remove(&other)
    }
}
