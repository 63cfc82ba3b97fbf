//! From where and to where pages go: this rank's shard, the decode workers, and the pairs of one part of a request. Pure.

use std::collections::HashSet;

use super::blocks::{BlockError, PageRuns};
use super::engine::PeerId;
use super::failure::Cause;
use super::record::{InboxMap, Offer, RECORD_BYTES, WORD_BYTES};
use crate::pages::{Ownership, PoolMap};
use crate::plan::RequestPages;
use crate::units::{GroupSize, PageId, Rank};

/// This rank's side.
#[derive(Clone, Debug)]
pub struct Source {
    /// This rank.
    pub rank: Rank,
    /// Prefill ranks.
    pub group_size: GroupSize,
    /// This rank's shard.
    pub pool: PoolMap,
}

/// One decode worker.
#[derive(Clone, Debug)]
pub struct WorkerRoute {
    /// The worker, to the engine.
    pub peer: PeerId,
    /// Its shard.
    pub pool: PoolMap,
}

/// The decode workers that a request's pages are spread over, by worker number.
#[derive(Clone, Debug)]
pub struct DecodeGroup {
    workers: Vec<WorkerRoute>,
}

/// Pages of a request at consecutive positions: `pages[i]` is its page at `first + i`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRun {
    /// Position of the first page in the request.
    pub first: u32,
    /// The pages in this group's pool; padding is left out.
    pub pages: Vec<PageId>,
}

impl RequestRun {
    /// What `request` has in the pool before its forward: pages of `page_size` tokens. A straddling page goes with what the
    /// forward computes, whose first page is a copy of it; where that is nothing, it goes here.
    pub fn of_prefix(request: &RequestPages, page_size: u32) -> Self {
        let num_pages = match request.current_pages.is_empty() {
            true => request.prefix_pages.len(),
            false => (request.prefix_tokens / page_size.max(1)) as usize,
        };
        Self { first: 0, pages: request.prefix_pages.iter().take(num_pages).copied().collect() }
    }

    /// What the forward computes of `request`.
    pub fn of_current(request: &RequestPages, page_size: u32) -> Self {
        Self { first: request.prefix_tokens / page_size.max(1), pages: request.current_pages.clone() }
    }
}

/// What one worker gets of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) worker: u32,
    pub(super) runs: PageRuns,
    /// Indices into the part's positions.
    pub(super) which: Vec<u32>,
}

/// A part of a request as this rank sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// Positions of the pages that this rank owns and the decode side wants.
    pub(super) positions: Vec<u32>,
    /// By position above: the page.
    pub(super) pages: Vec<PageId>,
    /// Workers that get none are left out.
    pub(super) shares: Vec<Share>,
}

impl DecodeGroup {
    /// The group of `workers`, all of whose pages are like those of `source`.
    ///
    /// # Errors
    /// [`Cause::Pool`], with both values.
    pub fn new(source: &Source, workers: Vec<WorkerRoute>) -> Result<Self, Cause> {
        for (worker, route) in workers.iter().enumerate() {
            source.pool.check_alike(&route.pool).map_err(|source| Cause::Pool { worker, source })?;
        }
        Ok(Self { workers })
    }

    /// The workers.
    pub fn workers(&self) -> &[WorkerRoute] {
        &self.workers
    }
}

/// Whether `rank` sends `page`: it does where it owns it. Per-layer and monolithic sends both ask here.
pub const fn sends(source: &Source, page: PageId) -> bool {
    page.0 >= 0 && Ownership::new(source.group_size).owner(page).0 == source.rank.0
}

/// Whether `offer` is one that `source` can send to `decode`.
pub(super) fn check_offer(source: &Source, decode: &DecodeGroup, offer: &Offer) -> Result<(), Cause> {
    let refuse = |problem: String| Err(Cause::Offer { problem });
    let num_workers = decode.workers.len();
    if offer.inboxes.len() != num_workers {
        return refuse(format!("has {} inboxes for {num_workers} workers", offer.inboxes.len()));
    }
    if let Some(inbox) = offer.inboxes.iter().find(|inbox| inbox.group_size != source.group_size.get()) {
        return refuse(format!("expects {} prefill ranks, not {}", inbox.group_size, source.group_size));
    }
    if offer.epoch.0 == 0 {
        return refuse("has epoch 0, which is none".to_owned());
    }
    // An inbox that runs past the last address, or whose words are torn: this side computes addresses from it.
    let end = |inbox: &InboxMap| {
        let words = u64::from(inbox.group_size) * u64::from(inbox.num_words) * WORD_BYTES;
        inbox.addr.checked_add(words.checked_add(u64::from(inbox.group_size) * RECORD_BYTES)?)
    };
    if offer.inboxes.iter().any(|inbox| !inbox.addr.is_multiple_of(WORD_BYTES) || end(inbox).is_none()) {
        return refuse("has an inbox at an impossible address".to_owned());
    }
    // Over the whole request, also for positions of other ranks: every rank refuses the same offers.
    let mut taken = HashSet::with_capacity(offer.destinations.len());
    for destination in offer.destinations.iter().flatten() {
        let Some(route) = decode.workers.get(destination.worker as usize) else {
            return refuse(format!("names worker {} of {num_workers}", destination.worker));
        };
        let (page, num_pages) = (destination.page_idx, route.pool.num_pages);
        if page >= num_pages {
            return refuse(format!(
                "names page {page} of worker {}, which has {num_pages}",
                destination.worker
            ));
        }
        if !taken.insert(destination) {
            let worker = destination.worker;
            return refuse(format!(
                "names page {page} of worker {worker} twice: one page would overwrite another"
            ));
        }
    }
    Ok(())
}

/// Pairs the pages of `run` with their destinations, by position in the request.
pub(super) fn plan_part(
    source: &Source,
    decode: &DecodeGroup,
    offer: &Offer,
    run: &RequestRun,
) -> Result<Part, Cause> {
    let ownership = Ownership::new(source.group_size);
    let mut part = Part::default();
    let mut lists: Vec<(Vec<u32>, Vec<u32>, Vec<u32>)> = vec![Default::default(); decode.workers.len()];
    for (position, &page) in (run.first..).zip(&run.pages) {
        let Some(destination) = offer.destinations.get(position as usize) else {
            let num = offer.destinations.len();
            return Err(Cause::Offer { problem: format!("has {num} positions; page {position} has none") });
        };
        // A page that the decode side holds already has none, however many the prefill side found cached.
        let Some(destination) = destination.filter(|_| sends(source, page)) else { continue };
        let Some((src, dst, which)) = lists.get_mut(destination.worker as usize) else { continue };
        src.push(ownership.shard_idx(page) as u32);
        dst.push(destination.page_idx);
        which.push(part.positions.len() as u32);
        part.positions.push(position);
        part.pages.push(page);
    }
    for ((worker, route), (src, dst, which)) in (0..).zip(&decode.workers).zip(lists) {
        let runs = PageRuns::new(&src, &dst, source.pool.num_pages, route.pool.num_pages);
        let runs: PageRuns = runs.map_err(|error: BlockError| Cause::from(error))?;
        if !runs.is_empty() {
            part.shares.push(Share { worker, runs, which });
        }
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::{Destination, InboxMap, LayerBuffer, RequestId, TransferEpoch};

    fn pool(num_pages: u32) -> PoolMap {
        PoolMap { num_pages, layers: vec![vec![LayerBuffer { addr: 4096, page_bytes: 16 }]] }
    }

    fn source(rank: u32, ranks: u32) -> Source {
        Source { rank: Rank(rank), group_size: GroupSize::new(ranks).unwrap(), pool: pool(8) }
    }

    fn decode(source: &Source, workers: u32) -> DecodeGroup {
        let routes = (0..workers).map(|peer| WorkerRoute { peer: PeerId(peer), pool: pool(6) });
        DecodeGroup::new(source, routes.collect()).unwrap()
    }

    fn offer(ranks: u32, workers: u32, destinations: Vec<Option<Destination>>) -> Offer {
        let inbox = InboxMap { addr: 0, group_size: ranks, num_words: 4 };
        Offer {
            request: RequestId(1),
            epoch: TransferEpoch(1),
            destinations,
            inboxes: vec![inbox; workers as usize],
        }
    }

    /// Pages that are cached on one side only, placed by two other rules, are paired by position.
    #[test]
    fn every_wanted_page_is_sent_once_by_its_owner_whatever_either_side_had_cached() {
        let pages: Vec<PageId> = [5, 0, 7, 9, 2, 3].map(PageId).to_vec();
        // The decode side holds the first two and the fourth page.
        let place = |i: usize| Destination { worker: i as u32 % 2, page_idx: 5 - i as u32 };
        let wanted: Vec<_> = (0..6).map(|i| (i > 1 && i != 3).then(|| place(i))).collect();
        let mut sent = Vec::new();
        for rank in 0..3 {
            let source = source(rank, 3);
            let decode = decode(&source, 2);
            let offer = offer(3, 2, wanted.clone());
            for (first, pages) in [(0, &pages[..1]), (1, &pages[1..])] {
                let run = RequestRun { first, pages: pages.to_vec() };
                let part = plan_part(&source, &decode, &offer, &run).unwrap();
                assert!(part.pages.iter().all(|page| page.0 % 3 == rank as i32));
                let of_shares: usize = part.shares.iter().map(|share| share.which.len()).sum();
                assert_eq!(of_shares, part.positions.len());
                sent.extend(part.positions);
            }
        }
        sent.sort_unstable();
        assert_eq!(sent, [2, 4, 5]);
    }

    #[test]
    fn an_offer_for_others_is_refused() {
        let source = source(0, 2);
        let decode = decode(&source, 2);
        let place = |worker| Some(Destination { worker, page_idx: 0 });
        let good = offer(2, 2, vec![place(1)]);
        assert_eq!(check_offer(&source, &decode, &good), Ok(()));
        let no_epoch = Offer { epoch: TransferEpoch(0), ..good.clone() };
        let far = Some(Destination { worker: 0, page_idx: 6 });
        let mut high = good.clone();
        high.inboxes[1].addr = u64::MAX - 63;
        let twice = offer(2, 2, vec![place(1), None, place(1)]);
        let others =
            [offer(2, 1, vec![]), offer(3, 2, vec![]), offer(2, 2, vec![place(2)]), offer(2, 2, vec![far])];
        for bad in others.into_iter().chain([no_epoch, high, twice]) {
            assert!(matches!(check_offer(&source, &decode, &bad), Err(Cause::Offer { .. })), "{bad:?}");
        }
        let run = RequestRun { first: 1, pages: vec![PageId(0)] };
        let error = plan_part(&source, &decode, &good, &run).unwrap_err().to_string();
        assert!(error.contains("1 positions"), "{error}");
    }

    #[test]
    fn a_straddling_page_is_sent_once_as_the_forwards_copy_of_it() {
        let (prefix_pages, current_pages) = ([3, 4, 5].map(PageId).to_vec(), [9, 2].map(PageId).to_vec());
        let request = RequestPages { prefix_tokens: 10, new_tokens: 5, prefix_pages, current_pages };
        let run =
            |first, pages: &[i32]| RequestRun { first, pages: pages.iter().copied().map(PageId).collect() };
        assert_eq!(RequestRun::of_prefix(&request, 4), run(0, &[3, 4]));
        assert_eq!(RequestRun::of_current(&request, 4), run(2, &[9, 2]));
        let cached = RequestPages { new_tokens: 0, current_pages: Vec::new(), ..request.clone() };
        assert_eq!(RequestRun::of_prefix(&cached, 4), run(0, &[3, 4, 5]));
        let whole = RequestPages { prefix_tokens: 12, ..request };
        assert_eq!(RequestRun::of_prefix(&whole, 4), run(0, &[3, 4, 5]));
        assert_eq!(RequestRun::of_current(&whole, 4), run(3, &[9, 2]));
    }

    #[test]
    fn workers_with_other_pages_are_refused() {
        let other = PoolMap { num_pages: 8, layers: vec![vec![LayerBuffer { addr: 0, page_bytes: 32 }]] };
        let route = WorkerRoute { peer: PeerId(0), pool: other };
        let error = DecodeGroup::new(&source(0, 2), vec![route]).unwrap_err().to_string();
        assert!(error.contains("worker 0") && error.contains("16") && error.contains("32"), "{error}");
    }
}
