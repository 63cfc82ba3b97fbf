//! Bytes that arrive: all of them, where they belong, and none beside.

use super::protocol::{Answer, Command};
use super::stage::{Actor, is_test};

#[test]
fn blocks_of_all_sizes_arrive_exactly_and_touch_nothing_else() {
    let test = "exact::blocks_of_all_sizes_arrive_exactly_and_touch_nothing_else";
    if !is_test() {
        return;
    }
    let mut prefill = Actor::open(test, "prefill");
    let mut decode = Actor::open(test, "decode");
    let source = prefill.memory(0, 3_000_000, 1);
    let target = decode.memory(0, 4_000_000, 2);
    let peer = prefill.add_peer(&mut decode).unwrap();
    // (offset there, offset here, length), not in order, with gaps, unaligned, an empty one among them.
    let blocks = [
        (1_000_001, 17, 41_984),
        (0, 2_900_000, 100_000),
        (3_999_999, 0, 1),
        (7, 5, 0),
        (200_000, 100_000, 500_003),
    ];
    let raw = blocks.map(|(to, from, bytes)| (source.addr + from, target.addr + to, bytes));
    prefill.write(peer, &raw).unwrap();
    let written = blocks.map(|(to, from, bytes)| (to, source.seed, from, bytes));
    assert_eq!(decode.wrong(target, &written), 0);
    assert_eq!(prefill.wrong(source, &[]), 0);
    prefill.quit();
    decode.quit();
}

#[test]
fn a_batch_of_no_block_is_done_and_one_of_two_thousand_is_exact() {
    let test = "exact::a_batch_of_no_block_is_done_and_one_of_two_thousand_is_exact";
    if !is_test() {
        return;
    }
    let mut prefill = Actor::open(test, "prefill");
    let mut decode = Actor::open(test, "decode");
    let source = prefill.memory(0, 2000 * 1000, 3);
    let target = decode.memory(0, 2000 * 1500, 4);
    let peer = prefill.add_peer(&mut decode).unwrap();
    let batch = prefill.submit(peer, &[]).unwrap();
    assert_eq!(prefill.number(Command::Poll { batch }).unwrap(), 1);
    // Its end was told: it is forgotten.
    let again = prefill.number(Command::Poll { batch }).unwrap_err();
    assert_eq!(again.problem, "UnknownBatch");
    // Shuffled: 777 and 2000 have no common factor.
    let place = |i: u64| (i * 777 % 2000) * 1500 + 250;
    let raw: Vec<_> = (0..2000).map(|i| (source.addr + i * 1000, target.addr + place(i), 1000)).collect();
    prefill.write(peer, &raw).unwrap();
    let written: Vec<_> = (0..2000).map(|i| (place(i), source.seed, i * 1000, 1000)).collect();
    assert_eq!(decode.wrong(target, &written), 0);
    prefill.quit();
    decode.quit();
}

#[test]
fn four_threads_write_to_two_peers_and_peers_write_back() {
    let test = "exact::four_threads_write_to_two_peers_and_peers_write_back";
    if !is_test() {
        return;
    }
    const BYTES: u64 = 300_000;
    let mut prefill = Actor::open(test, "prefill");
    let mut decodes = ["decode 0", "decode 1"].map(|name| Actor::open(test, name));
    let source = prefill.memory(0, 4 * BYTES, 5);
    let mut sets = Vec::new();
    let mut targets = Vec::new();
    for decode in &mut decodes {
        let target = decode.memory(0, 4 * BYTES, 6);
        let peer = prefill.add_peer(decode).unwrap();
        for half in 0..2 {
            let i = sets.len() as u64;
            // 100 blocks of 1000 bytes, each third of the range.
            let at = |k: u64| half * 2 * BYTES + k * 3000;
            let blocks = (0..100).map(|k| (source.addr + i * BYTES + k * 3000, target.addr + at(k), 1000));
            sets.push((peer, blocks.collect()));
        }
        targets.push(target);
    }
    prefill.number(Command::Threads { sets, rounds: 20 }).unwrap();
    for (d, decode) in decodes.iter_mut().enumerate() {
        let written: Vec<_> = (0..2)
            .flat_map(|half| (0..100).map(move |k| (half, k)))
            .map(|(half, k)| {
                let from = (2 * d as u64 + half) * BYTES + k * 3000;
                (half * 2 * BYTES + k * 3000, source.seed, from, 1000)
            })
            .collect();
        assert_eq!(decode.wrong(targets[d], &written), 0, "peer {d}");
        // And back, over a connection that the other side opened.
        let back = decode.add_peer(&mut prefill).unwrap();
        decode.write(back, &[(targets[d].addr + 500_000, source.addr + d as u64 * 1000, 1000)]).unwrap();
    }
    let written = [(0, 6, 500_000, 1000), (1000, 6, 500_000, 1000)];
    // What came back is what the peers had there: bytes that nobody had written.
    assert_eq!(prefill.wrong(source, &written), 0);
    prefill.quit();
    decodes.into_iter().for_each(Actor::quit);
}

#[test]
fn memory_registered_later_can_be_written_once_the_peer_is_added_anew() {
    let test = "exact::memory_registered_later_can_be_written_once_the_peer_is_added_anew";
    if !is_test() {
        return;
    }
    let mut prefill = Actor::open(test, "prefill");
    let mut decode = Actor::open(test, "decode");
    let source = prefill.memory(0, 10_000, 7);
    let first = decode.memory(0, 10_000, 8);
    let old = prefill.add_peer(&mut decode).unwrap();
    prefill.write(old, &[(source.addr, first.addr, 100)]).unwrap();
    let second = decode.memory(1, 10_000, 9);
    let refused = prefill.write(old, &[(source.addr, second.addr, 100)]).unwrap_err();
    assert!(refused.problem.starts_with("Refused"), "{}", refused.text);
    let new = prefill.add_peer(&mut decode).unwrap();
    assert_ne!(old, new);
    prefill
        .write(new, &[(source.addr + 1, second.addr, 100), (source.addr + 2, first.addr + 200, 50)])
        .unwrap();
    assert_eq!(decode.wrong(first, &[(0, 7, 0, 100), (200, 7, 2, 50)]), 0);
    assert_eq!(decode.wrong(second, &[(0, 7, 1, 100)]), 0);
    assert_eq!(prefill.write(old, &[]).unwrap_err().problem, "UnknownPeer");
    prefill.quit();
    decode.quit();
}

#[test]
fn an_idle_engine_takes_no_core_and_says_what_it_listens_on() {
    let test = "exact::an_idle_engine_takes_no_core_and_says_what_it_listens_on";
    if !is_test() {
        return;
    }
    let mut actor = Actor::start(test, &[]);
    let Answer::Text(info) = actor.ask(Command::Open { name: "idle".to_owned(), library: None }).unwrap()
    else {
        panic!("not a text");
    };
    assert!(info.contains("listening on lo") && info.contains("transports: tcp"), "{info}");
    let busy_ms = actor.number(Command::Idle { ms: 2_000 }).unwrap();
    assert!(busy_ms < 200, "{busy_ms} ms of 2000");
    actor.quit();
}
