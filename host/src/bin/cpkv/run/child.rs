//! The process of a decode worker, as rank 0 holds it: commands go to its standard input, answers come from its standard
//! output, a line each. It ends when its input does, so that none is left behind by a rank that died.

use std::io::{BufRead, BufReader, Write};
use std::process::{self, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::job::RunJob;
use super::message::{Command, Reply, SetUp};

/// How long a worker may take to end by itself.
const END_TIMEOUT: Duration = Duration::from_secs(6);
/// How long the end of a process may take after the end of its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Variables by which MPI tells its processes: a worker is none of them.
const MPI_PREFIXES: [&str; 4] = ["OMPI_", "PMIX_", "PMI_", "PRTE_"];

/// A worker's process.
pub(crate) struct Child {
    process: process::Child,
    /// To the thread that writes: a process that is stopped reads nothing, and this one does not wait for it. Taken at the end.
    lines: Option<Sender<String>>,
    answers: Receiver<String>,
    /// When it is killed, if it has not ended by itself.
    killed_at: Option<Instant>,
}

impl Child {
    /// Starts the process of worker `number`, and tells it what it is.
    pub(crate) fn start(job: &RunJob, number: u32) -> std::io::Result<Self> {
        let mut command = process::Command::new(std::env::current_exe()?);
        command.arg("decode-worker").stdin(Stdio::piped()).stdout(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            if MPI_PREFIXES.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        let mut process = command.spawn()?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let (lines, written) = mpsc::channel();
        let (heard, answers) = mpsc::channel();
        let mut child = Self { process, lines: Some(lines), answers, killed_at: None };
        if let (Some(input), Some(output)) = (input, output) {
            let thread = || thread::Builder::new().name("cpkv-decode-link".to_owned());
            thread().spawn(move || write_lines(input, &written))?;
            thread().spawn(move || hear_lines(output, &heard))?;
        }
        let set_up = SetUp { args: job.args.clone(), group_size: job.base.group_size.get(), worker: number };
        child.write(&set_up).map_err(std::io::Error::other)?;
        Ok(child)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Gives it a command.
    pub(crate) fn send(&mut self, command: &Command) -> Result<(), String> {
        self.write(command)
    }

    fn write(&mut self, message: &impl Serialize) -> Result<(), String> {
        let mut line = serde_json::to_string(message).map_err(|error| error.to_string())?;
        line.push('\n');
        match self.lines.as_ref().map(|lines| lines.send(line)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.gone()),
        }
    }

    /// Waits for an answer.
    pub(crate) fn receive(&mut self, timeout: Duration) -> Result<Reply, String> {
        match self.answers.recv_timeout(timeout) {
            Ok(line) => {
                serde_json::from_str(&line).map_err(|error| format!("said what is no answer: {error}"))
            }
            Err(RecvTimeoutError::Timeout) => Err(format!(
                "(process {}) did not answer within {} s: is it stopped?",
                self.pid(),
                timeout.as_secs()
            )),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
        }
    }

    /// Tells it to end. Dropped, it is waited for until a while from now.
    pub(crate) fn hang_up(&mut self) {
        self.lines = None;
        self.killed_at.get_or_insert_with(|| Instant::now() + END_TIMEOUT);
    }

    /// Says how the process came to its end.
    fn gone(&mut self) -> String {
        let pid = self.pid();
        let how = self.wait(EXIT_TIMEOUT).unwrap_or_else(|| "closed its output".to_owned());
        format!("(process {pid}) {how}")
    }

    /// How the process ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.process.try_wait().ok().flatten().map(|status| format!("ended: {status}"))
    }

    fn wait(&mut self, timeout: Duration) -> Option<String> {
        let started = Instant::now();
        loop {
            if let Some(how) = self.ended() {
                return Some(how);
            }
            if started.elapsed() > timeout {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Until there are no more lines, or nobody reads them. The input ends with this.
fn write_lines(mut input: ChildStdin, lines: &Receiver<String>) {
    let _ = lines.iter().map(|line| input.write_all(line.as_bytes())).take_while(Result::is_ok).count();
}

/// Until the output ends, or nobody listens.
fn hear_lines(output: ChildStdout, heard: &Sender<String>) {
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    let _ = lines.map(|line| heard.send(line)).take_while(Result::is_ok).count();
}

impl Drop for Child {
    fn drop(&mut self) {
        self.hang_up();
        let left = self.killed_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        if self.wait(left).is_none() {
            // Also one that is stopped.
            let _ = self.process.kill();
            // One that the system does not let go ends without us.
            let _ = self.wait(EXIT_TIMEOUT);
        }
    }
}
