//! What is refused, at once and with the reason; the process goes on.

use super::protocol::{Answer, Command};
use super::stage::{Actor, is_test};
use super::support::{hex, unhex};

fn open(library: Option<&str>) -> Command {
    Command::Open { name: "prefill".to_owned(), library: library.map(str::to_owned) }
}

#[test]
fn a_missing_or_wrong_library_is_an_error_and_the_process_goes_on() {
    let test = "refusals::a_missing_or_wrong_library_is_an_error_and_the_process_goes_on";
    if !is_test() {
        return;
    }
    let mut actor = Actor::start(test, &[("CPKV_NIXL_LIBRARY", "")]);
    let unnamed = actor.ask(open(None)).unwrap_err();
    assert!(unnamed.text.contains("scripts/setup"), "{}", unnamed.text);
    for wrong in ["/nowhere/libnixl_capi.so", env!("CARGO_MANIFEST_DIR"), "Cargo.toml"] {
        let refused = actor.ask(open(Some(wrong))).unwrap_err();
        assert!(refused.problem.starts_with("Unavailable"), "{}", refused.text);
        assert_eq!(refused.call, "open");
    }
    // And with the right one it works after all.
    let right = std::env::var("CPKV_NIXL_LIBRARY").unwrap();
    assert!(matches!(actor.ask(open(Some(&right))), Ok(Answer::Text(_))));
    actor.quit();
}

#[test]
fn a_source_that_is_not_registered_and_a_destination_outside_are_errors_at_submit() {
    let test = "refusals::a_source_that_is_not_registered_and_a_destination_outside_are_errors_at_submit";
    if !is_test() {
        return;
    }
    let mut prefill = Actor::open(test, "prefill");
    let mut decode = Actor::open(test, "decode 7");
    let source = prefill.memory(0, 10_000, 1);
    let target = decode.memory(0, 10_000, 2);
    let peer = prefill.add_peer(&mut decode).unwrap();
    let outside =
        prefill.submit(peer, &[(source.addr, target.addr, 1), (source.addr + 9_999, target.addr, 2)]);
    let outside = outside.unwrap_err();
    assert!(outside.problem.starts_with("NotRegistered"), "{}", outside.text);
    let beyond = [
        (target.addr + 9_999, 2),
        (target.addr - 1, 1),
        (8, 100),
        (target.addr + 20_000, 1),
        (u64::MAX - 1, 10),
    ];
    for (dst, bytes) in beyond {
        let refused = prefill.submit(peer, &[(source.addr, target.addr, 1), (source.addr, dst, bytes)]);
        let refused = refused.unwrap_err();
        assert!(refused.problem.starts_with("Refused"), "{}", refused.text);
        assert_eq!((refused.call.as_str(), refused.peer.as_deref()), ("submit", Some("decode 7")));
    }
    // Nothing of a refused batch is written, and the next one goes through.
    prefill.write(peer, &[(source.addr + 5, target.addr + 3, 4)]).unwrap();
    assert_eq!(decode.wrong(target, &[(3, 1, 5, 4)]), 0);
    // Memory whose registration was ended is no source any more.
    prefill.number(Command::Unregister { registration: source.registration }).unwrap();
    let ended = prefill.submit(peer, &[(source.addr, target.addr, 1)]).unwrap_err();
    assert!(ended.problem.starts_with("NotRegistered"), "{}", ended.text);
    let twice = prefill.number(Command::Unregister { registration: source.registration }).unwrap_err();
    assert_eq!(twice.problem, "UnknownRegistration");
    prefill.quit();
    decode.quit();
}

#[test]
fn damaged_metadata_and_unknown_peers_are_refused() {
    let test = "refusals::damaged_metadata_and_unknown_peers_are_refused";
    if !is_test() {
        return;
    }
    let mut prefill = Actor::open(test, "prefill");
    let mut decode = Actor::open(test, "decode");
    let source = prefill.memory(0, 100, 1);
    let whole = unhex(&decode.metadata());
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    for bad in [&damaged[..], &whole[..whole.len() / 2], &[]] {
        let refused = prefill.number(Command::AddPeer { metadata: hex(bad) }).unwrap_err();
        assert!(refused.problem.starts_with("BadMetadata"), "{}", refused.text);
    }
    assert_eq!(prefill.submit(0, &[(source.addr, 0, 1)]).unwrap_err().problem, "UnknownPeer");
    let peer = prefill.add_peer(&mut decode).unwrap();
    prefill.number(Command::RemovePeer { peer }).unwrap();
    assert_eq!(prefill.submit(peer, &[]).unwrap_err().problem, "UnknownPeer");
    assert_eq!(prefill.number(Command::RemovePeer { peer }).unwrap_err().problem, "UnknownPeer");
    prefill.quit();
    decode.quit();
}
