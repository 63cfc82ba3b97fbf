//! What a decode worker says of itself.

use serde::{Deserialize, Serialize};

use super::{Geometry, HandshakeError, InboxMemory, check, hex};
use crate::transfer::PoolMap;
use crate::transfer::record::WIRE_VERSION;
use crate::units::GroupSize;

/// What a decode worker says of itself: to the directory of its group, and to every prefill rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerHello {
    /// The worker: `0 <= worker < num_workers`.
    pub worker: u32,
    /// Workers of the decode group, 1 to 64.
    pub num_workers: u32,
    /// What its pages are made of.
    pub geometry: Geometry,
    /// Where its pages lie.
    pub pool: PoolMap,
    /// Where its inboxes lie.
    pub inboxes: InboxMemory,
    /// The engine it can be written to with.
    pub engine: String,
    /// What that engine's `add_peer` needs.
    #[serde(with = "hex")]
    pub engine_metadata: Vec<u8>,
}

/// The part of a message that is read first: a message of another version may have other fields.
#[derive(Deserialize)]
struct Versioned {
    geometry: VersionedGeometry,
}

#[derive(Deserialize)]
struct VersionedGeometry {
    version: u32,
}

impl WorkerHello {
    /// The message that is sent.
    ///
    /// # Errors
    /// [`HandshakeError::Message`].
    pub fn to_json(&self) -> Result<String, HandshakeError> {
        serde_json::to_string(self).map_err(|error| message_error("write a worker's hello", &error))
    }

    /// The worker's words of [`WorkerHello::to_json`]. They are not compared with anything yet.
    ///
    /// # Errors
    /// [`HandshakeError::Version`]; [`HandshakeError::Message`] for what is no such message.
    pub fn from_json(json: &str) -> Result<Self, HandshakeError> {
        let unreadable = |error: serde_json::Error| message_error("read a worker's hello", &error);
        let first: Versioned = serde_json::from_str(json).map_err(unreadable)?;
        let theirs = first.geometry.version;
        if theirs != WIRE_VERSION {
            return Err(HandshakeError::Version { mine: WIRE_VERSION, theirs });
        }
        serde_json::from_str(json).map_err(unreadable)
    }

    /// Whether this worker can receive pages of geometry `mine` through the engine called `engine`.
    ///
    /// # Errors
    /// [`HandshakeError`]: the first field that does not fit.
    pub fn check(&self, mine: &Geometry, engine: &str) -> Result<(), HandshakeError> {
        check(mine, &self.geometry)?;
        let worker = self.worker;
        if self.engine != engine {
            let (mine, theirs) = (engine.to_owned(), self.engine.clone());
            return Err(HandshakeError::Engine { mine, theirs });
        }
        let refuse = |field, expected, got| Err(HandshakeError::Value { worker, field, expected, got });
        if GroupSize::new(self.num_workers).is_err() {
            return refuse("num_workers", "1 to 64", u64::from(self.num_workers));
        }
        if worker >= self.num_workers {
            return refuse("worker", "below num_workers", u64::from(worker));
        }
        let pages = self.geometry.shard(self.pool.num_pages);
        pages.check_alike(&self.pool).map_err(|problem| HandshakeError::Memory { worker, problem })?;
        for buffer in self.pool.layers.iter().flatten() {
            let bytes = buffer.page_bytes.checked_mul(u64::from(self.pool.num_pages));
            if bytes.and_then(|bytes| buffer.addr.checked_add(bytes)).is_none() {
                return refuse("a buffer's addr", "so that all its pages have addresses", buffer.addr);
            }
        }
        self.inboxes.check(worker)
    }

    /// Whether a prefill group of `group_size` ranks fits this worker's inboxes.
    ///
    /// # Errors
    /// [`HandshakeError::GroupSize`].
    pub const fn check_group_size(&self, group_size: GroupSize) -> Result<(), HandshakeError> {
        let (worker, mine, theirs) = (self.worker, group_size.get(), self.inboxes.group_size);
        if mine == theirs { Ok(()) } else { Err(HandshakeError::GroupSize { worker, mine, theirs }) }
    }
}

fn message_error(call: &'static str, error: &serde_json::Error) -> HandshakeError {
    HandshakeError::Message { call, reason: error.to_string().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelSpec;

    fn geometry() -> Geometry {
        Geometry::of(&ModelSpec::preset("tiny").unwrap()).unwrap()
    }

    fn hello() -> WorkerHello {
        let mut pool = geometry().shard(6);
        for (buffer, i) in pool.layers.iter_mut().flatten().zip(1..) {
            buffer.addr = i << 20;
        }
        let inboxes = InboxMemory { addr: 1 << 30, num_inboxes: 4, group_size: 8, num_words: 5 };
        let engine = "in-process".to_owned();
        let engine_metadata = vec![0, 255, 16];
        WorkerHello {
            worker: 2,
            num_workers: 3,
            geometry: geometry(),
            pool,
            inboxes,
            engine,
            engine_metadata,
        }
    }

    fn refused(change: impl Fn(&mut WorkerHello)) -> String {
        let mut hello = hello();
        change(&mut hello);
        hello.check(&geometry(), "in-process").unwrap_err().to_string()
    }

    #[test]
    fn a_hello_comes_back_from_json() {
        let json = hello().to_json().unwrap();
        assert!(json.contains("\"engine_metadata\":\"00ff10\""), "{json}");
        let back = WorkerHello::from_json(&json).unwrap();
        assert_eq!(back, hello());
        assert_eq!(back.check(&geometry(), "in-process"), Ok(()));
        assert_eq!(back.check_group_size(GroupSize::new(8).unwrap()), Ok(()));
    }

    #[test]
    fn what_does_not_fit_is_named_with_both_values() {
        let cases = [
            (refused(|hello| hello.geometry.page_size = 8), "page size 4 here, 8 there"),
            (refused(|hello| hello.engine = "nixl".to_owned()), "engine `in-process` here, `nixl` there"),
            (refused(|hello| hello.worker = 3), "worker is 3, which must be below num_workers"),
            (refused(|hello| hello.num_workers = 65), "num_workers is 65, which must be 1 to 64"),
            (refused(|hello| hello.inboxes.num_words = 0), "inboxes.num_words is 0"),
            (refused(|hello| hello.pool.layers.truncate(2)), "4 layers here, 2 there"),
            (refused(|hello| hello.pool.layers[2].truncate(1)), "layer 2: 2 buffers here, 1 there"),
            (
                refused(|hello| hello.pool.layers[0].swap(0, 1)),
                "layer 0, buffer 0: pages of 128 bytes here, of 528 there",
            ),
            (
                refused(|hello| hello.pool.layers[3][0].addr = u64::MAX),
                "a buffer's addr is 18446744073709551615",
            ),
        ];
        for (error, message) in cases {
            assert!(error.contains(message), "{error}");
        }
        let error = hello().check_group_size(GroupSize::new(4).unwrap()).unwrap_err().to_string();
        assert!(error.contains("group has 4 ranks, worker 2 has inboxes for 8"), "{error}");
    }

    #[test]
    fn a_message_of_another_version_is_told_by_its_version_whatever_else_it_holds() {
        let error = WorkerHello::from_json(r#"{"geometry": {"version": 2, "shape": []}}"#).unwrap_err();
        assert_eq!(error, HandshakeError::Version { mine: 1, theirs: 2 });
    }

    #[test]
    fn damaged_messages_are_refused_with_the_place() {
        let json = hello().to_json().unwrap();
        let damaged = [&json[..json.len() / 2], "", "{}", &json.replace("00ff10", "00ff1")];
        for text in damaged {
            let error = WorkerHello::from_json(text).unwrap_err();
            assert!(matches!(error, HandshakeError::Message { .. }), "{error}");
            assert!(error.to_string().contains("line 1 column"), "{error}");
        }
    }
}
