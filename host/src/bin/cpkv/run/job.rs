//! What is to be done: the batches, their requests, and how they are sent.

use std::time::Duration;

use cpkv::transfer::RequestId;
use cpkv::transfer::decode::DecodeOptions;
use cpkv::units::{GroupSize, Rank};
use serde::{Deserialize, Serialize};

use super::args::{EngineArg, ModeArg, RunArgs};
use super::roster::{Member, Roster};
use crate::args::StrategyArg;
use crate::error::RunError;
use crate::job::{Job, Wanted};
use crate::ranks;

/// A way to send a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// Each layer once it is persisted.
    PerLayer,
    /// All layers after the forward.
    Monolithic,
}

impl Way {
    /// Its name, in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PerLayer => "per_layer",
            Self::Monolithic => "monolithic",
        }
    }
}

/// What a request is being sent for: each has transfers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// A way to send it.
    Way(Way),
    /// The transfer alone, and the bare loop.
    Yardstick,
}

impl Lane {
    /// Lanes there are.
    pub(crate) const NUM: usize = 3;

    const fn idx(self) -> usize {
        match self {
            Self::Way(Way::PerLayer) => 0,
            Self::Way(Way::Monolithic) => 1,
            Self::Yardstick => 2,
        }
    }

    /// The id of request `number` here, the same on all ranks. Ids are used again once a transfer has ended.
    pub(crate) const fn request_id(self, number: usize) -> RequestId {
        RequestId((number * Self::NUM + self.idx()) as u64)
    }
}

/// The job, the same on every rank and in every decode worker.
pub(crate) struct RunJob {
    pub(crate) base: Job,
    pub(crate) roster: Roster,
    pub(crate) engine: EngineArg,
    pub(crate) ways: Vec<Way>,
    pub(crate) args: RunArgs,
}

impl RunJob {
    /// Reads the trace, forms the batches, and chooses the engine.
    pub(crate) fn prepare(args: RunArgs, group_size: GroupSize) -> Result<Self, RunError> {
        let engine = choose_engine(args.engine, ranks::mpi_processes().is_some())?;
        let wanted = Wanted {
            strategy: StrategyArg::Auto,
            rounds: args.rounds,
            dense_arena: false,
            time_barriers: false,
        };
        // Every decode worker reads it again.
        let path = &args.trace.trace;
        if engine == EngineArg::Nixl && path.metadata().is_ok_and(|file| !file.is_file()) {
            return Err(RunError::TraceOnce { path: path.clone() });
        }
        let base = Job::prepare(&args.trace, wanted, group_size)?;
        // A forward that sleeps longer than its end is waited for would seem to hang.
        let asleep = Duration::from_micros(args.compute_us.unwrap_or(0)) * base.model.num_layers() as u32;
        if asleep > base.timeout {
            return Err(RunError::ComputeTooLong { asleep, timeout: base.timeout });
        }
        let roster = Roster::of(&base.batches);
        let ways = match args.mode {
            ModeArg::PerLayer => vec![Way::PerLayer],
            ModeArg::Monolithic => vec![Way::Monolithic],
            ModeArg::Both => vec![Way::Monolithic, Way::PerLayer],
        };
        // Decode workers are told what was chosen.
        let args = RunArgs { engine: Some(engine), ..args };
        Ok(Self { base, roster, engine, ways, args })
    }

    /// How long a request may take to finish: longer than one batch of it may, whose own message is the better one.
    pub(crate) fn finish_timeout(&self) -> Duration {
        self.base.timeout + Duration::from_secs(2)
    }

    /// Layers of the model.
    pub(crate) fn num_layers(&self) -> usize {
        self.base.model.num_layers()
    }

    /// The seed of a round's stamps: no byte is right by what an earlier round left.
    pub(crate) fn seed(&self, round: u32) -> u64 {
        self.base.seed.wrapping_add(u64::from(round).wrapping_mul(0x9e37_79b9))
    }

    /// Requests that are being transferred at once, at most.
    pub(crate) fn max_requests(&self) -> u32 {
        self.roster.peak(self.ways.len()).num_requests.max(1) as u32
    }

    /// The requests of a batch in a lane, in its order.
    pub(crate) fn members(&self, batch_idx: usize, lane: Lane) -> Vec<Member<'_>> {
        let planned = self.base.batches.get(batch_idx);
        let pages = planned.map_or(&[][..], |planned| &planned.batch.requests);
        let members = self.roster.of_batch(batch_idx).zip(pages);
        let page_size = self.base.model.page_size;
        let member =
            |((number, request), pages)| Member { request, pages, id: lane.request_id(number), page_size };
        members.map(member).collect()
    }

    /// What decode worker `worker` is told.
    pub(crate) fn decode_options(&self, worker: u32) -> Result<DecodeOptions, RunError> {
        Ok(DecodeOptions {
            worker: Rank(worker),
            num_workers: GroupSize::new(self.args.decode_workers)?,
            num_pages: self.roster.peak(self.ways.len()).num_pages.max(1) as u32,
            prefill_group_size: self.base.group_size,
            num_inboxes: self.max_requests(),
            num_words: self.roster.num_words(self.num_layers()),
        })
    }

    /// How long ranks wait for each other, or for rank 0 that waits for the decode workers: longer than what one of those may take.
    /// Where several are late one behind the other, rank 0's message, which says more, comes behind the other ranks'.
    pub(crate) fn patience(&self) -> Duration {
        5 * self.base.timeout.max(Duration::from_secs(2))
    }

    /// Steps of the progress bar.
    pub(crate) fn num_steps(&self) -> u64 {
        let per_batch = 2 + self.ways.len() as u64 + 1;
        self.base.batches.len() as u64 * per_batch * u64::from(self.args.rounds) + 1
    }
}

/// The engine that was asked for, if it can be had here.
fn choose_engine(asked: Option<EngineArg>, under_mpirun: bool) -> Result<EngineArg, RunError> {
    let default = if under_mpirun { EngineArg::Nixl } else { EngineArg::InProcess };
    match asked.unwrap_or(default) {
        _ if under_mpirun && !cfg!(feature = "mpi") => Err(RunError::NoMpi),
        EngineArg::InProcess if under_mpirun => Err(RunError::InProcessUnderMpi),
        EngineArg::Nixl if !cfg!(feature = "nixl") => Err(RunError::NoNixl),
        engine => Ok(engine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_cannot_have_the_engine_of_one_process() {
        assert!(matches!(choose_engine(Some(EngineArg::InProcess), true), Err(RunError::InProcessUnderMpi)));
        assert!(matches!(choose_engine(None, false), Ok(EngineArg::InProcess)));
        let nixl = choose_engine(None, true);
        match cfg!(feature = "nixl") {
            true => assert!(matches!(nixl, Ok(EngineArg::Nixl))),
            false => assert!(matches!(nixl, Err(RunError::NoNixl))),
        }
    }

    #[test]
    fn no_two_transfers_of_a_run_have_one_id() {
        let lanes = [Lane::Way(Way::PerLayer), Lane::Way(Way::Monolithic), Lane::Yardstick];
        let ids: std::collections::BTreeSet<_> =
            lanes.iter().flat_map(|lane| (0..5).map(|number| lane.request_id(number))).collect();
        assert_eq!(ids.len(), 15);
    }
}
