//! Tests that run in a process of their own, since a process finds its libraries once: with a stand-in for NCCL, with the
//! real one, or with none.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Says that this process is a child.
const CHILD_VARIABLE: &str = "CPKV_TEST_NCCL_CHILD";
const LOG_VARIABLE: &str = "STAND_IN_LOG";
/// Enough for any child.
const TIMEOUT: Duration = Duration::from_secs(100);

/// What libnccl.so the child finds.
pub(crate) enum Library {
    /// The stand-in, with its behaviour.
    StandIn(&'static str),
    /// The stand-in without `ncclCommAbort`.
    Incomplete,
    /// The one that `scripts/setup` fetches.
    Real,
    /// A file that is no library.
    Unreadable,
    /// What the machine has, if it has one.
    OfTheMachine,
}

/// Runs `body` in a child that finds `library`, as test `test`, with `variables` set.
pub(crate) fn in_child(test: &str, library: Library, variables: &[(&str, &str)], body: impl FnOnce()) {
    if env::var_os(CHILD_VARIABLE).is_some() {
        return body();
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    for name in ["NCCL_COMM_BLOCKING", "STAND_IN", LOG_VARIABLE] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).env(CHILD_VARIABLE, test);
    command.env(LOG_VARIABLE, folder.path().join("log"));
    if let Library::StandIn(behaviour) = library {
        command.env("STAND_IN", behaviour);
    }
    command.env("LD_LIBRARY_PATH", search_path(&library, &folder));
    let output = folder.path().join("output");
    let into = |file: &fs::File| Stdio::from(file.try_clone().unwrap());
    let file = fs::File::create(&output).unwrap();
    let mut child = command.stdin(Stdio::null()).stdout(into(&file)).stderr(into(&file)).spawn().unwrap();
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > TIMEOUT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{test} does not end:\n{}", fs::read_to_string(&output).unwrap());
        }
        thread::sleep(Duration::from_millis(5));
    };
    let said = fs::read_to_string(&output).unwrap();
    assert!(status.success() && said.contains("1 passed"), "{test}: {status}\n{said}");
}

/// How often the stand-in's function `name` was called so far in this child.
pub(crate) fn calls(name: &str) -> usize {
    let log = fs::read_to_string(env::var_os(LOG_VARIABLE).unwrap()).unwrap_or_default();
    log.lines().filter(|line| line.split(' ').next() == Some(name)).count()
}

/// Where the child looks for libraries: `library` first, then the stub of the driver, which knows no GPU, then where this
/// process looks.
fn search_path(library: &Library, folder: &TempDir) -> OsString {
    let first = match library {
        Library::StandIn(_) => Some(stand_in(folder.path(), &[])),
        Library::Incomplete => Some(stand_in(folder.path(), &["-DWITHOUT_ABORT"])),
        Library::Real => Some(real()),
        Library::Unreadable => {
            fs::write(folder.path().join("libnccl.so"), "").unwrap();
            Some(folder.path().to_owned())
        }
        Library::OfTheMachine => None,
    };
    let inherited = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let real = real_folder();
    let others = env::split_paths(&inherited).filter(|path| *path != real);
    let stub = env::var_os("CPKV_STUB_LIBCUDA").map(PathBuf::from);
    env::join_paths(first.into_iter().chain(stub).chain(others)).unwrap()
}

/// Compiles the stand-in into `folder`.
fn stand_in(folder: &Path, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nccl/stand_in.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args(flags)
        .arg("-o")
        .arg(folder.join("libnccl.so"))
        .arg(source)
        .output()
        .expect("a C compiler, `cc`: install one (Debian: gcc)");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    folder.to_owned()
}

fn real_folder() -> PathBuf {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join(".cpkv/cuda/lib");
    env::var_os("CPKV_NCCL_DIR").map_or(fetched, PathBuf::from)
}

/// The folder with the real library.
fn real() -> PathBuf {
    let folder = real_folder();
    assert!(
        folder.join("libnccl.so").exists(),
        "no libnccl.so in {}: run scripts/setup, then `. .cpkv/env`",
        folder.display()
    );
    folder
}
