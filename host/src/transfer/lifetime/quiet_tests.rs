//! Tests of the agreement, with ranks that are threads.

use std::collections::VecDeque;
use std::time::Duration;

use super::*;
use crate::group::parrot::Parrot;
use crate::group::{MAX_BLOB_BYTES, ThreadBootstrap};
use crate::transfer::lifetime::HeldPages;
use crate::units::{GroupSize, PageId};

const LONG: Duration = Duration::from_secs(60);

fn requests(ids: impl IntoIterator<Item = u64>) -> Vec<RequestId> {
    ids.into_iter().map(RequestId).collect()
}

/// What `rank` gives on every rank of a group of `num_ranks`, by rank.
fn on_ranks<T: Send>(num_ranks: u32, rank: impl Fn(&ThreadBootstrap) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let ranks = ThreadBootstrap::group(GroupSize::new(num_ranks).unwrap());
        let rank = &rank;
        let threads: Vec<_> = ranks.into_iter().map(|boot| scope.spawn(move || rank(&boot))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn only_what_every_rank_reports_is_agreed_on_in_the_same_order_everywhere() {
    let reports = [vec![7, 3, 5], vec![5, 7, 8, 7], vec![9, 7, 5, 1], vec![5, 7]];
    let answers = on_ranks(4, |boot| {
        let quiet = requests(reports[boot.rank().idx()].clone());
        agree_quiet(boot, &quiet, Deadline::after(LONG)).unwrap()
    });
    assert_eq!(answers, vec![requests([5, 7]); 4]);
}

#[test]
fn a_rank_that_has_not_confirmed_keeps_the_request_from_all() {
    for odd in 0..3 {
        let answers = on_ranks(3, |boot| {
            let quiet = if boot.rank() == Rank(odd) { requests([]) } else { requests([7]) };
            agree_quiet(boot, &quiet, Deadline::after(LONG)).unwrap()
        });
        assert_eq!(answers, vec![requests([]); 3]);
    }
}

#[test]
fn more_requests_than_one_exchange_carries_are_agreed_on() {
    let num_ids = 2 * (MAX_BLOB_BYTES / size_of::<u64>()) as u64 + 5;
    let answers = on_ranks(2, |boot| {
        let quiet = requests((0..num_ids - u64::from(boot.rank().0)).rev());
        agree_quiet(boot, &quiet, Deadline::after(LONG)).unwrap()
    });
    assert_eq!(answers, vec![requests(0..num_ids - 1); 2]);
}

#[test]
fn a_rank_that_does_not_come_is_named_and_nothing_is_agreed_on() {
    let outcomes = on_ranks(3, |boot| {
        (boot.rank() != Rank(1)).then(|| agree_quiet(boot, &requests([7]), Deadline::after(LONG)))
    });
    for outcome in outcomes.into_iter().flatten() {
        let error = outcome.unwrap_err();
        let BootstrapError::Missing { missing, .. } = error else { panic!("{error}") };
        assert!(missing.contains(Rank(1)), "{missing}");
    }
}

#[test]
fn a_list_that_is_not_whole_is_refused_by_rank() {
    let framed = |list: &[u8]| [&(list.len() as u64).to_le_bytes(), list].concat();
    let whole = encode(&requests([7, 8]));
    for blob in [Vec::new(), framed(&whole[..12]), framed(&whole)[..16].to_vec()] {
        let error = agree_quiet(&Parrot::new(blob), &requests([7]), Deadline::after(LONG)).unwrap_err();
        assert!(matches!(error, BootstrapError::BadBlob { rank: Rank(0), peer: Rank(1), .. }), "{error}");
    }
    let agreed = agree_quiet(&Parrot::new(framed(&whole)), &requests([7]), Deadline::after(LONG)).unwrap();
    assert_eq!(agreed, requests([7]));
}

/// Case 24: every rank has its own free list, which must stay the same as the others'.
#[test]
fn pages_in_flight_are_on_no_ranks_free_list_until_all_ranks_are_quiet() {
    let aborted = RequestId(1);
    let in_flight: Vec<_> = (14..44).map(PageId).collect();
    let answers = on_ranks(8, |boot| {
        let mut free: VecDeque<_> = (44..80).map(PageId).collect();
        let mut held = HeldPages::default();
        held.hold(aborted, &in_flight);
        let agree_and_free = |is_quiet: bool, held: &mut HeldPages, free: &mut VecDeque<PageId>| {
            let quiet = if is_quiet { vec![aborted] } else { Vec::new() };
            for request in agree_quiet(boot, &quiet, Deadline::after(LONG)).unwrap() {
                free.extend(held.release(request));
            }
        };
        // Rank 5 cannot confirm its writes at first.
        agree_and_free(boot.rank() != Rank(5), &mut held, &mut free);
        let next: Vec<_> = free.drain(..32).collect();
        assert!(next.iter().all(|page| !in_flight.contains(page) && !held.is_held(*page)), "{next:?}");
        assert!(in_flight.iter().all(|page| held.is_held(*page)));
        assert_eq!(free.len(), 4);
        agree_and_free(true, &mut held, &mut free);
        assert_eq!(held.num_held(), 0);
        free.into_iter().collect::<Vec<_>>()
    });
    let expected: Vec<_> = (76..80).chain(14..44).map(PageId).collect();
    assert_eq!(answers, vec![expected; 8]);
}
