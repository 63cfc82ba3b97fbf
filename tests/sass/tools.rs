//! NVIDIA's assembler and disassembler, run on PTX text.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use super::listing::{self, Function};
use super::usage::{self, Usage};

/// One tool's run takes well under a second.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Where the tools are.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    ptxas: PathBuf,
    nvdisasm: PathBuf,
    cuobjdump: PathBuf,
}

/// What the assembler made of a module.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) functions: Vec<Function>,
    pub(crate) usages: Vec<Usage>,
}

impl Assembled {
    pub(crate) fn function(&self, name: &str) -> Result<&Function, String> {
        self.functions
            .iter()
            .find(|function| function.name == name)
            .ok_or(format!("no machine code of {name}"))
    }

    pub(crate) fn usage(&self, name: &str) -> Result<&Usage, String> {
        self.usages
            .iter()
            .find(|usage| usage.kernel == name)
            .ok_or(format!("ptxas reports nothing of {name}"))
    }
}

impl Tools {
    /// What the environment says, else what `scripts/setup` wrote down, else what is on PATH.
    pub(crate) fn find() -> Result<Self, String> {
        Ok(Self {
            ptxas: find_tool("ptxas", "CPKV_PTXAS")?,
            nvdisasm: find_tool("nvdisasm", "CPKV_NVDISASM")?,
            cuobjdump: find_tool("cuobjdump", "CPKV_CUOBJDUMP")?,
        })
    }

    /// Assembles for Hopper, with further options of ptxas, and lists the machine code.
    pub(crate) fn assemble(&self, ptx: &str, options: &[&str]) -> Result<Assembled, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        let (source, cubin) = (folder.path().join("module.ptx"), folder.path().join("module.cubin"));
        fs::write(&source, ptx).map_err(|error| format!("cannot write {}: {error}", source.display()))?;
        let mut ptxas = Command::new(&self.ptxas);
        ptxas.args(["-arch=sm_90", "-v"]).args(options).arg("-o").arg(&cubin).arg(&source);
        let report = run(ptxas, folder.path())?;
        let mut cuobjdump = Command::new(&self.cuobjdump);
        // It runs nvdisasm, which it looks for there.
        cuobjdump
            .arg("-sass")
            .arg(&cubin)
            .env("NVDISASM_PATH", self.nvdisasm.parent().unwrap_or(Path::new("/")));
        let listing = run(cuobjdump, folder.path())?;
        Ok(Assembled { functions: listing::parse(&listing)?, usages: usage::parse(&report)? })
    }
}

fn find_tool(name: &str, variable: &str) -> Result<PathBuf, String> {
    let is_file = |path: &PathBuf| path.is_file();
    let given = env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(given) = given {
        return Some(given.clone())
            .filter(is_file)
            .ok_or(format!("{variable} is {given:?}, where no file is"));
    }
    if let Some(path) = written_down(variable).filter(is_file) {
        return Ok(path);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut on_path = env::split_paths(&path).map(|folder| folder.join(name));
    on_path.find(is_file).ok_or(format!("no {name}: run scripts/setup, or set {variable} to its path"))
}

/// A variable of `.cpkv/env`, which is shell text.
fn written_down(variable: &str) -> Option<PathBuf> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(".cpkv/env");
    let mut bash = Command::new("bash");
    bash.args(["-c", r#". "$1" && printf %s "${!2:-}""#, "bash"]).arg(file).arg(variable);
    let output = bash.stdin(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Runs a tool to its end and returns what it wrote, both streams together.
fn run(mut command: Command, folder: &Path) -> Result<String, String> {
    let path = folder.join("output");
    let output = File::create(&path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    let errors = output.try_clone().map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    let mut child = command.spawn().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let started = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started.elapsed() < TIMEOUT => thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                // It may just have ended; either way it is waited for.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{command:?} did not end within {TIMEOUT:?}"));
            }
            Err(error) => return Err(format!("cannot wait for {command:?}: {error}")),
        }
    };
    let text = fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let text = String::from_utf8_lossy(&text).into_owned();
    if status.success() { Ok(text) } else { Err(format!("{command:?}: {status}:\n{text}")) }
}
