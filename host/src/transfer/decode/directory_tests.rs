//! Tests of the directory, call by call.

use super::*;
use crate::model::ModelSpec;
use crate::transfer::{Geometry, LayerBuffer, PoolMap};

/// The hello of a worker that was never started: its addresses are made up.
pub(crate) fn hello(
    worker: u32,
    num_workers: u32,
    num_shard_pages: u32,
    num_inboxes: u32,
    num_ranks: u32,
) -> WorkerHello {
    let model = ModelSpec::preset("tiny").unwrap();
    let buffer = |&id| {
        let page_bytes = model.buffer(id).unwrap().spec.page_bytes();
        LayerBuffer { addr: 1 << 20, page_bytes }
    };
    let layers = model.layers.iter().map(|layer| layer.buffers.iter().map(buffer).collect());
    let addr = u64::from(worker + 1) << 30;
    WorkerHello {
        worker,
        num_workers,
        geometry: Geometry::of(&model).unwrap(),
        pool: PoolMap { num_pages: num_shard_pages, layers: layers.collect() },
        inboxes: InboxMemory { addr, num_inboxes, group_size: num_ranks, num_words: 5 },
        engine: "idle".to_owned(),
        engine_metadata: Vec::new(),
    }
}

/// The directory of `num_workers` with `num_shard_pages` each, fed by `num_ranks`.
pub(crate) fn directory(
    num_workers: u32,
    num_shard_pages: u32,
    num_inboxes: u32,
    num_ranks: u32,
) -> Directory {
    let hellos = (0..num_workers)
        .map(|worker| hello(worker, num_workers, num_shard_pages, num_inboxes, num_ranks))
        .collect::<Vec<_>>();
    Directory::new(&hellos, TransferEpoch(1)).unwrap()
}

/// The group-wide pages of places among `num_workers`: `q = place * W + worker`.
fn page_ids(places: &[Destination], num_workers: u32) -> Vec<u32> {
    places.iter().map(|place| place.page_idx * num_workers + place.worker).collect()
}

fn offered(offer: &Offer) -> Vec<Destination> {
    offer.destinations.iter().flatten().copied().collect()
}

const A: RequestId = RequestId(70);
const B: RequestId = RequestId(71);
const NONE: Cached<'static> = Cached::Leading(0);

#[test]
fn an_offer_has_a_place_for_every_position_and_an_inbox_at_every_worker() {
    let mut directory = directory(3, 4, 2, 8);
    let offer = directory.allocate(A, 5, NONE).unwrap();
    assert_eq!((offer.request, offer.epoch), (A, TransferEpoch(1)));
    assert_eq!(page_ids(&offered(&offer), 3), [0, 1, 2, 3, 4]);
    let addrs: Vec<_> = offer.inboxes.iter().map(|inbox| inbox.addr).collect();
    assert_eq!(addrs, [1 << 30, 2 << 30, 3 << 30]);
    let other = directory.allocate(B, 1, NONE).unwrap();
    assert_eq!((other.epoch, page_ids(&offered(&other), 3)), (TransferEpoch(2), vec![5]));
    assert_eq!(other.inboxes[0].addr, (1 << 30) + offer.inboxes[0].bytes());
}

#[test]
fn cached_positions_get_no_place_and_take_no_page() {
    let mut directory = directory(2, 8, 3, 8);
    let offer = directory.allocate(A, 4, Cached::Leading(3)).unwrap();
    let has_place: Vec<_> = offer.destinations.iter().map(Option::is_some).collect();
    assert_eq!(has_place, [false, false, false, true]);
    let offer = directory.allocate(B, 4, Cached::Positions(&[2, 0, 2])).unwrap();
    let has_place: Vec<_> = offer.destinations.iter().map(Option::is_some).collect();
    assert_eq!(has_place, [false, true, false, true]);
    assert_eq!(page_ids(&offered(&offer), 2), [1, 2]);
    assert_eq!(directory.counts(), PageCounts { num_free: 13, num_taken: 3, ..PageCounts::default() });
    let request = RequestId(72);
    for (cached, got) in [(Cached::Leading(5), 5), (Cached::Positions(&[0, 4]), 4)] {
        let error = directory.allocate(request, 4, cached).unwrap_err();
        assert_eq!(error, DirectoryError::CachedPosition { request, num_positions: 4, got });
    }
}

#[test]
fn too_few_pages_are_an_error_with_numbers_and_take_nothing() {
    let mut directory = directory(2, 5, 4, 2);
    directory.allocate(A, 3, NONE).unwrap();
    directory.complete(A).unwrap();
    directory.allocate(B, 2, NONE).unwrap();
    directory.allocate(A, 1, NONE).unwrap();
    directory.abort(A).unwrap();
    let request = RequestId(9);
    let (before, epoch) = (directory.counts(), directory.next_epoch);
    let error = directory.allocate(request, 6, Cached::Leading(1)).unwrap_err();
    let (num_free, num_taken, num_draining, num_held) = (4, 2, 1, 3);
    let expected =
        DirectoryError::NotEnoughPages { request, needed: 5, num_free, num_taken, num_draining, num_held };
    assert_eq!(error, expected);
    assert_eq!((directory.counts(), directory.next_epoch), (before, epoch));
    assert_eq!(page_ids(&offered(&directory.allocate(request, 4, NONE).unwrap()), 2), [6, 7, 8, 9]);
}

#[test]
fn an_inbox_drains_with_its_transfer() {
    let mut directory = directory(1, 8, 1, 2);
    let first = directory.allocate(A, 1, NONE).unwrap();
    directory.abort(A).unwrap();
    let error = directory.allocate(B, 1, NONE).unwrap_err();
    assert_eq!(error, DirectoryError::NoInbox { request: B, num_inboxes: 1, num_draining: 1 });
    assert_eq!(directory.counts().num_free, 7);
    for rank in 0..2 {
        directory.confirm_quiet(A, first.epoch, Rank(rank)).unwrap();
    }
    let second = directory.allocate(B, 1, NONE).unwrap();
    assert_eq!(second.inboxes, first.inboxes);
    assert_ne!(second.epoch, first.epoch);
}

#[test]
fn a_completed_transfer_gives_its_pages_to_the_caller_who_gives_them_back_once() {
    let mut directory = directory(2, 4, 1, 8);
    let offer = directory.allocate(A, 3, Cached::Leading(1)).unwrap();
    assert_eq!(directory.free_pages(&offered(&offer)).unwrap_err(), not_held(offered(&offer)[0]));
    let places = directory.complete(A).unwrap();
    assert_eq!(places, offered(&offer));
    assert_eq!(directory.counts(), PageCounts { num_free: 6, num_held: 2, ..PageCounts::default() });
    let twice = [places[0], places[1], places[0]];
    assert_eq!(directory.free_pages(&twice).unwrap_err(), not_held(places[0]));
    let outside = Destination { worker: 2, page_idx: 0 };
    assert_eq!(directory.free_pages(&[places[0], outside]).unwrap_err(), not_held(outside));
    assert_eq!(directory.counts().num_held, 2);
    directory.free_pages(&places).unwrap();
    assert_eq!(directory.free_pages(&places[1..]).unwrap_err(), not_held(places[1]));
    assert_eq!(directory.counts().num_free, 8);
}

fn not_held(page: Destination) -> DirectoryError {
    DirectoryError::NotHeld { page }
}

#[test]
fn aborted_pages_are_listed_until_every_rank_is_quiet() {
    let mut directory = directory(2, 4, 1, 3);
    let offer = directory.allocate(A, 2, NONE).unwrap();
    // A rank may be quiet before this side knows of the abort.
    assert_eq!(directory.confirm_quiet(A, offer.epoch, Rank(2)), Ok(false));
    assert_eq!(directory.quarantined(), []);
    assert_eq!(directory.abort(A), Ok(false));
    assert_eq!(directory.abort(A), Ok(false));
    assert_eq!(directory.complete(A), Err(DirectoryError::Aborted { request: A }));
    let waiting_for = [Rank(0), Rank(1)].into_iter().collect();
    let listed = Quarantined { request: A, epoch: offer.epoch, pages: offered(&offer), waiting_for };
    assert_eq!(directory.quarantined(), [listed]);
    assert_eq!(directory.confirm_quiet(A, offer.epoch, Rank(0)), Ok(false));
    assert_eq!(directory.confirm_quiet(A, offer.epoch, Rank(0)), Ok(false));
    assert_eq!(directory.counts().num_draining, 2);
    assert_eq!(directory.confirm_quiet(A, offer.epoch, Rank(1)), Ok(true));
    assert_eq!((directory.quarantined(), directory.counts().num_free), (Vec::new(), 8));
}

#[test]
fn an_abort_after_all_ranks_are_quiet_frees_at_once() {
    let mut directory = directory(1, 4, 1, 2);
    let offer = directory.allocate(A, 2, NONE).unwrap();
    for rank in 0..2 {
        assert_eq!(directory.confirm_quiet(A, offer.epoch, Rank(rank)), Ok(false));
    }
    assert_eq!(directory.abort(A), Ok(true));
    assert_eq!(directory.counts().num_free, 4);
}

#[test]
fn a_confirmation_of_an_earlier_transfer_frees_nothing() {
    let mut directory = directory(1, 4, 1, 1);
    let first = directory.allocate(A, 2, NONE).unwrap();
    directory.complete(A).unwrap();
    let second = directory.allocate(A, 2, NONE).unwrap();
    directory.abort(A).unwrap();
    let error = directory.confirm_quiet(A, first.epoch, Rank(0)).unwrap_err();
    let (expected, got) = (second.epoch, first.epoch);
    assert_eq!(error, DirectoryError::OtherEpoch { request: A, expected, got });
    let error = directory.confirm_quiet(A, second.epoch, Rank(1)).unwrap_err();
    assert_eq!(error, DirectoryError::NoSuchRank { request: A, rank: Rank(1), group_size: 1 });
    assert_eq!(directory.counts().num_draining, 2);
}

#[test]
fn requests_without_a_transfer_are_refused_and_so_is_a_second_transfer() {
    let mut directory = directory(1, 4, 2, 1);
    let unknown = |call| DirectoryError::UnknownRequest { call, request: A };
    assert_eq!(directory.complete(A), Err(unknown("complete")));
    assert_eq!(directory.abort(A), Err(unknown("abort")));
    assert_eq!(directory.confirm_quiet(A, TransferEpoch(1), Rank(0)), Err(unknown("confirm quiet")));
    directory.allocate(A, 1, NONE).unwrap();
    assert_eq!(directory.allocate(A, 1, NONE), Err(DirectoryError::InUse { request: A }));
    directory.abort(A).unwrap();
    assert_eq!(directory.allocate(A, 1, NONE), Err(DirectoryError::InUse { request: A }));
}

#[test]
fn epochs_begin_with_the_callers_never_are_zero_and_never_wrap() {
    let hellos = [hello(0, 1, 4, 3, 1)];
    let mut directory = Directory::new(&hellos, TransferEpoch(0)).unwrap();
    assert_eq!(directory.allocate(A, 0, NONE).unwrap().epoch, TransferEpoch(1));
    let mut directory = Directory::new(&hellos, TransferEpoch(u64::MAX - 1)).unwrap();
    assert_eq!(directory.allocate(A, 0, NONE).unwrap().epoch, TransferEpoch(u64::MAX - 1));
    let last = TransferEpoch(u64::MAX);
    assert_eq!(directory.allocate(B, 1, NONE), Err(DirectoryError::NoEpoch { last }));
    assert_eq!(directory.counts().num_free, 4);
}

/// Case 24.
#[test]
fn pages_in_flight_are_not_handed_out_after_an_abort() {
    let mut directory = directory(8, 10, 8, 8);
    directory.allocate(A, 14, NONE).unwrap();
    let in_flight = directory.allocate(B, 30, NONE).unwrap();
    assert_eq!(page_ids(&offered(&in_flight), 8), (14..44).collect::<Vec<_>>());
    directory.abort(B).unwrap();
    let next = directory.allocate(RequestId(1), 32, NONE).unwrap();
    let next = page_ids(&offered(&next), 8);
    assert!(next.len() == 32 && next.iter().all(|page| !(14..44).contains(page)), "{next:?}");
    // Nor when nothing else is left: 4 of 80 pages.
    let error = directory.allocate(RequestId(2), 5, NONE).unwrap_err();
    assert!(matches!(error, DirectoryError::NotEnoughPages { num_free: 4, num_draining: 30, .. }), "{error}");
    for rank in 0..8 {
        assert_eq!(directory.confirm_quiet(B, in_flight.epoch, Rank(rank)), Ok(rank == 7));
    }
    let after = directory.allocate(RequestId(2), 5, NONE).unwrap();
    assert_eq!(page_ids(&offered(&after), 8), [76, 77, 78, 79, 14]);
}

#[test]
fn workers_that_were_not_started_alike_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Vec<WorkerHello>)| {
        let mut hellos = vec![hello(1, 2, 4, 3, 8), hello(0, 2, 4, 3, 8)];
        assert!(Directory::new(&hellos, TransferEpoch(1)).is_ok());
        change(&mut hellos);
        Directory::new(&hellos, TransferEpoch(1)).unwrap_err().to_string()
    };
    let cases = [
        (refused(&|hellos| hellos.clear()), "no worker said hello"),
        (refused(&|hellos| hellos.truncate(1)), "1 workers said hello, worker 1 is one of 2"),
        (refused(&|hellos| hellos[1].worker = 1), "worker 1 said hello twice"),
        (refused(&|hellos| hellos[1].pool.num_pages = 5), "worker 0 has pages 5, the first worker 4"),
        (refused(&|hellos| hellos[1].inboxes.num_inboxes = 2), "worker 0 has inboxes 2"),
        (refused(&|hellos| hellos[1].inboxes.num_words = 6), "worker 0 has words a rank 6"),
        (refused(&|hellos| hellos[1].inboxes.group_size = 4), "worker 0 has prefill ranks 4"),
        (refused(&|hellos| hellos[1].geometry.page_size = 8), "page size 4 here, 8 there"),
        (
            refused(&|hellos| hellos.iter_mut().for_each(|hello| hello.pool.num_pages = u32::MAX)),
            "all workers together have 8589934590 pages",
        ),
    ];
    for (error, message) in cases {
        assert!(error.contains(message), "{error}");
    }
}
