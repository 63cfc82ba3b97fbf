//! The end of a batch's transfers: what arrived is compared, byte for byte, and the room for it is given back.

use std::collections::BTreeMap;
use std::time::Duration;

use cpkv::transfer::lifetime::agree_quiet;
use cpkv::transfer::{Offer, Quiet, RequestId};
use serde::{Deserialize, Serialize};

use super::exchange::from_rank_0;
use super::front::Front;
use super::job::{Lane, RunJob};
use super::message::Seen;
use super::rank::RankRun;
use super::roster::RosterRequest;
use crate::error::RunError;

/// What rank 0 found in a request.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Verdict {
    checked_bytes: u64,
    difference: Option<String>,
}

impl RankRun<'_> {
    /// Compares what arrived for the requests that end with this batch, and ends their transfers. Collective.
    pub(super) fn verify(&mut self, batch_idx: usize) -> Result<(), RunError> {
        let ending: Vec<_> = self
            .job
            .roster
            .of_batch(batch_idx)
            .filter(|(_, request)| request.last_batch == batch_idx)
            .collect();
        for &(number, request) in &ending {
            let (job, offers) = (self.job, &self.offers);
            let made = self.front.as_mut().map(|front| judge(job, front, offers, (number, request)));
            let made = made.transpose();
            let verdict: Verdict = from_rank_0(&*self.env.bootstrap, "compare", made, self.deadline())?;
            self.measured.checked_bytes += verdict.checked_bytes;
            self.measured.differences.extend(verdict.difference);
        }
        for way in self.job.ways.clone() {
            let lane = Lane::Way(way);
            let ids: Vec<_> = ending.iter().map(|(number, _)| lane.request_id(*number)).collect();
            self.end_transfers(lane, &ids)?;
        }
        Ok(())
    }

    /// Drops finished transfers on all ranks; once all ranks are quiet, rank 0 frees their room. Collective.
    pub(super) fn end_transfers(&mut self, lane: Lane, ids: &[RequestId]) -> Result<(), RunError> {
        let dropped = self.drop_all(lane, ids);
        self.settle("drop", dropped)?;
        let quiet = agree_quiet(&*self.env.bootstrap, ids, self.deadline())?;
        let freed = match &mut self.front {
            Some(front) => quiet.iter().try_for_each(|&request| front.free(request)),
            None => Ok(()),
        };
        ids.iter().for_each(|request| drop(self.offers.remove(request)));
        self.settle("free", freed).map(drop)
    }

    fn drop_all(&self, lane: Lane, ids: &[RequestId]) -> Result<(), RunError> {
        let timeout: Duration = self.job.base.timeout;
        for &request in ids {
            if let Quiet::Quarantined { pages, .. } =
                self.sender.manager(lane).drop_request(request, timeout)?
            {
                return Err(RunError::NotQuiet { request, pages });
            }
        }
        Ok(())
    }
}

/// Has the workers look at a request as it came each way.
fn judge(
    job: &RunJob,
    front: &mut Front<'_>,
    offers: &BTreeMap<RequestId, Offer>,
    (number, request): (usize, &RosterRequest),
) -> Result<Verdict, RunError> {
    let mut verdict = Verdict::default();
    let mut first: Option<Seen> = None;
    for &way in &job.ways {
        let id = Lane::Way(way).request_id(number);
        let offer = offers.get(&id).ok_or(RunError::Garbled { call: "offer pages" })?;
        let seen = front.verify(offer, &request.pages)?;
        verdict.checked_bytes += seen.checked_bytes;
        let told = |difference: String| format!("{}: {difference}", way.name());
        verdict.difference = verdict.difference.or(seen.difference.clone().map(told));
        if seen.digests.len() != request.pages.len() {
            let (got, expected) = (seen.digests.len(), request.pages.len());
            verdict.difference.get_or_insert(format!("request {id}: {got} pages arrived, not {expected}"));
        }
        verdict.difference =
            verdict.difference.or(first.as_ref().and_then(|first| differ(first, &seen, number)));
        first.get_or_insert(seen);
    }
    Ok(verdict)
}

/// The first page that came otherwise one way than the other.
fn differ(one: &Seen, other: &Seen, number: usize) -> Option<String> {
    let mut pairs = one.digests.iter().zip(&other.digests);
    let (pair, _) = pairs.find(|(one, other)| one != other)?;
    Some(format!("request number {number}: page {} differs between the two ways", pair.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_differs_between_the_ways_is_named() {
        let seen = |digests: [&str; 3]| Seen {
            digests: (0..).zip(digests.map(str::to_owned)).collect(),
            ..Seen::default()
        };
        let (one, other) = (seen(["a", "b", "c"]), seen(["a", "x", "y"]));
        assert!(differ(&one, &other, 4).unwrap().contains("request number 4: page 1"));
        assert_eq!(differ(&one, &one.clone(), 4), None);
    }
}
