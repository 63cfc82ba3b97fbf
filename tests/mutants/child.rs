//! Detectors as processes: this program again, with a role, the changed kernels, a deadline, and an exit status as the
//! answer.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::detector::Detector;
use crate::detectors::processes;

/// Makes a process of this program a detector, or one of its ranks.
const ROLE_VARIABLE: &str = "CPKV_MUTANTS_ROLE";
/// The PTX that the virtual GPU loads in place of the library's.
const MODULE_VARIABLE: &str = "CPKV_VGPU_MODULE";

/// How a detector ended.
pub(crate) struct Ended {
    /// What it found.
    pub(crate) message: Option<String>,
    /// What it wrote to stderr.
    pub(crate) output: String,
}

/// The role of this process, unless it is the test itself.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE_VARIABLE).ok()
}

/// The PTX that this process looks at.
pub(crate) fn module() -> PathBuf {
    std::env::var_os(MODULE_VARIABLE).expect("a child has its kernels").into()
}

/// This program once more, as `role`, with the environment of this process.
pub(crate) fn command(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.env(ROLE_VARIABLE, role).stdout(Stdio::null());
    command
}

/// Runs detector `name` on the kernels in `ptx`.
///
/// # Errors
/// There is no such process.
pub(crate) fn run(name: &str, ptx: &Path, vgpu: &Path, deadline: Duration) -> Result<Ended, String> {
    let failed = |error: std::io::Error| format!("detector {name}: {error}");
    let log = ptx.with_extension("log");
    let mut command = command(name);
    let inherited = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = [vgpu.to_owned()].into_iter().chain(std::env::split_paths(&inherited));
    let folders = std::env::join_paths(folders).map_err(|error| format!("LD_LIBRARY_PATH: {error}"))?;
    command.env("LD_LIBRARY_PATH", folders).env(MODULE_VARIABLE, ptx).env("CPKV_TEST_DEVICE", "cuda");
    command.env("CPKV_VGPU_UNINITIALISED", "1").env("RUST_BACKTRACE", "0");
    let stderr = File::create(&log).map_err(failed)?;
    let mut child = command.stdin(Stdio::null()).stderr(stderr).spawn().map_err(failed)?;
    let status = wait(&mut child, deadline).map_err(failed)?;
    let output = String::from_utf8_lossy(&fs::read(&log).map_err(failed)?).into_owned();
    let said = said(&output);
    let message = match status {
        Some(true) => None,
        Some(false) => Some(said.unwrap_or_else(|| "it ended without a word".to_owned())),
        None => {
            let said = said.map(|said| format!(": {said}")).unwrap_or_default();
            Some(format!("hang, killed after {} s{said}", deadline.as_secs()))
        }
    };
    Ok(Ended { message, output })
}

/// Waits; whether it succeeded, `None` where it had to be killed.
pub(crate) fn wait(child: &mut Child, deadline: Duration) -> std::io::Result<Option<bool>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if started.elapsed() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The first thing that went wrong: a broken rule of the machine, else a panic.
fn said(output: &str) -> Option<String> {
    let mut lines = output.lines();
    let rule = output.lines().find_map(|line| line.strip_prefix("vgpu: fault: "));
    let panic = lines.find(|line| line.contains("panicked at")).and_then(|_| lines.next());
    // Device and kernel stand before a rule as well as in it.
    let rule = rule.map(|rule| rule.find(": kernel ").map_or(rule, |at| &rule[at + 2..]));
    rule.or(panic).map(str::to_owned)
}

/// Plays `role`. The first panic, on whatever thread, ends the process: the other ranks would wait for that one.
pub(crate) fn serve(role: &str) -> ExitCode {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("mutants: a detector could outlive its parent: {error}");
        return ExitCode::FAILURE;
    }
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::exit(101);
    }));
    match (Detector::named(role), role.strip_prefix(processes::RANK_ROLE)) {
        (Some(detector), _) => detector.look(),
        (None, Some(rank)) => processes::be_rank(rank),
        (None, None) => panic!("there is no role {role}"),
    }
    // At once: what is dropped after a fault might wait for ranks that are gone.
    std::process::exit(0)
}
