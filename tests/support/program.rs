//! The program `cpkv`, run from outside.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Enough for any run of these tests, on a machine with much else to do, too.
const TIMEOUT: Duration = Duration::from_secs(300);

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The trace that belongs to the project.
#[allow(dead_code, reason = "not every test has a trace")]
pub(crate) const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/sample_trace.jsonl");

/// The program, as threads: no variable of the surroundings changes what it does.
pub(crate) fn cpkv() -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_cpkv")))
}

/// The program under `mpirun -n num_ranks`.
#[cfg(feature = "mpi")]
pub(crate) fn cpkv_under_mpirun(num_ranks: u32) -> Command {
    let mut command = clean(Command::new("mpirun"));
    command.args(["-n", &num_ranks.to_string(), "--oversubscribe", "--bind-to", "none"]);
    if rustix::process::geteuid().is_root() {
        command.arg("--allow-run-as-root");
    }
    command.arg(env!("CARGO_BIN_EXE_cpkv"));
    command
}

fn clean(mut command: Command) -> Command {
    for name in ["CPKV_SYMM_HEAP_MB", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMIX_SIZE"]
    {
        command.env_remove(name);
    }
    command
}

/// Runs `command` to its end.
pub(crate) fn run(command: &mut Command) -> Outcome {
    // One at a time: each has more ranks than a small machine has cores.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let code = wait(&mut child);
    Outcome { code, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

/// The exit code; a panic past the timeout.
pub(crate) fn wait(child: &mut Child) -> Option<i32> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if started.elapsed() > TIMEOUT {
            let _ = child.kill();
            panic!("not over after {TIMEOUT:?}");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.unwrap().read_to_string(&mut text).unwrap();
        text
    })
}
