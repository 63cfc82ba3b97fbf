//! What the tests among processes share: jobs under `mpirun`, child processes, and what they must not leave behind.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod fixture;
#[cfg(feature = "mpi")]
pub(crate) mod processes;
pub(crate) mod scenario;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Names the test whose body a rank runs.
const BODY_VARIABLE: &str = "CPKV_RANK_BODY";

/// Marks the processes of one job, so that exactly those can be looked for.
const JOB_VARIABLE: &str = "CPKV_TEST_JOB";

/// The folder of the job's reports. `mpirun` may lose what a rank prints just before its end; files it does not
/// touch.
const REPORTS_VARIABLE: &str = "CPKV_TEST_REPORTS";

/// One run of a test under `mpirun`.
pub(crate) struct MpiJob {
    num_ranks: u32,
    timeout: Duration,
    extra_args: Vec<&'static str>,
    finishing: Vec<u32>,
    must_succeed: bool,
    exit_codes: Vec<i32>,
}

/// How a rank leaves after its body.
pub(crate) enum Ending {
    /// Through the end of the test: MPI was finalised.
    Normal,
    /// At once, without `MPI_Finalize`, as after a failed exchange.
    Abandon,
    /// As [`Ending::Abandon`], with an exit code that says that the rank failed.
    Fail(i32),
}

/// What a shell reports as the exit code of a process that was killed.
pub(crate) const KILLED: i32 = 128 + 9;

/// Runs a rank and reports its exit code, which `mpirun` does not tell.
const REPORT_EXIT_CODE: &str =
    r#""$@"; code=$?; echo $code >"$CPKV_TEST_REPORTS/exit-$OMPI_COMM_WORLD_RANK"; exit $code"#;

impl MpiJob {
    /// All of `num_ranks` ranks finish their body, and `mpirun` succeeds.
    pub(crate) fn new(num_ranks: u32) -> Self {
        Self {
            num_ranks,
            timeout: Duration::from_secs(240),
            extra_args: Vec::new(),
            finishing: (0..num_ranks).collect(),
            must_succeed: true,
            exit_codes: Vec::new(),
        }
    }

    /// Ended, and failed, after `timeout`.
    pub(crate) fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Ranks may die or leave without `MPI_Finalize`, the others go on; exactly `finishing` finish their body.
    pub(crate) fn surviving(mut self, finishing: &[u32]) -> Self {
        self.extra_args.push("--enable-recovery");
        self.finishing = finishing.to_vec();
        self.must_succeed = false;
        self
    }

    /// The ranks' processes end with exactly these codes.
    pub(crate) fn exiting(mut self, codes: &[i32]) -> Self {
        assert_eq!(codes.len(), self.num_ranks as usize);
        self.exit_codes = codes.to_vec();
        self
    }
}

/// Runs `body` on every rank of `job`; `test` is the name of the calling test. Returns what the ranks reported; in
/// a rank, and only there, it returns nothing.
pub(crate) fn under_mpirun(job: &MpiJob, test: &str, body: impl FnOnce() -> Ending) -> Option<String> {
    if std::env::var(BODY_VARIABLE).is_ok_and(|name| name == test) {
        let ending = body();
        report(&marker(test, &own_rank()));
        match ending {
            Ending::Normal => return None,
            Ending::Abandon => leave(0),
            Ending::Fail(code) => leave(code),
        }
    }
    // One job at a time: each has more ranks than a small machine has cores.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let reports = tempfile::tempdir().expect("a temporary folder");
    let token = format!("{test}-{}-{:?}", std::process::id(), Instant::now());
    let mut command = Command::new("mpirun");
    command.args(["-n", &job.num_ranks.to_string(), "--oversubscribe", "--bind-to", "none"]);
    if rustix::process::geteuid().is_root() {
        command.arg("--allow-run-as-root");
    }
    command.args(&job.extra_args);
    if !job.exit_codes.is_empty() {
        command.args(["sh", "-c", REPORT_EXIT_CODE, "sh"]);
    }
    command
        .arg(std::env::current_exe().expect("the test's own program"))
        .args([test, "--exact", "--test-threads=1", "--nocapture"])
        .env(BODY_VARIABLE, test)
        .env(JOB_VARIABLE, &token)
        .env(REPORTS_VARIABLE, reports.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut mpirun = command.spawn().expect("mpirun starts (package openmpi-bin)");
    let stdout = reader(mpirun.stdout.take());
    let stderr = reader(mpirun.stderr.take());
    let status = wait_or_kill(&mut mpirun, job.timeout, &token);
    let (stdout, stderr) = (stdout.join().expect("stdout"), stderr.join().expect("stderr"));
    let output = format!("{status:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
    let Some(status) = status else {
        panic!("{test}: not over after {:?}: {output}", job.timeout);
    };
    assert!(status.success() || !job.must_succeed, "{test}: {output}");
    let mut reported = String::new();
    for rank in 0..job.num_ranks {
        let lines = fs::read_to_string(reports.path().join(rank.to_string())).unwrap_or_default();
        let finished = lines.lines().last() == Some(&marker(test, &rank.to_string()));
        assert_eq!(finished, job.finishing.contains(&rank), "{test}: the end of rank {rank}: {output}");
        reported.push_str(&lines);
    }
    for (rank, expected) in job.exit_codes.iter().enumerate() {
        let code = fs::read_to_string(reports.path().join(format!("exit-{rank}"))).unwrap_or_default();
        assert_eq!(code.trim(), expected.to_string(), "{test}: the exit code of rank {rank}: {output}");
    }
    wait_until_gone(&token);
    Some(reported)
}

#[cfg(feature = "mpi")]
fn leave(code: i32) -> ! {
    cpkv::group::mpi::leave_without_finalize(code)
}

#[cfg(not(feature = "mpi"))]
fn leave(_code: i32) -> ! {
    panic!("only jobs under mpirun abandon it")
}

/// Hands a line to the test that started this rank.
pub(crate) fn report(line: &str) {
    let folder = std::env::var(REPORTS_VARIABLE).expect("a rank has a folder to report to");
    let path = Path::new(&folder).join(own_rank());
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path).expect("a report");
    file.write_all(format!("{line}\n").as_bytes()).expect("a report");
}

/// Waits, in a rank, until each of `ranks` has handed in `line`. No message of MPI is needed for this: who has waited may die.
pub(crate) fn wait_for_reports(ranks: impl IntoIterator<Item = u32>, line: &str) {
    let folder = std::env::var(REPORTS_VARIABLE).expect("a rank has a folder to report to");
    let started = Instant::now();
    for rank in ranks {
        let path = Path::new(&folder).join(rank.to_string());
        while !fs::read_to_string(&path).is_ok_and(|lines| lines.lines().any(|said| said == line)) {
            assert!(started.elapsed() < Duration::from_secs(60), "rank {rank} did not say `{line}`");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn own_rank() -> String {
    std::env::var("OMPI_COMM_WORLD_RANK").expect("a rank has its number")
}

/// The last report of a rank's body: a rank that ran nothing does not make it.
fn marker(test: &str, rank: &str) -> String {
    format!("CPKV-RANK-DONE {test} rank {rank}.")
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.expect("the pipe was asked for").read_to_end(&mut bytes).expect("a readable pipe");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The exit status; `None` where the job had to be ended. `mpirun` puts its ranks into groups of their own, so it
/// is asked to end them first; what is left of the job is then killed process by process.
fn wait_or_kill(mpirun: &mut Child, timeout: Duration, token: &str) -> Option<std::process::ExitStatus> {
    if let Some(status) = wait(mpirun, timeout) {
        return Some(status);
    }
    let group = Pid::from_child(mpirun);
    eprintln!("still there after {timeout:?}: {:?}", processes_of(token));
    let _ = kill_process(group, Signal::TERM);
    wait(mpirun, Duration::from_secs(5));
    let _ = kill_process_group(group, Signal::KILL);
    for process in processes_of(token) {
        let _ = kill_process(process, Signal::KILL);
    }
    wait(mpirun, Duration::from_secs(5));
    None
}

/// Waits for a child; `None` past the timeout.
pub(crate) fn wait(child: &mut Child, timeout: Duration) -> Option<std::process::ExitStatus> {
    let started = Instant::now();
    loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => return Some(status),
            None if started.elapsed() > timeout => return None,
            None => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// The processes that carry the token in their environment, but for those that have ended.
fn processes_of(token: &str) -> Vec<Pid> {
    let wanted = format!("{JOB_VARIABLE}={token}");
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    })
    .filter_map(Pid::from_raw)
    .collect()
}

fn wait_until_gone(token: &str) {
    let started = Instant::now();
    while !processes_of(token).is_empty() {
        assert!(started.elapsed() < Duration::from_secs(10), "left behind: {:?}", processes_of(token));
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a socket of the exported `handle` (of the memfd backend) exists on this machine.
pub(crate) fn socket_exists(handle: &[u8]) -> bool {
    let name = format!("@cpkv-{}", hex(&handle[8..24]));
    fs::read_to_string("/proc/net/unix").expect("/proc/net/unix").contains(&name)
}

/// Waits until every thread of process `pid` is stopped: the signal to stop reaches them one by one.
pub(crate) fn wait_until_stopped(pid: u32) {
    let started = Instant::now();
    let is_stopped = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
    };
    while !fs::read_dir(format!("/proc/{pid}/task")).expect("a live process").flatten().all(is_stopped) {
        assert!(started.elapsed() < Duration::from_secs(20), "process {pid} does not stop");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether process `pid` runs: it exists and is not only waiting to be collected.
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !matches!(rest.trim_start().chars().next(), Some('Z' | 'X')))
}

/// Hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hexadecimal digits.
pub(crate) fn unhex(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len() / 2).map(|idx| &digits[2 * idx..2 * idx + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal digits")).collect()
}
