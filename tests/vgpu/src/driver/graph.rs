//! Graphs: work captured once, replayed in the order it was captured.

use std::sync::{Arc, Mutex};

use super::code::Code;
use super::done::Done;
use super::driver::Driver;
use super::lock;
use super::stream::{Stream, Submitted};
use super::work::Work;

/// A captured graph.
pub(super) struct Graph {
    /// The context it was captured in, by number.
    pub(super) context: u64,
    /// Its nodes, each after those it depends on.
    pub(super) nodes: Arc<[Work]>,
    /// The nodes' handles.
    pub(super) handles: Vec<u64>,
}

/// A graph that can be launched.
pub(super) struct Exec {
    /// The context it was captured in, by number.
    pub(super) context: u64,
    /// Its nodes.
    pub(super) nodes: Arc<[Work]>,
    /// Its latest launch: launches of one graph do not overlap.
    last: Mutex<Option<Arc<Done>>>,
}

impl Exec {
    pub(super) fn new(graph: &Graph) -> Exec {
        Exec { context: graph.context, nodes: Arc::clone(&graph.nodes), last: Mutex::default() }
    }

    /// Puts a launch on a stream.
    ///
    /// # Errors
    ///
    /// As [`Stream::submit`], `InvalidContext` on a stream of another context.
    pub(super) fn launch(self: &Arc<Self>, driver: &'static Driver, stream: &Stream) -> Result<(), Code> {
        if stream.context.number != self.context {
            return Err(Code::InvalidContext);
        }
        let mut last = lock::mutex(&self.last);
        let after = last.iter().cloned().collect();
        if let Submitted::Queued(done) = stream.submit(driver, Work::Graph(Arc::clone(self)), after)? {
            *last = Some(done);
        }
        Ok(())
    }
}
