//! The yardstick of a transfer: the same blocks, straight to the engine.

use std::thread;

use cpkv::deadline::Deadline;
use cpkv::transfer::{
    Block, Clock, Offer, PageRuns, PeerId, RequestRun, SystemClock, TransferEngine, build_layer_blocks, sends,
};
use rustix::process::nice;

use super::job::Lane;
use super::measured::PassTimes;
use super::rank::RankRun;
use crate::error::RunError;

impl RankRun<'_> {
    /// The blocks of a batch in a bare loop.
    pub(super) fn try_bare(&mut self, batch_idx: usize, offers: &[Offer]) -> Result<PassTimes, RunError> {
        let batches = self.bare_batches(batch_idx, offers)?;
        self.env.bootstrap.barrier("common start", self.deadline())?;
        let (engine, niceness) = (&*self.sender.engine, self.job.args.transfer_nice);
        let deadline = Deadline::after(self.job.base.timeout);
        // As the manager's threads run: below the priority of this one.
        thread::scope(|scope| {
            let loop_thread = thread::Builder::new().name("cpkv-bare-loop".to_owned());
            let ended = loop_thread.spawn_scoped(scope, move || {
                let _ = nice(i32::from(niceness));
                bare_loop(engine, &batches, deadline)
            });
            ended?.join().map_err(|_| RunError::Panicked)?
        })
    }

    /// As few batches as there can be: for each layer and worker, the blocks of all requests, cached pages among them.
    fn bare_batches(
        &self,
        batch_idx: usize,
        offers: &[Offer],
    ) -> Result<Vec<(PeerId, Vec<Block>)>, RunError> {
        let members = self.job.members(batch_idx, Lane::Yardstick);
        let workers = self.sender.decode.workers();
        let mut runs: Vec<(usize, PageRuns)> = Vec::new();
        for (member, offer) in members.iter().zip(offers) {
            let is_new = member.request.first_batch == batch_idx;
            let prefix = is_new.then(|| member.prefix());
            for run in prefix.into_iter().chain([member.current()]) {
                for worker in 0..workers.len() {
                    runs.push((worker, self.runs_to(worker, &run, offer)?));
                }
            }
        }
        let mut batches = Vec::new();
        for layer in 0..self.job.num_layers() {
            for (worker, route) in workers.iter().enumerate() {
                let mut blocks = Vec::new();
                for (_, runs) in runs.iter().filter(|(to, _)| *to == worker) {
                    build_layer_blocks(layer, &self.sender.source.pool, &route.pool, runs, &mut blocks)?;
                }
                if !blocks.is_empty() {
                    batches.push((route.peer, blocks));
                }
            }
        }
        Ok(batches)
    }

    /// The pages of `run` that this rank sends to `worker`.
    fn runs_to(&self, worker: usize, run: &RequestRun, offer: &Offer) -> Result<PageRuns, RunError> {
        let source = &self.sender.source;
        let ownership = cpkv::pages::Ownership::new(source.group_size);
        let places = run.pages.iter().zip(offer.destinations.iter().skip(run.first as usize));
        let mine = places.filter_map(|(&page, place)| {
            let place = place.filter(|place| place.worker as usize == worker && sends(source, page))?;
            Some((ownership.shard_idx(page) as u32, place.page_idx))
        });
        let (src, dst): (Vec<u32>, Vec<u32>) = mine.unzip();
        let num_dst = self.sender.decode.workers().get(worker).map_or(0, |route| route.pool.num_pages);
        Ok(PageRuns::new(&src, &dst, source.pool.num_pages, num_dst)?)
    }
}

/// Submits everything, then waits for one after another.
fn bare_loop(
    engine: &dyn TransferEngine,
    batches: &[(PeerId, Vec<Block>)],
    deadline: Deadline,
) -> Result<PassTimes, RunError> {
    let start_ns = SystemClock.now_ns();
    let mut in_flight = Vec::with_capacity(batches.len());
    for (peer, blocks) in batches {
        in_flight.push(engine.submit(*peer, blocks)?);
    }
    for batch in in_flight {
        engine.wait(batch, deadline)?;
    }
    let end_ns = SystemClock.now_ns();
    Ok(PassTimes { start_ns, forward_ns: end_ns, end_ns })
}
