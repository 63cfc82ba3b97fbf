//! Peers that die, freeze, and come back.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::protocol::Command;
use super::stage::{Actor, Memory, PATIENCE, is_test};

/// More than the sockets between two processes hold.
const MUCH: u64 = 32 << 20;

/// A prefill process with `MUCH` registered memory, a decode one, and the decode one's id. The connection is up.
fn pair(test: &str) -> (Actor, Memory, Actor, Memory, u32) {
    let mut prefill = Actor::open(test, "prefill");
    let mut decode = Actor::open(test, "decode");
    let source = prefill.memory(0, MUCH, 1);
    let target = decode.memory(0, MUCH, 2);
    let peer = prefill.add_peer(&mut decode).unwrap();
    prefill.write(peer, &[(source.addr, target.addr, 64)]).unwrap();
    (prefill, source, decode, target, peer)
}

/// The error that a batch to a dead peer ends with, at submit or later.
fn lost(prefill: &mut Actor, peer: u32, block: (u64, u64, u64)) {
    let begun = Instant::now();
    let error = prefill.write(peer, &[block]).unwrap_err();
    assert!(error.problem.starts_with("PeerLost"), "{}", error.text);
    assert_eq!(error.peer.as_deref(), Some("decode"));
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
}

#[test]
fn a_peer_that_died_before_the_submit_is_an_error_that_names_it() {
    let test = "lost_peers::a_peer_that_died_before_the_submit_is_an_error_that_names_it";
    if !is_test() {
        return;
    }
    let (mut prefill, source, decode, target, peer) = pair(test);
    decode.kill();
    lost(&mut prefill, peer, (source.addr, target.addr, 1 << 20));
    lost(&mut prefill, peer, (source.addr, target.addr, 1 << 20));
    prefill.quit();
}

#[test]
fn a_peer_that_died_before_the_first_connection_is_an_error_that_names_it() {
    let test = "lost_peers::a_peer_that_died_before_the_first_connection_is_an_error_that_names_it";
    if !is_test() {
        return;
    }
    let mut prefill = Actor::open(test, "prefill");
    let mut decode = Actor::open(test, "decode");
    let source = prefill.memory(0, 1000, 1);
    let target = decode.memory(0, 1000, 2);
    let metadata = decode.metadata();
    decode.kill();
    // On this machine it fails as early as here; a connection to another one is refused later.
    match prefill.number(Command::AddPeer { metadata }) {
        Ok(peer) => lost(&mut prefill, peer as u32, (source.addr, target.addr, 1000)),
        Err(error) => {
            assert!(error.problem.starts_with("PeerLost"), "{}", error.text);
            assert_eq!((error.call.as_str(), error.peer.as_deref()), ("add_peer", Some("decode")));
        }
    }
    prefill.quit();
}

#[test]
fn a_peer_that_dies_in_the_middle_of_a_batch_is_an_error_that_names_it() {
    let test = "lost_peers::a_peer_that_dies_in_the_middle_of_a_batch_is_an_error_that_names_it";
    if !is_test() {
        return;
    }
    let (mut prefill, source, decode, target, peer) = pair(test);
    // Frozen first, so that the batch cannot be over before it dies.
    decode.signal(Signal::STOP);
    let batch = prefill.submit(peer, &[(source.addr, target.addr, MUCH)]).unwrap();
    assert_eq!(prefill.number(Command::Poll { batch }).unwrap(), 0);
    decode.kill();
    let error = prefill.wait(batch, PATIENCE / 2).unwrap_err();
    assert!(error.problem.starts_with("PeerLost"), "{}", error.text);
    assert_eq!((error.call.as_str(), error.peer.as_deref()), ("poll", Some("decode")));
    prefill.quit();
}

#[test]
fn a_frozen_peer_is_reported_at_our_deadline_and_the_process_ends_cleanly() {
    let test = "lost_peers::a_frozen_peer_is_reported_at_our_deadline_and_the_process_ends_cleanly";
    if !is_test() {
        return;
    }
    let (mut prefill, source, decode, target, peer) = pair(test);
    decode.signal(Signal::STOP);
    let batch = prefill.submit(peer, &[(source.addr, target.addr, MUCH)]).unwrap();
    let begun = Instant::now();
    let late = prefill.wait(batch, Duration::from_millis(500)).unwrap_err();
    let waited = begun.elapsed();
    assert!(late.problem.starts_with("Deadline"), "{}", late.text);
    assert_eq!((late.call.as_str(), late.peer.as_deref()), ("wait", Some("decode")));
    assert!(waited > Duration::from_millis(500) && waited < PATIENCE / 2, "{waited:?}");
    // Still in flight, and not known to be quiet.
    assert_eq!(prefill.number(Command::Poll { batch }).unwrap(), 0);
    assert_eq!(prefill.number(Command::Abandon { batch }).unwrap(), 0);
    assert_eq!(prefill.number(Command::Poll { batch }).unwrap_err().problem, "UnknownBatch");
    prefill.quit();
    decode.signal(Signal::CONT);
    decode.quit();
}

#[test]
fn a_process_that_leaves_with_its_engine_and_a_batch_in_flight_ends_cleanly() {
    let test = "lost_peers::a_process_that_leaves_with_its_engine_and_a_batch_in_flight_ends_cleanly";
    if !is_test() {
        return;
    }
    let (mut prefill, source, decode, target, peer) = pair(test);
    decode.signal(Signal::STOP);
    prefill.submit(peer, &[(source.addr, target.addr, MUCH)]).unwrap();
    prefill.leave();
    decode.signal(Signal::CONT);
    decode.quit();
}

#[test]
fn a_process_that_exits_with_its_engine_open_has_its_own_status() {
    let test = "lost_peers::a_process_that_exits_with_its_engine_open_has_its_own_status";
    if !is_test() {
        return;
    }
    let (mut prefill, source, decode, target, peer) = pair(test);
    decode.signal(Signal::STOP);
    prefill.submit(peer, &[(source.addr, target.addr, MUCH)]).unwrap();
    prefill.exit(7);
    decode.signal(Signal::CONT);
    decode.exit(0);
}

#[test]
fn memory_of_an_abandoned_batch_outlives_its_owner_until_the_batch_ends() {
    let test = "lost_peers::memory_of_an_abandoned_batch_outlives_its_owner_until_the_batch_ends";
    if !is_test() {
        return;
    }
    let (mut prefill, source, mut decode, target, peer) = pair(test);
    decode.signal(Signal::STOP);
    let batch = prefill.submit(peer, &[(source.addr, target.addr, MUCH)]).unwrap();
    assert_eq!(prefill.number(Command::Abandon { batch }).unwrap(), 0);
    prefill.number(Command::Unregister { registration: source.registration }).unwrap();
    prefill.number(Command::Free { buffer: 0 }).unwrap();
    decode.signal(Signal::CONT);
    // Nobody polls it, and yet it is delivered: from memory that is still there.
    let begun = Instant::now();
    while decode.wrong(target, &[(0, source.seed, 0, MUCH)]) > 0 {
        assert!(begun.elapsed() < PATIENCE, "never delivered");
    }
    prefill.quit();
    decode.quit();
}

#[test]
fn a_restarted_peer_takes_the_place_of_the_former() {
    let test = "lost_peers::a_restarted_peer_takes_the_place_of_the_former";
    if !is_test() {
        return;
    }
    let (mut prefill, source, decode, target, old) = pair(test);
    // A batch is on its way when it dies, and another is never tried.
    decode.signal(Signal::STOP);
    let batch = prefill.submit(old, &[(source.addr, target.addr, MUCH)]).unwrap();
    decode.kill();
    let mut decode = Actor::open(test, "decode");
    let target = decode.memory(0, 10_000, 3);
    let new = prefill.add_peer(&mut decode).unwrap();
    prefill.write(new, &[(source.addr, target.addr, 5_000)]).unwrap();
    assert_eq!(decode.wrong(target, &[(0, 1, 0, 5_000)]), 0);
    assert_eq!(prefill.submit(old, &[(source.addr, target.addr, 1)]).unwrap_err().problem, "UnknownPeer");
    let error = prefill.wait(batch, PATIENCE / 2).unwrap_err();
    assert!(error.problem.starts_with("PeerLost"), "{}", error.text);
    // The old connection's end does not touch the new one.
    prefill.write(new, &[(source.addr, target.addr + 5_000, 5_000)]).unwrap();
    assert_eq!(decode.wrong(target, &[(0, 1, 0, 5_000), (5_000, 1, 0, 5_000)]), 0);
    prefill.quit();
    decode.quit();
}

#[test]
fn a_peer_that_replaces_a_frozen_one_is_written_to_while_the_old_batch_hangs() {
    let test = "lost_peers::a_peer_that_replaces_a_frozen_one_is_written_to_while_the_old_batch_hangs";
    if !is_test() {
        return;
    }
    let (mut prefill, source, frozen, target, old) = pair(test);
    frozen.signal(Signal::STOP);
    let batch = prefill.submit(old, &[(source.addr, target.addr, MUCH)]).unwrap();
    let mut decode = Actor::open(test, "decode");
    let target = decode.memory(0, 10_000, 3);
    let new = prefill.add_peer(&mut decode).unwrap();
    prefill.write(new, &[(source.addr, target.addr, 5_000)]).unwrap();
    assert_eq!(decode.wrong(target, &[(0, 1, 0, 5_000)]), 0);
    assert_eq!(prefill.number(Command::Poll { batch }).unwrap(), 0);
    prefill.quit();
    decode.quit();
    frozen.signal(Signal::CONT);
    frozen.quit();
}

#[test]
fn a_peer_is_added_to_while_a_batch_to_it_is_in_flight() {
    let test = "lost_peers::a_peer_is_added_to_while_a_batch_to_it_is_in_flight";
    if !is_test() {
        return;
    }
    let (mut prefill, source, mut decode, target, old) = pair(test);
    let more = decode.memory(1, 10_000, 3);
    let metadata = decode.metadata();
    decode.signal(Signal::STOP);
    let batch = prefill.submit(old, &[(source.addr, target.addr, MUCH)]).unwrap();
    let new = prefill.number(Command::AddPeer { metadata }).unwrap() as u32;
    assert_eq!(prefill.submit(old, &[]).unwrap_err().problem, "UnknownPeer");
    let second = prefill.submit(new, &[(source.addr, more.addr, 10_000)]).unwrap();
    decode.signal(Signal::CONT);
    prefill.wait(batch, PATIENCE / 2).unwrap();
    prefill.wait(second, PATIENCE / 2).unwrap();
    assert_eq!(decode.wrong(target, &[(0, 1, 0, MUCH)]), 0);
    assert_eq!(decode.wrong(more, &[(0, 1, 0, 10_000)]), 0);
    prefill.quit();
    decode.quit();
}
