//! The worker threads of a manager: wait for a layer's write event, then ask the engine; look at what is in flight while
//! there is nothing else to do, so that a deadline passes in an idle system too.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::board::{Board, Job, Next, Work};
use super::desk::{Desk, Look};
use super::failure::Payload;
use crate::deadline::Deadline;
use crate::device::DeviceError;

/// How long a worker waits for a job while something is in flight: it asks the engine in between, less and less often
/// until something comes to its end.
const SHORTEST_LOOK: Duration = Duration::from_micros(50);
const LONGEST_LOOK: Duration = Duration::from_micros(300);
/// How long a wait for an event lasts before deadlines and failures are looked at.
const EVENT_SLICE: Duration = Duration::from_millis(2);
/// How long a worker waits where nothing is in flight.
const IDLE_LOOK: Duration = Duration::from_millis(20);

/// Starts worker `number`, from 1.
pub(super) fn start(desk: &Arc<Desk>, number: u32) -> Result<JoinHandle<()>, DeviceError> {
    let desk = Arc::clone(desk);
    let started = thread::Builder::new().name(format!("cpkv-transfer-{number}"));
    started.spawn(move || work(&desk, number)).map_err(|error| DeviceError::NoStream {
        device: "transfer worker",
        code: error.raw_os_error().unwrap_or_default(),
    })
}

fn work(desk: &Desk, number: u32) {
    let clock = &*desk.shared.clock;
    let mut look = SHORTEST_LOOK;
    let mut board = desk.lock();
    while !desk.is_stopping() {
        match board.next(clock) {
            Next::Job(job) => {
                drop(board);
                process(desk, &job, number);
                look = SHORTEST_LOOK;
                board = desk.lock();
                continue;
            }
            // One waits for the event, the others look after the rest.
            Next::Event(event) if !board.is_awaited => {
                board.is_awaited = true;
                drop(board);
                if event.wait(Deadline::after(EVENT_SLICE)).is_err() {
                    desk.look();
                }
                board = desk.lock();
                board.is_awaited = false;
                continue;
            }
            Next::Event(_) | Next::Nothing => {}
        }
        board.num_idle += 1;
        let (waited, has_timed_out) = wait(desk, board, look);
        board = waited;
        board.num_idle -= 1;
        if has_timed_out {
            drop(board);
            look = match desk.look() {
                Look::Ended => SHORTEST_LOOK,
                Look::InFlight => (2 * look).min(LONGEST_LOOK),
                Look::Nothing => IDLE_LOOK,
            };
            board = desk.lock();
        }
    }
}

/// Waits for a job; with requests registered for `look` at most.
fn wait<'a>(desk: &Desk, board: MutexGuard<'a, Board>, look: Duration) -> (MutexGuard<'a, Board>, bool) {
    if board.num_requests() == 0 {
        // Who registers one wakes it.
        return (desk.work_came.wait(board).unwrap_or_else(PoisonError::into_inner), false);
    }
    let waited = desk.work_came.wait_timeout(board, look).unwrap_or_else(PoisonError::into_inner);
    (waited.0, waited.1.timed_out())
}

/// Sends what a job says, whose event has fired; or fails its request.
fn process(desk: &Desk, job: &Job, number: u32) {
    let Job { context, work, event, until } = job;
    let payload = match work {
        Work::Layer(_, layer) => Payload::Layer(*layer),
        Work::Aux(_) => Payload::Aux,
        Work::Records => Payload::Record,
    };
    let may_send = context.lock().may_send();
    let fired = event.as_ref().filter(|_| may_send);
    let fired = fired.map_or(Ok(()), |event| desk.shared.outcome_of(event, payload, *until));
    match (fired, work) {
        (Err(cause), _) => context.fail(cause),
        (Ok(()), Work::Layer(part, layer)) => context.send(*part, *layer, number),
        (Ok(()), Work::Aux(aux)) => context.send_aux(aux, number),
        (Ok(()), Work::Records) => context.send_records(number),
    }
    let mut state = context.lock();
    match work {
        Work::Layer(..) => state.counts.processed += 1,
        Work::Aux(_) | Work::Records => state.num_extras += 1,
    }
    drop(state);
    context.poll();
}

/// The next job on the caller's thread, if its event has fired; whether it had.
pub(super) fn step(desk: &Desk) -> bool {
    let next = desk.lock().next(&*desk.shared.clock);
    match next {
        Next::Job(job) => {
            process(desk, &job, 0);
            true
        }
        Next::Event(_) | Next::Nothing => false,
    }
}
