//! The worker threads of a manager: wait for a layer's write event, then ask the engine; look at what is in flight while
//! there is nothing else to do, so that a deadline passes in an idle system too.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cpkv_kernels::now_ns;

use super::board::{Board, Job, Next, Work};
use super::desk::Desk;
use super::failure::Cause;
use super::send::{self, LayerOf};
use super::start_error::StartError;
use crate::deadline::Deadline;
use crate::priority::lower_own;

/// How long a wait for an event lasts, at most, before deadlines and failures are looked at.
const EVENT_SLICE: Duration = Duration::from_millis(2);

/// Between two questions whether a thread has ended.
const END_PAUSE: Duration = Duration::from_micros(200);

/// Starts worker `number`, from 1.
pub(super) fn start(desk: &Arc<Desk>, number: u32) -> Result<JoinHandle<()>, StartError> {
    let desk = Arc::clone(desk);
    let started = thread::Builder::new().name(format!("cpkv-transfer-{number}"));
    let started = started.spawn(move || work(&desk, number));
    started.map_err(|error| StartError::Thread { code: error.raw_os_error().unwrap_or_default() })
}

/// Waits for a thread until `deadline`. One that the engine blocks goes on alone, and ends when it comes back.
pub(super) fn end_thread(thread: JoinHandle<()>, deadline: Deadline) {
    while !thread.is_finished() && !deadline.expired() {
        thread::sleep(END_PAUSE);
    }
    if thread.is_finished() {
        // A thread that panicked has nothing more to do.
        let _ = thread.join();
    }
}

fn work(desk: &Desk, number: u32) {
    lower_own(desk.shared.options.niceness);
    let clock = &*desk.shared.clock;
    let mut board = desk.lock();
    while !desk.is_stopping() {
        // Also between two jobs: work that does not end must not keep a deadline from passing.
        if board.num_requests() > 0 && board.pace.claim(now_ns()) {
            drop(board);
            desk.look();
            board = desk.lock();
            // Who ends the manager meanwhile woke nobody here.
            continue;
        }
        match board.next(clock) {
            Next::Jobs(jobs) => {
                // The engine may hold this one up: somebody else takes what is next, or waits for its event.
                if board.num_idle > 0 && board.has_jobs() {
                    desk.work_came.notify_one();
                }
                drop(board);
                process(desk, &jobs, number);
                board = desk.lock();
                board.pace.sent(now_ns());
                desk.tell(&mut board);
            }
            // One waits for the event, the others look after the rest.
            Next::Event(event) if !board.is_awaited => {
                board.is_awaited = true;
                // There may be no other thread to ask the engine meanwhile.
                let slice = EVENT_SLICE.min(board.pace.pause(now_ns()));
                drop(board);
                // What came of it is seen when the job is taken.
                let _ = event.wait(Deadline::after(slice));
                board = desk.lock();
                board.is_awaited = false;
            }
            Next::Event(_) | Next::Nothing => {
                board.num_idle += 1;
                board = wait(desk, board);
                board.num_idle -= 1;
            }
        }
    }
}

/// Waits for a job; with requests registered until the next look is due, at most.
fn wait<'a>(desk: &Desk, board: MutexGuard<'a, Board>) -> MutexGuard<'a, Board> {
    if board.num_requests() == 0 {
        // Who registers one wakes it.
        return desk.work_came.wait(board).unwrap_or_else(PoisonError::into_inner);
    }
    let pause = board.pace.pause(now_ns());
    desk.work_came.wait_timeout(board, pause).unwrap_or_else(PoisonError::into_inner).0
}

/// Sends what jobs say, whose events have fired; fails the requests of the others.
fn process(desk: &Desk, jobs: &[Job], number: u32) {
    let mut layers = Vec::with_capacity(jobs.len());
    for job in jobs {
        let Job { context, work, .. } = job;
        match (has_fired(desk, job), work) {
            (Err(cause), _) => context.fail(cause),
            (Ok(()), &Work::Layer(part, layer)) => layers.push(LayerOf { context, part, layer }),
            (Ok(()), Work::Aux(aux)) => context.send_aux(aux, number),
            (Ok(()), Work::Records) => context.send_records(number),
        }
    }
    send::send(&layers, number);
    for Job { context, work, .. } in jobs {
        let mut state = context.lock();
        match work {
            Work::Layer(..) => state.counts.processed += 1,
            Work::Aux(_) | Work::Records => state.num_extras += 1,
        }
    }
}

/// What came of a job's event. A request that may send nothing any more asks no stream.
fn has_fired(desk: &Desk, job: &Job) -> Result<(), Cause> {
    let Job { context, work, event, until } = job;
    let may_send = context.lock().may_send();
    let event = event.as_ref().filter(|_| may_send);
    event.map_or(Ok(()), |event| desk.shared.outcome_of(event, work.payload(), *until))
}

/// The next job on the caller's thread, if its event has fired; whether it had.
pub(super) fn step(desk: &Desk) -> bool {
    let next = desk.lock().next(&*desk.shared.clock);
    match next {
        Next::Jobs(jobs) => {
            process(desk, &jobs, 0);
            true
        }
        Next::Event(_) | Next::Nothing => false,
    }
}
