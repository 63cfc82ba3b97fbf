//! The processes of a test, each with an engine: started, told what to do, killed when dropped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command as Process, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::player;
use super::protocol::{Answer, Command, MARK, PART_VARIABLE, RawBlock};
use super::support::{wait, wait_until_stopped};

/// Longer than any answer of a healthy engine takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Says whether this process is a test, after playing the part of a player where it is one.
pub(crate) fn is_test() -> bool {
    if std::env::var_os(PART_VARIABLE).is_some() {
        player::play();
        return false;
    }
    assert!(
        std::env::var_os("CPKV_NIXL_LIBRARY").is_some(),
        "CPKV_NIXL_LIBRARY is not set: run scripts/setup, then `. .cpkv/env`, and test again"
    );
    true
}

/// A process with an engine.
pub(crate) struct Actor {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<Answer>,
}

/// An error of an engine, as it was told.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) call: String,
    pub(crate) peer: Option<String>,
    pub(crate) problem: String,
    pub(crate) text: String,
}

/// Memory of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) buffer: usize,
    pub(crate) addr: u64,
    pub(crate) seed: u64,
    pub(crate) registration: u64,
}

impl Actor {
    /// A process of test `test`, without an engine yet; `set` are further variables of its environment.
    pub(crate) fn start(test: &str, set: &[(&str, &str)]) -> Self {
        let mut child = Process::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--test-threads=1", "--nocapture"])
            .env(PART_VARIABLE, "player")
            .env_remove("UCX_MODULES")
            .env_remove("UCX_TLS")
            .env_remove("UCX_NET_DEVICES")
            .envs(set.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(answer) = line.strip_prefix(MARK) {
                    let _ = tell.send(serde_json::from_str(answer).unwrap());
                }
            }
        });
        Self { child, stdin, answers }
    }

    /// A process of test `test` with an engine of this name.
    pub(crate) fn open(test: &str, name: &str) -> Self {
        let mut actor = Self::start(test, &[]);
        actor.ask(Command::Open { name: name.to_owned(), library: None }).unwrap();
        actor
    }

    fn tell(&mut self, command: &Command) {
        let line = serde_json::to_string(command).unwrap();
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn answer(&mut self) -> Result<Answer, Refusal> {
        match self.answers.recv_timeout(PATIENCE).expect("an answer in time") {
            Answer::Error { call, peer, problem, text } => Err(Refusal { call, peer, problem, text }),
            answer => Ok(answer),
        }
    }

    /// Its answer to a command.
    pub(crate) fn ask(&mut self, command: Command) -> Result<Answer, Refusal> {
        self.tell(&command);
        self.answer()
    }

    /// Its answer, which is a number.
    pub(crate) fn number(&mut self, command: Command) -> Result<u64, Refusal> {
        match self.ask(command)? {
            Answer::Number(number) => Ok(number),
            other => panic!("not a number: {other:?}"),
        }
    }

    pub(crate) fn metadata(&mut self) -> String {
        match self.ask(Command::Metadata).unwrap() {
            Answer::Text(text) => text,
            other => panic!("not a text: {other:?}"),
        }
    }

    /// Registered memory, the `buffer`th of the process.
    pub(crate) fn memory(&mut self, buffer: usize, bytes: u64, seed: u64) -> Memory {
        let addr = self.number(Command::Alloc { bytes, seed }).unwrap();
        let registration = self.number(Command::Register { buffer }).unwrap();
        Memory { buffer, addr, seed, registration }
    }

    pub(crate) fn add_peer(&mut self, other: &mut Self) -> Result<u32, Refusal> {
        let metadata = other.metadata();
        self.number(Command::AddPeer { metadata }).map(|peer| peer as u32)
    }

    pub(crate) fn submit(&mut self, peer: u32, blocks: &[RawBlock]) -> Result<u64, Refusal> {
        self.number(Command::Submit { peer, blocks: blocks.to_vec() })
    }

    pub(crate) fn wait(&mut self, batch: u64, timeout: Duration) -> Result<(), Refusal> {
        self.number(Command::Wait { batch, timeout_ms: timeout.as_millis() as u64 }).map(|_| ())
    }

    /// Submits and waits.
    pub(crate) fn write(&mut self, peer: u32, blocks: &[RawBlock]) -> Result<(), Refusal> {
        let batch = self.submit(peer, blocks)?;
        self.wait(batch, PATIENCE / 2)
    }

    /// Wrong bytes of `memory`, of which `written` (offset, seed, offset there, length) are others'.
    pub(crate) fn wrong(&mut self, memory: Memory, written: &[(u64, u64, u64, u64)]) -> u64 {
        let Memory { buffer, seed, .. } = memory;
        self.number(Command::Wrong { buffer, seed, written: written.to_vec() }).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        if signal == Signal::STOP {
            wait_until_stopped(self.child.id());
        }
    }

    /// Killed, and gone.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        wait(&mut self.child, PATIENCE).expect("a killed process ends");
    }

    /// Ends as a program ends, with status 0; the engine is dropped before where it still is there.
    pub(crate) fn quit(mut self) {
        let closed_ms = self.number(Command::Close).unwrap();
        assert!(closed_ms < 4_000, "the engine's end took {closed_ms} ms");
        self.leave();
    }

    /// Ends with status 0, in time; the engine is dropped on the way.
    pub(crate) fn leave(self) {
        self.end(&Command::Quit, 0);
    }

    /// Ends with status `code`, in time, with the engine open.
    pub(crate) fn exit(self, code: i32) {
        self.end(&Command::Exit { code }, code);
    }

    fn end(mut self, command: &Command, code: i32) {
        self.tell(command);
        let status = wait(&mut self.child, Duration::from_secs(10)).expect("the process ends in time");
        assert_eq!(status.code(), Some(code), "{status}");
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
