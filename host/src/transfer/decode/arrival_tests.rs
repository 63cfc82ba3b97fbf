//! Tests of what is read off an inbox.

use super::*;
use crate::transfer::decode::directory::tests::hello;

const EPOCH: TransferEpoch = TransferEpoch(9);
const NUM_WORDS: u32 = 3;

fn expected() -> Expected {
    Expected {
        request: RequestId(7),
        epoch: EPOCH,
        group_size: GroupSize::new(3).unwrap(),
        num_layers: 4,
        num_words: NUM_WORDS,
        num_pages: 20,
    }
}

/// An inbox in which all has arrived: ranks 0 and 1 sent 12 and 8 pages, rank 2 had none to send.
struct Bytes {
    records: Vec<CompletionRecord>,
    words: Vec<[u64; NUM_WORDS as usize]>,
}

impl Bytes {
    fn complete() -> Self {
        let record = |rank, num_pages, num_words| {
            CompletionRecord::complete(RequestId(7), EPOCH, (rank, 3), 4, num_pages, num_words)
        };
        let records = vec![record(0, 12, 3), record(1, 8, 2), record(2, 0, 0)];
        // A word that no record counts is as an earlier transfer left it.
        Self { records, words: vec![[9, 9, 9], [9, 9, 4], [0, 8, 4]] }
    }

    fn judge(&self) -> Arrival {
        let records: Vec<u8> = self.records.iter().flat_map(|record| record.to_bytes()).collect();
        let words: Vec<u8> = self.words.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        judge(&expected(), &records, &words)
    }
}

fn ranks<const N: usize>(ranks: [u32; N]) -> RankSet {
    ranks.into_iter().map(Rank).collect()
}

#[test]
fn all_records_with_all_words_they_count_are_complete() {
    let arrival = Bytes::complete().judge();
    assert_eq!(arrival, Arrival::default());
    assert!(arrival.is_complete());
}

#[test]
fn an_inbox_that_was_never_written_misses_every_rank() {
    let arrival = judge(&expected(), &[0; 3 * 64], &[0; 3 * 3 * 8]);
    assert_eq!(arrival.missing, ranks([0, 1, 2]));
    assert!(!arrival.is_complete() && arrival.problem.is_none());
    assert_eq!(judge(&expected(), &[], &[]).missing, ranks([0, 1, 2]));
}

#[test]
fn records_of_an_earlier_transfer_and_half_written_ones_are_none() {
    let mut bytes = Bytes::complete();
    bytes.records[0] = CompletionRecord::complete(RequestId(7), TransferEpoch(8), (0, 3), 4, 12, 3);
    bytes.records[2].num_pages = 1;
    let arrival = bytes.judge();
    assert_eq!((arrival.missing, arrival.late, arrival.problem), (ranks([0, 2]), ranks([]), None));
}

#[test]
fn a_rank_without_pages_sends_a_record_all_the_same() {
    let mut bytes = Bytes::complete();
    bytes.records[2] = CompletionRecord::complete(RequestId(6), TransferEpoch(8), (2, 3), 4, 0, 0);
    assert_eq!(bytes.judge().missing, ranks([2]));
}

#[test]
fn payload_that_arrives_after_its_record_is_waited_for() {
    for (rank, word) in [(0, 0), (0, 2), (1, 1)] {
        let mut bytes = Bytes::complete();
        bytes.words[rank][word] = 8;
        let arrival = bytes.judge();
        assert_eq!((arrival.missing, arrival.late, arrival.problem), (ranks([]), ranks([rank as u32]), None));
        assert!(!arrival.is_complete());
    }
}

#[test]
fn words_without_a_record_prove_nothing() {
    let mut bytes = Bytes::complete();
    bytes.records[1].check ^= 1;
    assert_eq!(bytes.judge().missing, ranks([1]));
}

#[test]
fn a_record_that_contradicts_is_named_with_rank_field_and_both_values() {
    let of = |request, (rank, group_size), num_layers, num_pages, num_words| {
        CompletionRecord::complete(
            RequestId(request),
            EPOCH,
            (rank, group_size),
            num_layers,
            num_pages,
            num_words,
        )
    };
    let cases = [
        (of(6, (1, 3), 4, 8, 2), "request", 7, 6),
        (of(7, (2, 3), 4, 8, 2), "rank", 1, 2),
        (of(7, (1, 8), 4, 8, 2), "group_size", 3, 8),
        (of(7, (1, 3), 5, 8, 2), "num_layers", 4, 5),
        (of(7, (1, 3), 4, 8, 4), "num_words", 3, 4),
        (of(7, (1, 3), 4, 8, 0), "num_words", 1, 0),
    ];
    for (record, field, expected, got) in cases {
        let mut bytes = Bytes::complete();
        bytes.records[1] = record;
        let arrival = bytes.judge();
        let problem = ArrivalProblem::Record { rank: Rank(1), field, expected, got };
        assert_eq!(arrival.problem, Some(problem));
        assert!(!arrival.is_complete());
    }
}

#[test]
fn pages_that_nobody_sent_are_noticed_when_all_records_are_there() {
    let mut bytes = Bytes::complete();
    bytes.records[1] = CompletionRecord::complete(RequestId(7), EPOCH, (1, 3), 4, 7, 2);
    let problem = ArrivalProblem::NumPages { expected: 20, got: 19 };
    assert_eq!(bytes.judge().problem, Some(problem));
    bytes.records[0].check ^= 1;
    assert_eq!(bytes.judge().problem, None);
}

#[test]
fn what_is_expected_counts_the_pages_that_go_to_this_worker() {
    let place = |worker| Some(crate::transfer::Destination { worker, page_idx: 0 });
    let offer = Offer {
        request: RequestId(7),
        epoch: EPOCH,
        destinations: vec![None, place(0), place(1), place(1), None],
        inboxes: Vec::new(),
    };
    let group_size = GroupSize::new(3).unwrap();
    let num_pages = |worker, has_bare_layer| {
        let mut hello = hello(worker, 3, 4, 1, 3);
        if has_bare_layer {
            hello.pool.layers[1].clear();
        }
        let expected = Expected::of(&offer, &hello, group_size);
        assert_eq!((expected.num_layers, expected.num_words), (4, 5));
        expected.num_pages
    };
    assert_eq!([0, 1, 2].map(|worker| num_pages(worker, false)), [4, 8, 0]);
    // A layer without buffers has no page to send.
    assert_eq!(num_pages(1, true), 6);
}

#[test]
fn a_passed_deadline_names_who_is_missing_and_who_is_late() {
    let message = |missing, late| {
        let (request, worker) = (RequestId(7), Rank(2));
        ArrivalError::Deadline { request, worker, missing, late, waited_ms: 30_000 }.to_string()
    };
    let both = message(ranks([1]), ranks([0, 4]));
    assert!(both.contains("no completion record of ranks [1]; payload of ranks [0, 4] is missing"), "{both}");
    let record = message(ranks([1]), ranks([]));
    assert!(record.contains("after 30000 ms no completion record of ranks [1]: see"), "{record}");
    let payload = message(ranks([]), ranks([3]));
    assert!(payload.contains("after 30000 ms payload of ranks [3]") && !payload.contains("no completion"));
}
