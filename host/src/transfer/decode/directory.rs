//! The directory of a decode group: which pages and inboxes a request is offered, and when they are free again. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::DirectoryError;
use super::arrange::along;
use super::page_states::{PageState, PageStates};
use super::placement::{MAX_PAGES, Placement};
use crate::transfer::handshake::{HandshakeError, InboxMemory, WorkerHello};
use crate::transfer::{Destination, Offer, RequestId, TransferEpoch};
use crate::units::{GroupSize, PageId, Rank, RankSet};

/// Which positions of a request the decode side has already: nothing is sent for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached<'positions> {
    /// This many from the start; 0 where it has none.
    Leading(u32),
    /// These, in any order.
    Positions(&'positions [u32]),
}

/// How many pages are in which state. They add up to all pages of the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Free.
    pub num_free: u32,
    /// Of transfers.
    pub num_taken: u32,
    /// Of aborted transfers that are not quiet.
    pub num_draining: u32,
    /// Of the caller.
    pub num_held: u32,
}

/// An aborted transfer that may still write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// The request.
    pub request: RequestId,
    /// The transfer.
    pub epoch: TransferEpoch,
    /// Its pages, by position in the request.
    pub pages: Vec<Destination>,
    /// Prefill ranks that have not confirmed that they write no more.
    pub waiting_for: RankSet,
}

/// The directory of a decode group. There is one for the group, and it alone hands out the workers' memory.
///
/// | a transfer is | its pages and its inbox | call | then |
/// |---|---|---|---|
/// | (not there) | free | [`Directory::allocate`] | receiving |
/// | receiving | are written | [`Directory::complete`] | (not there): the caller has the pages, the inbox is free |
/// | receiving | are written | [`Directory::abort`] | draining |
/// | draining | may still be written | [`Directory::confirm_quiet`] of the last rank | (not there): both are free |
///
/// A rank may confirm before the abort: it is remembered. Which page and which inbox comes next follows from the calls
/// alone: first those never used, in order, then freed ones, longest free first.
#[derive(Clone, Debug)]
pub struct Directory {
    placement: Placement,
    pages: PageStates,
    transfers: BTreeMap<RequestId, Transfer>,
    /// By worker.
    inboxes: Vec<InboxMemory>,
    free_inboxes: VecDeque<u32>,
    prefill_ranks: RankSet,
    next_epoch: u64,
}

#[derive(Clone, Debug)]
struct Transfer {
    epoch: TransferEpoch,
    /// By position, without the cached ones.
    pages: Vec<PageId>,
    inbox_idx: u32,
    draining: bool,
    quiet: RankSet,
}

impl Directory {
    /// The directory of the workers whose `hellos` these are, in any order. Its epochs begin with `first_epoch` (0 counts
    /// as 1), which is beyond all that were used in these workers' memory before.
    ///
    /// # Errors
    /// [`DirectoryError`] where a worker is missing, or the workers were not started alike.
    pub fn new(hellos: &[WorkerHello], first_epoch: TransferEpoch) -> Result<Self, DirectoryError> {
        let Some(first) = hellos.first() else { return Err(DirectoryError::NoWorker) };
        let mut by_worker = BTreeMap::new();
        for hello in hellos {
            hello.check(&first.geometry, &first.engine)?;
            check_alike(first, hello, hellos.len())?;
            if by_worker.insert(hello.worker, hello.inboxes).is_some() {
                return Err(DirectoryError::WorkerTwice { worker: hello.worker });
            }
        }
        // As many distinct workers as there are in the group: each one.
        let num_workers = group_size_of(first.worker, first.num_workers)?;
        let got = u64::from(first.pool.num_pages) * u64::from(first.num_workers);
        let num_pages = u32::try_from(got).ok().filter(|&num_pages| num_pages <= MAX_PAGES);
        let num_pages = num_pages.ok_or(DirectoryError::TooManyPages { got, max: MAX_PAGES })?;
        let prefill_ranks = group_size_of(first.worker, first.inboxes.group_size)?.ranks().collect();
        let placement = Placement::new(num_workers, num_pages);
        Ok(Self {
            placement,
            pages: PageStates::new(placement.num_pages()),
            transfers: BTreeMap::new(),
            inboxes: by_worker.into_values().collect(),
            free_inboxes: (0..first.inboxes.num_inboxes).collect(),
            prefill_ranks,
            next_epoch: first_epoch.0.max(1),
        })
    }

    /// Takes pages for a request of `num_positions` pages, all but the `cached` ones, and an inbox: the offer that prefill
    /// is sent. All or nothing.
    ///
    /// # Errors
    /// [`DirectoryError::InUse`], [`DirectoryError::CachedPosition`], [`DirectoryError::NotEnoughPages`],
    /// [`DirectoryError::NoInbox`], [`DirectoryError::NoEpoch`].
    pub fn allocate(
        &mut self,
        request: RequestId,
        num_positions: u32,
        cached: Cached<'_>,
    ) -> Result<Offer, DirectoryError> {
        self.allocate_arranged(request, num_positions, cached, |_, _| {})
    }

    /// As [`Directory::allocate`], where it is known which pages the prefill side holds: `sources[i]` at position `i`. Pages
    /// that are neighbours in a prefill rank's shard get neighbouring places, so that they are sent as one block: in their
    /// order in the request, pages of one rank are a whole group apart, and hardly any two are neighbours on both sides.
    ///
    /// # Errors
    /// As [`Directory::allocate`].
    pub fn allocate_along(
        &mut self,
        request: RequestId,
        sources: &[PageId],
        cached: Cached<'_>,
    ) -> Result<Offer, DirectoryError> {
        let placement = self.placement;
        let group_size = self.prefill_ranks.iter().count() as u32;
        self.allocate_arranged(request, sources.len() as u32, cached, |pages, wanted| {
            along(placement, group_size, sources, pages, wanted);
        })
    }

    /// Takes pages and an inbox. `arrange` puts the pages into the order of the wanted positions.
    fn allocate_arranged(
        &mut self,
        request: RequestId,
        num_positions: u32,
        cached: Cached<'_>,
        arrange: impl FnOnce(&mut [PageId], &[u32]),
    ) -> Result<Offer, DirectoryError> {
        if self.transfers.contains_key(&request) {
            return Err(DirectoryError::InUse { request });
        }
        let cached = cached_positions(request, num_positions, cached)?;
        let needed = num_positions - cached.len() as u32;
        let PageCounts { num_free, num_taken, num_draining, num_held } = self.counts();
        let Some(&inbox_idx) = self.free_inboxes.front() else {
            let num_inboxes = self.transfers.len() as u32;
            let num_draining = self.transfers.values().filter(|transfer| transfer.draining).count() as u32;
            return Err(DirectoryError::NoInbox { request, num_inboxes, num_draining });
        };
        let epoch = TransferEpoch(self.next_epoch);
        let Some(next_epoch) = self.next_epoch.checked_add(1) else {
            return Err(DirectoryError::NoEpoch { last: epoch });
        };
        let Some(mut pages) = self.pages.take(request, needed) else {
            return Err(DirectoryError::NotEnoughPages {
                request,
                needed,
                num_free,
                num_taken,
                num_draining,
                num_held,
            });
        };
        self.free_inboxes.pop_front();
        self.next_epoch = next_epoch;
        let wanted: Vec<u32> = (0..num_positions).filter(|position| !cached.contains(position)).collect();
        arrange(&mut pages, &wanted);
        let mut places = pages.iter().map(|&page| self.placement.destination(page));
        let place = |position| if cached.contains(&position) { None } else { places.next() };
        let destinations = (0..num_positions).map(place).collect();
        let inboxes = self.inboxes.iter().filter_map(|inboxes| inboxes.inbox(inbox_idx)).collect();
        let transfer = Transfer { epoch, pages, inbox_idx, draining: false, quiet: RankSet::default() };
        self.transfers.insert(request, transfer);
        Ok(Offer { request, epoch, destinations, inboxes })
    }

    /// Ends a transfer whose pages have all arrived, at all workers. Returns where they are: those that the offer had a
    /// destination for, in the order of their positions. Pages that the decode side had cached are not among them, so with some
    /// the `i`-th is not position `i`. They are the caller's until [`Directory::free_pages`].
    ///
    /// # Errors
    /// [`DirectoryError::UnknownRequest`], [`DirectoryError::Aborted`].
    pub fn complete(&mut self, request: RequestId) -> Result<Vec<Destination>, DirectoryError> {
        if self.transfer("complete", request)?.draining {
            return Err(DirectoryError::Aborted { request });
        }
        let Some(transfer) = self.transfers.remove(&request) else { return Ok(Vec::new()) };
        self.pages.hand_over(&transfer.pages);
        self.free_inboxes.push_back(transfer.inbox_idx);
        Ok(self.places(&transfer.pages))
    }

    /// Takes back pages that the caller reads no more. All or nothing.
    ///
    /// # Errors
    /// [`DirectoryError::NotHeld`].
    pub fn free_pages(&mut self, places: &[Destination]) -> Result<(), DirectoryError> {
        let mut pages = Vec::with_capacity(places.len());
        let mut named = BTreeSet::new();
        for &place in places {
            let page = self.placement.page(place);
            let held = page.filter(|&page| self.pages.state(page) == PageState::Held && named.insert(page));
            pages.push(held.ok_or(DirectoryError::NotHeld { page: place })?);
        }
        self.pages.free(&pages);
        Ok(())
    }

    /// Gives up a transfer. Its pages and its inbox stay taken until every prefill rank has confirmed that it writes no
    /// more. Says whether they all had, so that both are free now. Aborting again changes nothing.
    ///
    /// # Errors
    /// [`DirectoryError::UnknownRequest`].
    pub fn abort(&mut self, request: RequestId) -> Result<bool, DirectoryError> {
        self.transfer("abort", request)?.draining = true;
        Ok(self.free_if_quiet(request))
    }

    /// Notes that prefill rank `rank` writes no more for transfer `epoch` of `request`: its batches are done, or known to be
    /// quiet, or its process is gone. Where the engine delivers after completion
    /// ([`Delivery::InOrder`](crate::transfer::Delivery::InOrder)), done is not enough: [`Inbox::look`](super::Inbox::look)
    /// says that the rank is neither missing nor late. Says whether that ended the transfer, so that its pages and its inbox
    /// are free now. Confirming again changes nothing.
    ///
    /// # Errors
    /// [`DirectoryError::UnknownRequest`]; [`DirectoryError::OtherEpoch`] for a message that was under way since an earlier
    /// transfer; [`DirectoryError::NoSuchRank`].
    pub fn confirm_quiet(
        &mut self,
        request: RequestId,
        epoch: TransferEpoch,
        rank: Rank,
    ) -> Result<bool, DirectoryError> {
        let prefill_ranks = self.prefill_ranks;
        let transfer = self.transfer("confirm quiet", request)?;
        if transfer.epoch != epoch {
            let (expected, got) = (transfer.epoch, epoch);
            return Err(DirectoryError::OtherEpoch { request, expected, got });
        }
        if !prefill_ranks.iter().any(|known| known == rank) {
            let group_size = prefill_ranks.iter().count() as u32;
            return Err(DirectoryError::NoSuchRank { request, rank, group_size });
        }
        transfer.quiet.insert(rank);
        Ok(self.free_if_quiet(request))
    }

    /// Aborted transfers that may still write, by request.
    pub fn quarantined(&self) -> Vec<Quarantined> {
        let draining = self.transfers.iter().filter(|(_, transfer)| transfer.draining);
        let quarantined = draining.map(|(&request, transfer)| Quarantined {
            request,
            epoch: transfer.epoch,
            pages: self.places(&transfer.pages),
            waiting_for: RankSet(self.prefill_ranks.0 & !transfer.quiet.0),
        });
        quarantined.collect()
    }

    /// How many pages are in which state.
    pub fn counts(&self) -> PageCounts {
        let pages_of = |draining| {
            let transfers = self.transfers.values().filter(|transfer| transfer.draining == draining);
            transfers.map(|transfer| transfer.pages.len() as u32).sum()
        };
        PageCounts {
            num_free: self.pages.num_free(),
            num_taken: pages_of(false),
            num_draining: pages_of(true),
            num_held: self.pages.num_held(),
        }
    }

    /// Pages of the group.
    pub const fn num_pages(&self) -> u32 {
        self.placement.num_pages()
    }

    fn transfer(&mut self, call: &'static str, request: RequestId) -> Result<&mut Transfer, DirectoryError> {
        self.transfers.get_mut(&request).ok_or(DirectoryError::UnknownRequest { call, request })
    }

    fn free_if_quiet(&mut self, request: RequestId) -> bool {
        let ranks = self.prefill_ranks;
        let is_quiet = |transfer: &Transfer| transfer.draining && transfer.quiet == ranks;
        if !self.transfers.get(&request).is_some_and(is_quiet) {
            return false;
        }
        if let Some(transfer) = self.transfers.remove(&request) {
            self.pages.free(&transfer.pages);
            self.free_inboxes.push_back(transfer.inbox_idx);
        }
        true
    }

    fn places(&self, pages: &[PageId]) -> Vec<Destination> {
        pages.iter().map(|&page| self.placement.destination(page)).collect()
    }
}

/// Whether `hello` is of the same group as `first`, which has as many workers as there are hellos.
fn check_alike(first: &WorkerHello, hello: &WorkerHello, num_hellos: usize) -> Result<(), DirectoryError> {
    let worker = hello.worker;
    if hello.num_workers as usize != num_hellos {
        return Err(DirectoryError::NumWorkers { worker, expected: hello.num_workers, got: num_hellos });
    }
    let fields = [
        ("pages", first.pool.num_pages, hello.pool.num_pages),
        ("inboxes", first.inboxes.num_inboxes, hello.inboxes.num_inboxes),
        ("words a rank", first.inboxes.num_words, hello.inboxes.num_words),
        ("prefill ranks", first.inboxes.group_size, hello.inboxes.group_size),
    ];
    match fields.into_iter().find(|(_, expected, got)| expected != got) {
        Some((field, expected, got)) => Err(DirectoryError::Options { worker, field, expected, got }),
        None => Ok(()),
    }
}

/// A number of a hello that was checked.
fn group_size_of(worker: u32, got: u32) -> Result<GroupSize, DirectoryError> {
    let problem =
        HandshakeError::Value { worker, field: "a group size", expected: "1 to 64", got: u64::from(got) };
    GroupSize::new(got).map_err(|_| problem.into())
}

fn cached_positions(
    request: RequestId,
    num_positions: u32,
    cached: Cached<'_>,
) -> Result<BTreeSet<u32>, DirectoryError> {
    let refused = |got| DirectoryError::CachedPosition { request, num_positions, got };
    match cached {
        Cached::Leading(num) if num > num_positions => Err(refused(num)),
        Cached::Leading(num) => Ok((0..num).collect()),
        Cached::Positions(positions) => match positions.iter().find(|&&position| position >= num_positions) {
            Some(&position) => Err(refused(position)),
            None => Ok(positions.iter().copied().collect()),
        },
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
pub(super) mod tests;
