//! How rank 0 talks to a decode worker: a child process over pipes, or a value of this process.

use std::sync::Arc;
use std::time::Duration;

use cpkv::transfer::TransferEngine;

use super::child::Child;
use super::job::RunJob;
use super::message::{Command, Greeting, Reply, Seen};
use super::service::DecodeService;
use crate::error::RunError;

/// A link to one worker.
pub(crate) struct Link<'a> {
    worker: u32,
    end: End<'a>,
}

enum End<'a> {
    /// Part of this process: it answers while it is asked.
    Here { service: Box<DecodeService<'a>>, answer: Option<Reply> },
    /// A process.
    Child(Child),
}

impl<'a> Link<'a> {
    /// Starts worker `number` in this process.
    pub(crate) fn here(
        job: &'a RunJob,
        engine: Arc<dyn TransferEngine>,
        number: u32,
    ) -> Result<Self, RunError> {
        let service = Box::new(DecodeService::start(job, engine, number)?);
        let answer = Some(Reply::Hello(Box::new(service.greeting())));
        Ok(Self { worker: number, end: End::Here { service, answer } })
    }

    /// Starts worker `number` as a process; it has not started yet when this returns.
    pub(crate) fn child(job: &RunJob, number: u32) -> Result<Self, RunError> {
        let child = Child::start(job, number).map_err(|error| failed(number, error.to_string()))?;
        Ok(Self { worker: number, end: End::Child(child) })
    }

    /// Asks for something. The answer is to be received before anything else is asked.
    pub(crate) fn ask(&mut self, command: &Command) -> Result<(), RunError> {
        match &mut self.end {
            End::Here { service, answer } => *answer = Some(service.answer(command)),
            End::Child(child) => child.send(command).map_err(|message| failed(self.worker, message))?,
        }
        Ok(())
    }

    fn receive(&mut self, timeout: Duration) -> Result<Reply, RunError> {
        let worker = self.worker;
        let reply = match &mut self.end {
            End::Here { answer, .. } => answer.take().ok_or_else(|| "was asked nothing".to_owned()),
            End::Child(child) => child.receive(timeout),
        };
        match reply {
            Ok(Reply::Failed { message }) | Err(message) => Err(failed(worker, message)),
            Ok(reply) => Ok(reply),
        }
    }

    /// Waits for the worker's start.
    pub(crate) fn greeting(&mut self, timeout: Duration) -> Result<Greeting, RunError> {
        match self.receive(timeout)? {
            Reply::Hello(greeting) => Ok(*greeting),
            _ => Err(self.out_of_step()),
        }
    }

    /// Waits until what was asked is done.
    pub(crate) fn done(&mut self, timeout: Duration) -> Result<(), RunError> {
        match self.receive(timeout)? {
            Reply::Done => Ok(()),
            _ => Err(self.out_of_step()),
        }
    }

    /// Waits for what the worker sees.
    pub(crate) fn seen(&mut self, timeout: Duration) -> Result<Seen, RunError> {
        match self.receive(timeout)? {
            Reply::Seen(seen) => Ok(seen),
            _ => Err(self.out_of_step()),
        }
    }

    /// Why the worker's process is gone, if it is.
    pub(crate) fn obituary(&mut self) -> Option<String> {
        match &mut self.end {
            End::Here { .. } => None,
            End::Child(child) => {
                Some(format!("decode worker {} (process {}) {}", self.worker, child.pid(), child.ended()?))
            }
        }
    }

    /// Tells a process to end, without waiting for it.
    pub(crate) fn hang_up(&mut self) {
        if let End::Child(child) = &mut self.end {
            child.hang_up();
        }
    }

    fn out_of_step(&self) -> RunError {
        failed(self.worker, "gave an answer to another question".to_owned())
    }
}

fn failed(worker: u32, problem: String) -> RunError {
    RunError::DecodeWorker { worker, problem }
}
