//! Handles: numbers that stand for objects, so that a stale or foreign handle is an error and not a crash.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use super::code::Code;
use super::lock;

/// The objects of one kind, by handle.
pub(super) struct Table<T> {
    objects: RwLock<BTreeMap<u64, Arc<T>>>,
    next: AtomicU64,
    unknown: Code,
}

impl<T> Table<T> {
    /// An empty table. `kind` (from 1) keeps the handles of two tables apart; `unknown` is the answer for handles that
    /// are not in it.
    pub(super) fn new(kind: u64, unknown: Code) -> Table<T> {
        Table { objects: RwLock::default(), next: AtomicU64::new(kind << 40), unknown }
    }

    /// A handle that is not in use.
    pub(super) fn fresh(&self) -> u64 {
        self.next.fetch_add(16, Ordering::Relaxed) + 16
    }

    /// Puts an object in under a handle from [`Table::fresh`].
    pub(super) fn put(&self, handle: u64, object: Arc<T>) {
        lock::write(&self.objects).insert(handle, object);
    }

    /// Puts an object in; its handle.
    pub(super) fn insert(&self, object: Arc<T>) -> u64 {
        let handle = self.fresh();
        self.put(handle, object);
        handle
    }

    /// The object with a handle.
    pub(super) fn get(&self, handle: u64) -> Result<Arc<T>, Code> {
        lock::read(&self.objects).get(&handle).cloned().ok_or(self.unknown)
    }

    /// Takes an object out.
    pub(super) fn remove(&self, handle: u64) -> Result<Arc<T>, Code> {
        lock::write(&self.objects).remove(&handle).ok_or(self.unknown)
    }

    /// Takes out all objects that `gone` names.
    pub(super) fn remove_all(&self, gone: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let removed = {
            let mut objects = lock::write(&self.objects);
            let (out, kept) = std::mem::take(&mut *objects).into_iter().partition(|(_, object)| gone(object));
            *objects = kept;
            out
        };
        BTreeMap::into_values(removed).collect()
    }

    /// Whether `wanted` likes any object.
    pub(super) fn any(&self, wanted: impl Fn(&T) -> bool) -> bool {
        lock::read(&self.objects).values().any(|object| wanted(object))
    }

    /// The handle and object that `wanted` likes.
    pub(super) fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<(u64, Arc<T>)> {
        let objects = lock::read(&self.objects);
        let found = objects.iter().find(|(_, object)| wanted(object));
        found.map(|(handle, object)| (*handle, Arc::clone(object)))
    }
}
