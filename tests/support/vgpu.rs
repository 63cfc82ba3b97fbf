//! Tests on the virtual GPU: each runs its body in a process of its own, which finds the virtual driver first and has
//! the faults staged that the test asks for. Under `cargo test` itself the driver is the stub that knows no device.

#![allow(dead_code, reason = "each test file uses its part")]

use std::any::type_name;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A folder with the virtual driver under the name `libcuda.so.1`.
const FOLDER_VARIABLE: &str = "CPKV_VGPU_LIB";
/// Names the test whose body a child process runs.
const BODY_VARIABLE: &str = "CPKV_VGPU_BODY";
/// A child says this last.
const DONE: &str = "CPKV-VGPU-BODY-DONE";
/// A child that is not over after this never will be.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Variables of the surroundings that would change what the virtual driver does.
const VARIABLES: [&str; 8] = [
    "CPKV_VGPU_DEVICES",
    "CPKV_VGPU_FAULTS",
    "CPKV_VGPU_FAULT_LOG",
    "CPKV_VGPU_MAX_THREADS",
    "CPKV_VGPU_MEMORY_MB",
    "CPKV_VGPU_UNINITIALISED",
    "CPKV_VGPU_WATCHDOG_S",
    "CUDA_VISIBLE_DEVICES",
];

/// The folder with the virtual driver. A test that has none fails: it must not pass for want of a driver.
pub(crate) fn folder() -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/vgpu");
    let folder = std::env::var_os(FOLDER_VARIABLE).map_or(default, PathBuf::from);
    assert!(
        folder.join("libcuda.so.1").exists(),
        "no virtual driver in {}: run `cargo build --release -p cpkv-vgpu && mkdir -p target/vgpu && \
         ln -sf ../release/libcpkv_vgpu.so target/vgpu/libcuda.so.1 && ln -sf libcuda.so.1 target/vgpu/libcuda.so`, \
         or set {FOLDER_VARIABLE} to a folder that has one",
        folder.display()
    );
    folder
}

/// `LD_LIBRARY_PATH` with `folder` first.
pub(crate) fn library_path(folder: &Path) -> OsString {
    let before = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&before));
    std::env::join_paths(folders).expect("folders without a colon")
}

/// Lets `command` run on the virtual GPU, with nothing of the surroundings that changes what it does.
pub(crate) fn on_virtual_gpu(command: &mut Command) -> &mut Command {
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.env("LD_LIBRARY_PATH", library_path(&folder())).env("CPKV_TEST_DEVICE", "cuda")
}

/// Runs `body`, the body of the calling test, in a child process on the virtual GPU with these variables; returns what the
/// child wrote to standard error. In the child it does not return.
#[track_caller]
pub(crate) fn in_child<F: FnOnce()>(environment: &[(&str, &str)], body: F) -> String {
    let test = test_of::<F>();
    if std::env::var(BODY_VARIABLE).is_ok_and(|name| name == test) {
        body();
        // By file descriptor: the test harness would keep what `println!` writes.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{DONE}\n").as_bytes());
        std::process::exit(0);
    }
    let mut command = Command::new(std::env::current_exe().expect("the test's own program"));
    on_virtual_gpu(&mut command)
        .args([test, "--exact", "--test-threads=1", "--nocapture"])
        .env(BODY_VARIABLE, test)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("a child process");
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break Some(status);
        }
        if started.elapsed() > TIMEOUT {
            let _ = child.kill();
            break child.wait().ok().filter(|_| false);
        }
        thread::sleep(Duration::from_millis(5));
    };
    let (stdout, stderr) = (stdout.join().expect("stdout"), stderr.join().expect("stderr"));
    let is_done = status.is_some_and(|status| status.success()) && stderr.lines().any(|line| line == DONE);
    assert!(is_done, "{test}: {status:?} (none: not over after {TIMEOUT:?})\n{stdout}\n{stderr}");
    stderr
}

/// The faults of the machine that a child told of.
pub(crate) fn faults(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|line| line.starts_with("vgpu: fault")).collect()
}

/// The name of the test that `F` is a closure in, as the harness knows it.
fn test_of<F>() -> &'static str {
    let path = type_name::<F>();
    let path = path.strip_suffix("::{{closure}}").unwrap_or(path);
    path.split_once("::").map_or(path, |(_, test)| test)
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.expect("the pipe was asked for").read_to_end(&mut bytes).expect("a readable pipe");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
