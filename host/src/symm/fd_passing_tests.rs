//! Tests of the passing of descriptors: silent, wrong, many and late peers.

use std::fs;
use std::time::Instant;

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn file(text: &[u8]) -> OwnedFd {
    let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&file, text).unwrap();
    file
}

fn text(file: &OwnedFd) -> Vec<u8> {
    let mut text = [0; 16];
    let num_bytes = rustix::io::pread(file, &mut text, 0).unwrap();
    text[..num_bytes].to_vec()
}

fn is_listed(ticket: &Ticket) -> bool {
    let name = format!("@cpkv-{:032x}", u128::from_be_bytes(ticket.name));
    fs::read_to_string("/proc/net/unix").unwrap().contains(&name)
}

fn connected(ticket: &Ticket) -> OwnedFd {
    let socket = socket().unwrap();
    rustix::net::connect(&socket, &ticket.address().unwrap()).unwrap();
    socket
}

#[test]
fn many_peers_get_the_file_and_the_name_goes_with_the_server() {
    let (server, ticket) = FdServer::start(file(b"bytes"), Deadline::after(LONG)).unwrap();
    assert!(is_listed(&ticket));
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| assert_eq!(text(&fetch(&ticket, Deadline::after(LONG)).unwrap()), b"bytes"));
        }
    });
    drop(server);
    assert!(!is_listed(&ticket));
    let refused = Errno::CONNREFUSED.raw_os_error();
    let error = fetch(&ticket, Deadline::after(LONG)).unwrap_err();
    assert_eq!(error, FetchError::Call { call: "connect", code: refused });
}

#[test]
fn silent_peers_stall_nobody_and_the_drop_does_not_wait_for_them() {
    let started = Instant::now();
    let (server, ticket) = FdServer::start(file(b"bytes"), Deadline::after(LONG)).unwrap();
    let silent: Vec<_> = (0..3).map(|_| connected(&ticket)).collect();
    let slow = connected(&ticket);
    rustix::io::write(&slow, &ticket.token[..5]).unwrap();
    assert!(fetch(&ticket, Deadline::after(LONG)).is_ok());
    rustix::io::write(&slow, &ticket.token[5..]).unwrap();
    wait_any(&mut [PollFd::new(&slow, PollFlags::IN)], Deadline::after(LONG)).unwrap();
    assert_eq!(text(&receive_file(&slow).unwrap().unwrap()), b"bytes");
    drop(server);
    assert!(started.elapsed() < LONG / 2);
    drop(silent);
}

#[test]
fn more_silent_peers_than_places_push_out_the_oldest() {
    let (_server, ticket) = FdServer::start(file(b"bytes"), Deadline::after(LONG)).unwrap();
    let mut silent = Vec::new();
    while silent.len() < MAX_CLIENTS + 20 {
        let socket = socket().unwrap();
        match rustix::net::connect(&socket, &ticket.address().unwrap()) {
            Ok(()) => silent.push(socket),
            Err(Errno::AGAIN) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(fetch(&ticket, Deadline::after(LONG)).is_ok());
}

#[test]
fn a_wrong_token_gets_nothing() {
    let (_server, ticket) = FdServer::start(file(b"bytes"), Deadline::after(LONG)).unwrap();
    for position in 0..16 {
        let mut wrong = ticket;
        wrong.token[position] ^= 0x80;
        let error = fetch(&wrong, Deadline::after(LONG)).unwrap_err();
        assert_eq!(error, FetchError::Call { call: "recvmsg", code: Errno::CONNRESET.raw_os_error() });
    }
    assert!(fetch(&ticket, Deadline::after(LONG)).is_ok());
}

#[test]
fn a_server_that_does_not_run_is_a_timeout() {
    let ticket = Ticket::random().unwrap();
    let frozen = socket().unwrap();
    rustix::net::bind(&frozen, &ticket.address().unwrap()).unwrap();
    rustix::net::listen(&frozen, 0).unwrap();
    // The first fills the backlog; those behind it cannot even connect.
    for _ in 0..3 {
        let deadline = Deadline::after(Duration::from_millis(30));
        assert_eq!(fetch(&ticket, deadline).unwrap_err(), FetchError::Deadline);
        assert!(deadline.waited_ms() >= 30);
    }
}

#[test]
fn the_server_ends_at_its_deadline() {
    let (server, ticket) = FdServer::start(file(b""), Deadline::after(Duration::from_millis(20))).unwrap();
    let started = Instant::now();
    while is_listed(&ticket) {
        assert!(started.elapsed() < LONG);
        thread::sleep(Duration::from_millis(5));
    }
    drop(server);
}

#[test]
fn a_ticket_survives_its_encoding() {
    let ticket = Ticket::random().unwrap();
    assert_eq!(Ticket::decode(&ticket.encode()), ticket);
    assert_ne!(ticket, Ticket::random().unwrap());
}
