//! Captures: work that streams write into a graph instead of doing it.

use std::cell::Cell;
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, ThreadId};

use super::code::Code;
use super::lock;
use super::stream::Stream;
use super::work::Work;

/// Which calls a capture forbids: `CUstreamCaptureMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Unsafe calls of any thread.
    Global,
    /// Unsafe calls of the thread that captures.
    ThreadLocal,
    /// None.
    Relaxed,
}

impl Mode {
    /// By CUDA's number.
    pub(super) fn from_number(number: i32) -> Result<Mode, Code> {
        match number {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(Code::InvalidValue),
        }
    }
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Sets this thread's mode; the one before.
pub(super) fn exchange_mode(mode: Mode) -> Mode {
    MODE.replace(mode)
}

/// One capture: the nodes so far.
pub(super) struct Capture {
    mode: Mode,
    thread: ThreadId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nodes: Vec<Node>,
    members: Vec<Weak<Stream>>,
    invalid: bool,
    ended: bool,
}

struct Node {
    work: Work,
    after: Vec<usize>,
}

/// A stream's part in a capture.
pub(super) struct Capturing {
    /// The capture.
    pub(super) capture: Arc<Capture>,
    /// The nodes that its next node comes after.
    pub(super) front: Vec<usize>,
}

impl Capturing {
    /// Adds a node.
    pub(super) fn add(&mut self, work: Work) -> Result<(), Code> {
        let mut state = lock::mutex(&self.capture.state);
        if state.invalid {
            return Err(Code::StreamCaptureInvalidated);
        }
        let front = std::mem::take(&mut self.front);
        self.front = vec![state.nodes.len()];
        state.nodes.push(Node { work, after: front });
        Ok(())
    }

    /// Makes the next node come after others of the same capture.
    pub(super) fn join(&mut self, capture: &Arc<Capture>, front: &[usize]) -> Result<(), Code> {
        if !Arc::ptr_eq(&self.capture, capture) {
            self.capture.invalidate();
            capture.invalidate();
            return Err(Code::StreamCaptureMerge);
        }
        self.front.extend(front);
        Ok(())
    }
}

impl Capture {
    /// Spoils it: every later call on it fails.
    pub(super) fn invalidate(&self) {
        lock::mutex(&self.state).invalid = true;
    }

    /// Whether it is spoilt.
    pub(super) fn is_invalid(&self) -> bool {
        lock::mutex(&self.state).invalid
    }

    /// Takes a further stream in.
    pub(super) fn admit(&self, stream: &Arc<Stream>) -> Result<(), Code> {
        let mut state = lock::mutex(&self.state);
        if state.ended {
            return Err(Code::CapturedEvent);
        }
        state.members.push(Arc::downgrade(stream));
        Ok(())
    }

    fn forbids(&self, mode: Mode) -> bool {
        let own = self.mode != Mode::Relaxed && self.thread == thread::current().id();
        match mode {
            Mode::Relaxed => false,
            Mode::ThreadLocal => own,
            Mode::Global => own || self.mode == Mode::Global,
        }
    }
}

/// The captures going on.
#[derive(Default)]
pub(super) struct Captures {
    active: Mutex<Vec<Arc<Capture>>>,
}

impl Captures {
    /// Begins to capture a stream.
    pub(super) fn begin(&self, stream: &Arc<Stream>, mode: Mode) -> Result<(), Code> {
        let mut capturing = stream.capture();
        if capturing.is_some() {
            return Err(Code::IllegalState);
        }
        let members = vec![Arc::downgrade(stream)];
        let state = Mutex::new(State { members, ..State::default() });
        let capture = Arc::new(Capture { mode, thread: thread::current().id(), state });
        lock::mutex(&self.active).push(Arc::clone(&capture));
        *capturing = Some(Capturing { capture, front: Vec::new() });
        Ok(())
    }

    /// Ends a capture on the stream where it began; its nodes in an order that keeps every dependency.
    ///
    /// # Errors
    ///
    /// `IllegalState` when the stream is not captured, `StreamCaptureUnmatched` when it only joined,
    /// `StreamCaptureWrongThread`, `StreamCaptureInvalidated`, `StreamCaptureUnjoined`.
    pub(super) fn end(&self, stream: &Arc<Stream>) -> Result<Vec<Work>, Code> {
        let capture = {
            let capturing = stream.capture();
            Arc::clone(&capturing.as_ref().ok_or(Code::IllegalState)?.capture)
        };
        if capture.mode != Mode::Relaxed && capture.thread != thread::current().id() {
            return Err(Code::StreamCaptureWrongThread);
        }
        let members = lock::mutex(&capture.state).members.clone();
        let members: Vec<Arc<Stream>> = members.iter().filter_map(Weak::upgrade).collect();
        if !members.first().is_some_and(|origin| Arc::ptr_eq(origin, stream)) {
            capture.invalidate();
            return Err(Code::StreamCaptureUnmatched);
        }
        let fronts: Vec<Vec<usize>> = members
            .iter()
            .map(|member| member.capture().take().map_or_else(Vec::new, |capturing| capturing.front))
            .collect();
        lock::mutex(&self.active).retain(|other| !Arc::ptr_eq(other, &capture));
        let mut state = lock::mutex(&capture.state);
        state.ended = true;
        let nodes = std::mem::take(&mut state.nodes);
        if state.invalid {
            return Err(Code::StreamCaptureInvalidated);
        }
        let after: Vec<&[usize]> = nodes.iter().map(|node| node.after.as_slice()).collect();
        let joined = reachable(&after, fronts.first().map_or(&[], Vec::as_slice));
        if fronts.iter().flatten().any(|&node| !joined[node]) {
            return Err(Code::StreamCaptureUnjoined);
        }
        Ok(nodes.into_iter().map(|node| node.work).collect())
    }

    /// Asks whether a call that may synchronise is allowed on this thread.
    ///
    /// # Errors
    ///
    /// `StreamCaptureUnsupported` beside a capture that forbids it; the capture is spoilt.
    pub(super) fn refuse_unsafe(&self) -> Result<(), Code> {
        let active = lock::mutex(&self.active);
        match active.iter().find(|capture| capture.forbids(MODE.get())) {
            None => Ok(()),
            Some(capture) => {
                capture.invalidate();
                Err(Code::StreamCaptureUnsupported)
            }
        }
    }
}

/// Which nodes come before (or are) one of `from`. Nodes come after nodes with smaller numbers only.
fn reachable(after: &[&[usize]], from: &[usize]) -> Vec<bool> {
    let mut reached = vec![false; after.len()];
    from.iter().for_each(|&node| reached[node] = true);
    for node in (0..after.len()).rev() {
        if reached[node] {
            after[node].iter().for_each(|&before| reached[before] = true);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::reachable;

    #[test]
    fn a_branch_is_reached_only_when_it_was_joined() {
        // 0 -> 1 -> 3, and 0 -> 2, which nobody joins.
        let after: [&[usize]; 4] = [&[], &[0], &[0], &[1]];
        assert_eq!(reachable(&after, &[3]), [true, true, false, true]);
        assert_eq!(reachable(&after, &[3, 2]), [true; 4]);
    }
}
