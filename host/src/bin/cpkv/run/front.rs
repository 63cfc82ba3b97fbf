//! The decode side as rank 0 holds it: its workers, and the directory of their pages.

use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::transfer::decode::{Cached, Directory};
use cpkv::transfer::handshake::Geometry;
use cpkv::transfer::{Offer, RequestId, TransferEpoch};
use cpkv::units::PageId;

use super::args::EngineArg;
use super::engines::Engines;
use super::job::RunJob;
use super::link::Link;
use super::message::{Command, Greeting, Seen};
use crate::error::RunError;

/// How much longer than its own wait a worker may take to answer.
const GRACE: Duration = Duration::from_secs(5);

/// How long a process may take to be known as ended, once its peers know.
const OBITUARY: Duration = Duration::from_millis(300);

/// The decode side.
pub(crate) struct Front<'a> {
    links: Vec<Link<'a>>,
    directory: Directory,
    greetings: Vec<Greeting>,
    timeout: Duration,
}

impl<'a> Front<'a> {
    /// Starts the workers: processes with NIXL, else in this one.
    pub(crate) fn start(job: &'a RunJob, engines: &Engines) -> Result<Self, RunError> {
        let start = |number| match job.engine {
            EngineArg::InProcess => Link::here(job, engines.open(&format!("decode-{number}"), 0)?, number),
            EngineArg::Nixl => Link::child(job, number),
        };
        let mut links = (0..job.args.decode_workers).map(start).collect::<Result<Vec<_>, _>>()?;
        // Allocating all pages takes its time.
        let timeout = job.base.timeout + GRACE;
        let greetings: Vec<Greeting> =
            links.iter_mut().map(|link| link.greeting(timeout)).collect::<Result<_, _>>()?;
        let hellos: Vec<_> = greetings.iter().map(|greeting| greeting.hello.clone()).collect();
        let directory = Directory::new(&hellos, TransferEpoch(1))?;
        let mine = Geometry::of(&job.base.model)?;
        for hello in &hellos {
            hello.check(&mine, job.engine.name())?;
            hello.check_group_size(job.base.group_size)?;
        }
        Ok(Self { links, directory, greetings, timeout })
    }

    /// How the workers can be reached, by number.
    pub(crate) fn greetings(&self) -> &[Greeting] {
        &self.greetings
    }

    /// Takes room for `pages` of a request: places that let neighbours go as one block.
    pub(crate) fn offer(&mut self, request: RequestId, pages: &[PageId]) -> Result<Offer, RunError> {
        Ok(self.directory.allocate_along(request, pages, Cached::Leading(0))?)
    }

    /// Makes what the offered pages hold wrong.
    pub(crate) fn poison(&mut self, offer: &Offer) -> Result<(), RunError> {
        self.tell_all(&Command::Poison { offer: offer.clone() })
    }

    /// Tells all workers to do something, and waits until all have.
    pub(crate) fn tell_all(&mut self, command: &Command) -> Result<(), RunError> {
        self.links.iter_mut().try_for_each(|link| link.ask(command))?;
        self.links.iter_mut().try_for_each(|link| link.done(self.timeout))
    }

    /// Waits until everything of a request has arrived, and says what is there.
    pub(crate) fn verify(&mut self, offer: &Offer, pages: &[PageId]) -> Result<Seen, RunError> {
        let command = Command::Verify { offer: offer.clone(), pages: pages.to_vec() };
        self.links.iter_mut().try_for_each(|link| link.ask(&command))?;
        let mut all = Seen::default();
        for link in &mut self.links {
            let seen = link.seen(2 * self.timeout)?;
            all.digests.extend(seen.digests);
            all.checked_bytes += seen.checked_bytes;
            all.difference = all.difference.or(seen.difference);
        }
        all.digests.sort();
        Ok(all)
    }

    /// Frees the room of a request that has arrived, was looked at, and that no rank sends any more.
    pub(crate) fn free(&mut self, request: RequestId) -> Result<(), RunError> {
        let pages = self.directory.complete(request)?;
        Ok(self.directory.free_pages(&pages)?)
    }

    /// `error`, and the workers that ended: they may be the reason.
    pub(crate) fn explain(&mut self, error: RunError) -> RunError {
        if matches!(error, RunError::DecodeWorker { .. } | RunError::WorkerEnded { .. }) {
            return error;
        }
        // The system may tell its peers before it tells its parent.
        let deadline = Deadline::after(OBITUARY);
        loop {
            let ended: Vec<_> = self.links.iter_mut().filter_map(Link::obituary).collect();
            if !ended.is_empty() {
                return RunError::WorkerEnded { ended: ended.join(", "), error: Box::new(error) };
            }
            if deadline.expired() {
                return error;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Front<'_> {
    /// All at once: workers that are stopped are waited for together.
    fn drop(&mut self) {
        self.links.iter_mut().for_each(Link::hang_up);
    }
}
