//! Memory shared with a process that is no child of MPI: handed over, frozen, killed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cpkv::deadline::Deadline;
use cpkv::symm::{Mapping, MemfdBackend, SymmBackend, SymmError};
use cpkv::units::Rank;
use rustix::process::{Pid, Signal, kill_process};

use support::{hex, socket_exists, unhex, wait, wait_until_stopped};

/// Names the part a child plays, with a handle where it needs one.
const PART_VARIABLE: &str = "CPKV_TEST_PART";

const REGION_BYTES: u64 = 70_000;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// A child that plays a part of test `test`; killed when dropped.
struct Player(Child);

impl Player {
    fn start(test: &str, part: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--test-threads=1", "--nocapture"])
            .env(PART_VARIABLE, part)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// The handle that the child prints.
    fn handle(&mut self) -> Vec<u8> {
        let mut lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let handle = lines.find_map(|line| Some(unhex(line.unwrap().strip_prefix("HANDLE ")?)));
        handle.expect("the child exports")
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The part of a child that exports a region and then waits to be killed, or for its parent's end.
fn export_and_wait() {
    let mine = MemfdBackend.allocate(REGION_BYTES).unwrap();
    let export = MemfdBackend.export(&mine, soon()).unwrap();
    println!("\nHANDLE {}", hex(&export.handle));
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn last_byte(mapping: &Mapping) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut((mapping.addr + mapping.bytes - 1) as usize)
}

#[test]
fn a_child_writes_into_its_parents_region() {
    let test = "a_child_writes_into_its_parents_region";
    if let Ok(handle) = std::env::var(PART_VARIABLE) {
        let theirs = MemfdBackend.open(Rank(0), &unhex(&handle), REGION_BYTES, soon()).unwrap();
        // SAFETY: the last byte of a live mapping; the parent looks at it only after this process has ended.
        unsafe { last_byte(&theirs).write_volatile(42) };
        return;
    }
    let mine = MemfdBackend.allocate(REGION_BYTES).unwrap();
    let export = MemfdBackend.export(&mine, soon()).unwrap();
    let mut child = Player::start(test, &hex(&export.handle));
    assert!(wait(&mut child.0, Duration::from_secs(60)).is_some_and(|status| status.success()));
    // SAFETY: the last byte of a live mapping; the writer has ended.
    assert_eq!(unsafe { last_byte(&mine).read_volatile() }, 42);
}

#[test]
fn a_frozen_exporter_is_a_timeout_and_a_killed_one_leaves_nothing() {
    let test = "a_frozen_exporter_is_a_timeout_and_a_killed_one_leaves_nothing";
    if std::env::var(PART_VARIABLE).is_ok() {
        return export_and_wait();
    }
    let mut exporter = Player::start(test, "export");
    let handle = exporter.handle();
    let theirs = MemfdBackend.open(Rank(1), &handle, REGION_BYTES, soon()).unwrap();

    exporter.signal(Signal::STOP);
    wait_until_stopped(exporter.0.id());
    let deadline = Deadline::after(Duration::from_millis(200));
    let error = MemfdBackend.open(Rank(1), &handle, REGION_BYTES, deadline).err().unwrap();
    assert!(matches!(error, SymmError::OpenTimeout { peer: Rank(1), waited_ms: 200.., .. }), "{error}");

    // While a peer waits for the frozen exporter, it dies: the peer hears of it before its deadline.
    let started = Instant::now();
    thread::scope(|scope| {
        let waiting =
            scope.spawn(|| MemfdBackend.open(Rank(1), &handle, REGION_BYTES, soon()).err().unwrap());
        thread::sleep(Duration::from_millis(100));
        exporter.signal(Signal::KILL);
        assert!(matches!(waiting.join().unwrap(), SymmError::Open { peer: Rank(1), .. }));
    });
    assert!(started.elapsed() < Duration::from_secs(30));
    drop(exporter);
    assert!(!socket_exists(&handle));
    // SAFETY: the last byte of a mapping that this process holds: the memory outlives its maker.
    unsafe { last_byte(&theirs).write_volatile(1) };
}
