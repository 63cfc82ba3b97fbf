//! Random calls on a directory against a naive model: every page with its state, nothing derived.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::directory::tests::directory;
use super::{Cached, Directory, DirectoryError, PageCounts};
use crate::transfer::{Destination, InboxMap, Offer, RequestId, TransferEpoch};
use crate::units::Rank;

/// One call. Requests and ranks are few, so that calls meet.
#[derive(Clone, Debug)]
enum Call {
    Allocate {
        request: u64,
        num_positions: u32,
        num_cached: u32,
    },
    Complete {
        request: u64,
    },
    Abort {
        request: u64,
    },
    Confirm {
        request: u64,
        rank: u32,
        stale: bool,
    },
    /// Frees some of the pages that the caller holds: those whose number has a bit in the mask.
    Free {
        mask: u64,
    },
    /// Frees one page that the caller may not hold.
    FreeAny {
        worker: u32,
        page_idx: u32,
    },
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let request = || 0..5_u64;
    let call = prop_oneof![
        4 => (request(), 0..9_u32, 0..4_u32).prop_map(|(request, num_positions, num_cached)| {
            Call::Allocate { request, num_positions, num_cached }
        }),
        2 => request().prop_map(|request| Call::Complete { request }),
        2 => request().prop_map(|request| Call::Abort { request }),
        5 => (request(), 0..4_u32, prop::bool::weighted(0.1))
            .prop_map(|(request, rank, stale)| Call::Confirm { request, rank, stale }),
        2 => any::<u64>().prop_map(|mask| Call::Free { mask }),
        1 => (0..4_u32, 0..8_u32).prop_map(|(worker, page_idx)| Call::FreeAny { worker, page_idx }),
    ];
    vec(call, 0..120)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Free,
    Taken(RequestId),
    Draining(RequestId),
    Held,
}

struct Model {
    num_ranks: u32,
    num_inboxes: usize,
    pages: BTreeMap<Destination, Whose>,
    offers: BTreeMap<RequestId, (Offer, BTreeSet<u32>)>,
    used_epochs: BTreeSet<TransferEpoch>,
}

impl Model {
    fn new(num_workers: u32, num_shard_pages: u32, num_inboxes: u32, num_ranks: u32) -> Self {
        let places = (0..num_workers)
            .flat_map(|worker| (0..num_shard_pages).map(move |page_idx| Destination { worker, page_idx }));
        Self {
            num_ranks,
            num_inboxes: num_inboxes as usize,
            pages: places.map(|place| (place, Whose::Free)).collect(),
            offers: BTreeMap::new(),
            used_epochs: BTreeSet::new(),
        }
    }

    fn are(&self, whose: impl Fn(Whose) -> bool) -> Vec<Destination> {
        self.pages.iter().filter(|(_, of)| whose(**of)).map(|(&place, _)| place).collect()
    }

    fn set(&mut self, from: Whose, to: Whose) {
        self.pages.values_mut().filter(|whose| **whose == from).for_each(|whose| *whose = to);
    }

    fn is_draining(&self, request: RequestId) -> bool {
        self.pages.values().any(|whose| *whose == Whose::Draining(request))
    }

    /// What of an aborted transfer is free now.
    fn drain(&mut self, request: RequestId) -> bool {
        let quiet = self.offers.get(&request).is_some_and(|(_, quiet)| quiet.len() as u32 == self.num_ranks);
        if quiet {
            self.set(Whose::Draining(request), Whose::Free);
            self.offers.remove(&request);
        }
        quiet
    }

    fn counts(&self) -> PageCounts {
        let num = |whose: fn(Whose) -> bool| self.are(whose).len() as u32;
        PageCounts {
            num_free: num(|whose| whose == Whose::Free),
            num_taken: num(|whose| matches!(whose, Whose::Taken(_))),
            num_draining: num(|whose| matches!(whose, Whose::Draining(_))),
            num_held: num(|whose| whose == Whose::Held),
        }
    }
}

/// Makes one call on both, and compares.
fn step(directory: &mut Directory, model: &mut Model, call: &Call) -> Result<(), TestCaseError> {
    match *call {
        Call::Allocate { request, num_positions, num_cached } => {
            allocate(directory, model, RequestId(request), num_positions, num_cached)
        }
        Call::Complete { request } => complete(directory, model, RequestId(request)),
        Call::Abort { request } => abort(directory, model, RequestId(request)),
        Call::Confirm { request, rank, stale } => confirm(directory, model, RequestId(request), rank, stale),
        Call::Free { mask } => {
            let held = model.are(|whose| whose == Whose::Held).into_iter().zip(0_u32..);
            let pages: Vec<_> =
                held.filter(|(_, i)| mask >> (i % 64) & 1 == 1).map(|(page, _)| page).collect();
            prop_assert_eq!(directory.free_pages(&pages), Ok(()));
            model.pages.extend(pages.into_iter().map(|page| (page, Whose::Free)));
            Ok(())
        }
        Call::FreeAny { worker, page_idx } => {
            let page = Destination { worker, page_idx };
            let held = model.pages.get(&page) == Some(&Whose::Held);
            let expected = if held { Ok(()) } else { Err(DirectoryError::NotHeld { page }) };
            prop_assert_eq!(directory.free_pages(&[page]), expected);
            if held {
                model.pages.insert(page, Whose::Free);
            }
            Ok(())
        }
    }
}

fn allocate(
    directory: &mut Directory,
    model: &mut Model,
    request: RequestId,
    num_positions: u32,
    num_cached: u32,
) -> Result<(), TestCaseError> {
    let num_free = model.are(|whose| whose == Whose::Free).len() as u32;
    let fits = num_cached <= num_positions
        && num_positions - num_cached <= num_free
        && !model.offers.contains_key(&request)
        && model.offers.len() < model.num_inboxes;
    let offer = match directory.allocate(request, num_positions, Cached::Leading(num_cached)) {
        Ok(offer) => offer,
        Err(error) => {
            prop_assert!(!fits, "{}", error);
            return Ok(());
        }
    };
    prop_assert!(fits);
    prop_assert_eq!(offer.destinations.len() as u32, num_positions);
    prop_assert!(offer.destinations.iter().zip(0..).all(|(place, i)| place.is_none() == (i < num_cached)));
    for &place in offer.destinations.iter().flatten() {
        // Also refuses a page that is offered twice.
        prop_assert_eq!(model.pages.insert(place, Whose::Taken(request)), Some(Whose::Free));
    }
    prop_assert!(offer.epoch.0 != 0 && model.used_epochs.insert(offer.epoch));
    for (other, _) in model.offers.values() {
        let overlap =
            |(a, b): (&InboxMap, &InboxMap)| a.addr < b.addr + b.bytes() && b.addr < a.addr + a.bytes();
        prop_assert!(!offer.inboxes.iter().zip(&other.inboxes).any(overlap));
    }
    model.offers.insert(request, (offer, BTreeSet::new()));
    Ok(())
}

fn complete(directory: &mut Directory, model: &mut Model, request: RequestId) -> Result<(), TestCaseError> {
    // A transfer without pages has no page that says so: the outcome tells.
    match directory.complete(request) {
        Ok(places) => {
            prop_assert!(!model.is_draining(request));
            let (offer, _) = model.offers.remove(&request).unwrap();
            prop_assert!(offer.destinations.into_iter().flatten().eq(places));
            model.set(Whose::Taken(request), Whose::Held);
        }
        Err(DirectoryError::UnknownRequest { .. }) => prop_assert!(!model.offers.contains_key(&request)),
        Err(DirectoryError::Aborted { .. }) => {
            prop_assert!(model.are(|whose| whose == Whose::Taken(request)).is_empty());
        }
        Err(error) => prop_assert!(false, "{}", error),
    }
    Ok(())
}

fn abort(directory: &mut Directory, model: &mut Model, request: RequestId) -> Result<(), TestCaseError> {
    if !model.offers.contains_key(&request) {
        prop_assert!(directory.abort(request).is_err());
        return Ok(());
    }
    model.set(Whose::Taken(request), Whose::Draining(request));
    let freed = model.drain(request);
    prop_assert_eq!(directory.abort(request), Ok(freed));
    Ok(())
}

fn confirm(
    directory: &mut Directory,
    model: &mut Model,
    request: RequestId,
    rank: u32,
    stale: bool,
) -> Result<(), TestCaseError> {
    let is_quarantined = directory.quarantined().iter().any(|listed| listed.request == request);
    let num_ranks = model.num_ranks;
    let Some((offer, quiet)) = model.offers.get_mut(&request) else {
        prop_assert!(directory.confirm_quiet(request, TransferEpoch(1), Rank(rank)).is_err());
        return Ok(());
    };
    let epoch = TransferEpoch(offer.epoch.0 - u64::from(stale));
    let outcome = directory.confirm_quiet(request, epoch, Rank(rank));
    if stale || rank >= num_ranks {
        prop_assert!(outcome.is_err());
        return Ok(());
    }
    quiet.insert(rank);
    let freed = is_quarantined && model.drain(request);
    prop_assert_eq!(outcome, Ok(freed));
    Ok(())
}

/// What holds after every call.
fn compare(directory: &Directory, model: &Model) -> Result<(), TestCaseError> {
    let counts = directory.counts();
    prop_assert_eq!(counts, model.counts());
    let sum = counts.num_free + counts.num_taken + counts.num_draining + counts.num_held;
    prop_assert_eq!((sum, directory.num_pages()), (model.pages.len() as u32, model.pages.len() as u32));
    let mut quarantined = BTreeSet::new();
    for listed in directory.quarantined() {
        let (offer, quiet) = &model.offers[&listed.request];
        prop_assert_eq!(listed.epoch, offer.epoch);
        prop_assert!(offer.destinations.iter().flatten().eq(&listed.pages));
        let waiting_for: Vec<_> = listed.waiting_for.iter().map(|rank| rank.0).collect();
        let expected: Vec<_> = (0..model.num_ranks).filter(|rank| !quiet.contains(rank)).collect();
        prop_assert_eq!(waiting_for, expected);
        quarantined.extend(listed.pages);
    }
    let draining: BTreeSet<_> = model.are(|whose| matches!(whose, Whose::Draining(_))).into_iter().collect();
    prop_assert_eq!(quarantined, draining);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_page_is_handed_out_while_it_may_be_written_or_read_and_none_is_lost(
        calls in calls(),
        num_workers in 1..4_u32,
        num_shard_pages in 1..8_u32,
        num_inboxes in 1..5_u32,
        num_ranks in 1..4_u32,
    ) {
        let mut directory = directory(num_workers, num_shard_pages, num_inboxes, num_ranks);
        let mut model = Model::new(num_workers, num_shard_pages, num_inboxes, num_ranks);
        for call in &calls {
            step(&mut directory, &mut model, call)?;
            compare(&directory, &model)?;
        }
        // Whatever happened, everything can be freed in the end, and allocated at once.
        for (request, (offer, _)) in model.offers.clone() {
            prop_assert!(directory.abort(request).is_ok());
            for rank in 0..num_ranks {
                // The last confirmation may have ended it.
                let _ = directory.confirm_quiet(request, offer.epoch, Rank(rank));
            }
        }
        prop_assert_eq!(directory.free_pages(&model.are(|whose| whose == Whose::Held)), Ok(()));
        let all = directory.num_pages();
        let offer = directory.allocate(RequestId(99), all, Cached::Leading(0)).unwrap();
        prop_assert_eq!(offer.destinations.iter().flatten().collect::<BTreeSet<_>>().len() as u32, all);
    }

    #[test]
    fn equal_calls_give_equal_offers(calls in calls()) {
        let outcome = |directory: &mut Directory, model: &mut Model| {
            calls.iter().try_for_each(|call| step(directory, model, call))?;
            Ok::<_, TestCaseError>(model.offers.clone())
        };
        let run = || outcome(&mut directory(3, 7, 4, 3), &mut Model::new(3, 7, 4, 3));
        prop_assert_eq!(run()?, run()?);
    }
}
