//! From the kernels' sources to PTX, through rustc's own GPU target.
//!
//! The build script uses it, and so do tests that compile a changed copy of the kernels with the same flags. rustc is
//! called directly: cargo's `-Zbuild-std` would ask a registry for what the rest of the standard library depends on.

#[path = "toolchain.rs"]
mod toolchain;

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf, absolute};
use std::process::Command;

use toolchain::TARGET;
pub(crate) use toolchain::{TOOLCHAIN_VARIABLE, Toolchain, find_toolchain};

/// Names the GPU architecture to compile for, as `sm_90`.
pub(crate) const ARCH_VARIABLE: &str = "CPKV_CUDA_ARCH";

/// Edition of the kernels' crate.
const KERNELS_EDITION: &str = "2024";

/// A GPU architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arch {
    name: String,
    number: u32,
}

impl Arch {
    /// What [`ARCH_VARIABLE`] says; Hopper, `sm_90`, where it is not set.
    ///
    /// # Errors
    /// As [`Arch::new`].
    pub(crate) fn from_variable() -> Result<Self, String> {
        match env::var(ARCH_VARIABLE) {
            Err(env::VarError::NotPresent) => Self::new("sm_90"),
            Err(error) => Err(format!("{ARCH_VARIABLE}: {error}")),
            Ok(name) => Self::new(&name).map_err(|error| format!("{ARCH_VARIABLE}: {error}")),
        }
    }

    /// The architecture called `name`: `sm_`, a number, and perhaps `a` or `f`.
    ///
    /// # Errors
    /// `name` has another form, or means a GPU before Hopper.
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        let number = name.strip_prefix("sm_").map(|rest| rest.strip_suffix(['a', 'f']).unwrap_or(rest));
        let number = number.filter(|n| matches!(n.len(), 2 | 3) && n.bytes().all(|c| c.is_ascii_digit()));
        let number = number.and_then(|digits| digits.parse().ok());
        match number {
            None => Err(format!("`{name}` is no GPU architecture: give one as sm_90 or sm_90a")),
            Some(number) if number < 90 => {
                Err(format!("{name} has no bulk copies: the kernels need sm_90 (Hopper) or later"))
            }
            Some(number) => Ok(Self { name: name.to_owned(), number }),
        }
    }

    /// The version of PTX to write: recent enough for the architecture, and no newer than needed, so that drivers
    /// know it (8.3: CUDA 12.3, 8.8: CUDA 12.9).
    fn ptx_feature(&self) -> &'static str {
        if self.number < 100 { "+ptx83" } else { "+ptx88" }
    }
}

/// Compiles the kernels in `kernels_dir` to `out_dir/cpkv.ptx` and returns that path. `core` is compiled once per
/// `out_dir`, compiler and architecture; the kernels always, so no PTX of other sources can be taken for theirs. One
/// call at a time may use an `out_dir`.
///
/// # Errors
/// A file cannot be written, the compiler refuses the sources, or the PTX lacks an entry point they have.
pub(crate) fn compile(
    toolchain: &Toolchain,
    kernels_dir: &Path,
    out_dir: &Path,
    arch: &Arch,
) -> Result<PathBuf, String> {
    if !toolchain.knows(&arch.name) {
        return Err(format!("{} cannot compile for {}", toolchain.version(), arch.name));
    }
    let out_dir = absolute(out_dir).map_err(failed("find", out_dir))?;
    let kernels_dir = absolute(kernels_dir).map_err(failed("find", kernels_dir))?;
    let ptx_path = out_dir.join("cpkv.ptx");
    let asm_path = out_dir.join("cpkv.s");
    // What an earlier build left goes first: if this one fails, there is no PTX.
    for path in [&ptx_path, &asm_path] {
        remove(path, fs::remove_file(path))?;
    }
    let core_dir = out_dir.join("nvptx-core");
    compile_core(toolchain, &core_dir, arch)?;
    let mut command = compiler(toolchain, "cpkv_kernels", KERNELS_EDITION, arch);
    // One unit with all of `core` it uses, whose assembly is the whole module. Only what is linked is put together so,
    // therefore a linker runs: `true`, which does nothing, and succeeds.
    command.args(["--crate-type", "cdylib", "-Clto=fat", "-Ccodegen-units=1", "-Clinker=true"]);
    command.args(externs(&core_dir)).arg(pair("--emit=asm=", &asm_path));
    command.arg(pair("--emit=link=", &out_dir.join("cpkv.linked"))).arg(kernels_dir.join("src/lib.rs"));
    run(command, toolchain, &format!("the kernels in {}", kernels_dir.display()))?;
    let ptx = fs::read_to_string(&asm_path).map_err(failed("read", &asm_path))?;
    check(&ptx, &sources(&kernels_dir.join("src"))?, arch)?;
    fs::rename(&asm_path, &ptx_path).map_err(failed("move", &asm_path))?;
    Ok(ptx_path)
}

/// Compiles `core` into `core_dir`, unless it is there, made by the same compiler for the same architecture.
fn compile_core(toolchain: &Toolchain, core_dir: &Path, arch: &Arch) -> Result<(), String> {
    let stamp_path = core_dir.join("stamp");
    let stamp = format!("{}\n{}\n{arch:?}\n", toolchain.version(), toolchain.core_dir().display());
    if fs::read_to_string(&stamp_path).is_ok_and(|found| found == stamp) {
        return Ok(());
    }
    remove(core_dir, fs::remove_dir_all(core_dir))?;
    fs::create_dir_all(core_dir).map_err(failed("create", core_dir))?;
    let manifest_path = toolchain.core_dir().join("Cargo.toml");
    let manifest = fs::read_to_string(&manifest_path).map_err(failed("read", &manifest_path))?;
    let edition = manifest.lines().find_map(|line| line.strip_prefix("edition = \"")?.strip_suffix('"'));
    let edition = edition.ok_or_else(|| format!("{} names no edition", manifest_path.display()))?;
    let mut command = compiler(toolchain, "core", edition, arch);
    command.args(["--crate-type", "rlib", "-Zforce-unstable-if-unmarked", "--cap-lints", "allow"]);
    command.arg(pair("--out-dir=", core_dir)).arg(toolchain.core_dir().join("src/lib.rs"));
    run(command, toolchain, "its `core`")?;
    // rustc wants this crate beside `core`. The kernels use nothing of it, which `check` makes sure of.
    let builtins_path = core_dir.join("compiler_builtins.rs");
    let builtins = "#![no_std]\n#![feature(compiler_builtins)]\n#![compiler_builtins]\n";
    fs::write(&builtins_path, builtins).map_err(failed("write", &builtins_path))?;
    let mut command = compiler(toolchain, "compiler_builtins", "2024", arch);
    command.args(["--crate-type", "rlib", "--cap-lints", "allow"]).args(&externs(core_dir)[..1]);
    command.arg(pair("--out-dir=", core_dir)).arg(&builtins_path);
    run(command, toolchain, "an empty `compiler_builtins`")?;
    fs::write(&stamp_path, stamp).map_err(failed("write", &stamp_path))
}

/// A call of the compiler with the flags that all crates have in common.
fn compiler(toolchain: &Toolchain, crate_name: &str, edition: &str, arch: &Arch) -> Command {
    let mut command = toolchain.command();
    command.args(["--crate-name", crate_name, "--edition", edition, "--target", TARGET]);
    // Without places in messages, the PTX does not depend on where the sources are. ptxas cannot read rustc's debug
    // sections; without a flag, there are none.
    command.args(["-Copt-level=3", "-Cpanic=abort", "-Zlocation-detail=none"]);
    command.arg(format!("-Ctarget-cpu={}", arch.name));
    command.arg(format!("-Ctarget-feature={}", arch.ptx_feature()));
    command
}

/// The arguments that name `core`, and what rustc wants beside it.
fn externs(core_dir: &Path) -> [OsString; 2] {
    ["core", "compiler_builtins"]
        .map(|name| pair(&format!("--extern={name}="), &core_dir.join(format!("lib{name}.rlib"))))
}

/// `flag` and a path, in one argument.
fn pair(flag: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(flag);
    argument.push(path);
    argument
}

/// Runs the compiler on `what`.
fn run(mut command: Command, toolchain: &Toolchain, what: &str) -> Result<(), String> {
    let output = command.output().map_err(failed("run", toolchain.rustc()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{} ({}) does not compile {what}: {}\n{}",
        toolchain.version(),
        toolchain.rustc().display(),
        output.status,
        String::from_utf8_lossy(&output.stderr),
    ))
}

/// Holds `ptx` against the sources it should come from.
fn check(ptx: &str, sources: &[String], arch: &Arch) -> Result<(), String> {
    let target = format!(".target {}", arch.name);
    if !ptx.lines().any(|line| line.split(',').next().unwrap_or_default().trim() == target) {
        return Err(format!("the PTX has no line `{target}`"));
    }
    if let Some(line) = ptx.lines().find(|line| line.contains(".extern .func")) {
        return Err(format!("the PTX calls a function that nothing defines: {line}"));
    }
    let wanted: BTreeSet<&str> =
        sources.iter().flat_map(|source| names_after(source, "extern \"ptx-kernel\" fn ")).collect();
    if wanted.is_empty() {
        return Err("the kernels' sources have no entry point (extern \"ptx-kernel\" fn)".to_owned());
    }
    let found: BTreeSet<&str> = names_after(ptx, ".visible .entry ").collect();
    let missing: Vec<&str> = wanted.difference(&found).copied().collect();
    if !missing.is_empty() {
        return Err(format!("the PTX lacks entry points of the sources: {}", missing.join(", ")));
    }
    Ok(())
}

/// The names that follow `start` in the lines of `text`.
fn names_after<'a>(text: &'a str, start: &'static str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.split_once(start)).filter_map(|(before, after)| {
        let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        (!before.contains("//")).then(|| &after[..end])
    })
}

/// The texts of all files below `folder`.
fn sources(folder: &Path) -> Result<Vec<String>, String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed("read", folder))? {
        let path = entry.map_err(failed("read", folder))?.path();
        if path.is_dir() {
            texts.append(&mut sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push(fs::read_to_string(&path).map_err(failed("read", &path))?);
        }
    }
    Ok(texts)
}

/// What a removal came to; that there was nothing is as good.
fn remove(path: &Path, result: io::Result<()>) -> Result<(), String> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Makes an I/O error say what failed, and where.
fn failed(action: &str, path: &Path) -> impl FnOnce(io::Error) -> String {
    move |error| format!("cannot {action} {}: {error}", path.display())
}
