//! A compiler that can make PTX: one with the sources of `core`, because nobody ships it compiled for GPUs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The rustc target of NVIDIA's GPUs.
pub(crate) const TARGET: &str = "nvptx64-nvidia-cuda";
/// Names the folder of the `rustc` to use.
pub(crate) const TOOLCHAIN_VARIABLE: &str = "CPKV_NVPTX_TOOLCHAIN";

/// What to do where there is none.
const REMEDY: &str = "\
Install one of these:
  Debian: apt-get install rustc-web rust-web-src (or rustc and rust-src, where they are recent enough)
  rustup: rustup toolchain install nightly --profile minimal --component rust-src
or set CPKV_NVPTX_TOOLCHAIN to the folder with the rustc of a toolchain that has the component rust-src.";

/// A `rustc`, with the sources of its `core`.
#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    rustc: PathBuf,
    library: PathBuf,
    version: String,
    architectures: String,
}

impl Toolchain {
    /// What the compiler says of itself, in one line.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The compiler.
    pub(crate) fn rustc(&self) -> &Path {
        &self.rustc
    }

    /// The folder of `core`'s package.
    pub(crate) fn core_dir(&self) -> PathBuf {
        self.library.join("core")
    }

    /// Whether it can compile for the GPU architecture called `name`.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.architectures.split_whitespace().any(|known| known == name)
    }

    /// A call of the compiler, in an environment that the build outside has no part in.
    pub(crate) fn command(&self) -> Command {
        clean_command(&self.rustc)
    }

    /// The toolchain in folder `bin`.
    ///
    /// # Errors
    /// What it lacks.
    fn at(bin: &Path) -> Result<Self, String> {
        let rustc = bin.join("rustc");
        let version = say(&rustc, &["--version"])?;
        if minor_version(&version) < minor_version(concat!("rustc ", env!("CARGO_PKG_RUST_VERSION"))) {
            return Err(format!("{version} is older than {}", env!("CARGO_PKG_RUST_VERSION")));
        }
        let library = Path::new(&say(&rustc, &["--print", "sysroot"])?).join("lib/rustlib/src/rust/library");
        let core = library.join("core/src/lib.rs");
        if !core.is_file() {
            return Err(format!("no sources of `core`: {} is missing", core.display()));
        }
        let architectures = say(&rustc, &["--print", "target-cpus", "--target", TARGET])
            .map_err(|error| format!("no code for {TARGET}: {error}"))?;
        Ok(Self { rustc, library, version, architectures })
    }
}

/// Finds a toolchain: the one in [`TOOLCHAIN_VARIABLE`] or, if that is not set, Debian's, else rustup's nightly.
///
/// # Errors
/// Where it looked, what was missing there, and what to install.
pub(crate) fn find_toolchain() -> Result<Toolchain, String> {
    if let Some(bin) = env::var_os(TOOLCHAIN_VARIABLE).filter(|bin| !bin.is_empty()) {
        return Toolchain::at(Path::new(&bin))
            .map_err(|missing| format!("{TOOLCHAIN_VARIABLE} = {}: {missing}\n{REMEDY}", bin.display()));
    }
    let mut found_wanting = String::new();
    for bin in candidates() {
        match Toolchain::at(&bin) {
            Ok(toolchain) => return Ok(toolchain),
            Err(missing) => found_wanting += &format!("  {}: {missing}\n", bin.display()),
        }
    }
    Err(format!("no compiler for {TARGET}. Looked at:\n{found_wanting}{REMEDY}"))
}

/// The folders to look in: Debian's first, then those of rustup's nightlies, the undated one first.
fn candidates() -> Vec<PathBuf> {
    let rustup = env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let rustup = rustup.or_else(|| env::home_dir().map(|home| home.join(".rustup")));
    let toolchains = rustup.and_then(|home| fs::read_dir(home.join("toolchains")).ok());
    let mut nightlies: Vec<PathBuf> = toolchains
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"nightly-")))
        .map(|path| path.join("bin"))
        .collect();
    // An undated name has a letter where a dated one has its year.
    nightlies.sort_by(|a, b| b.cmp(a));
    nightlies.insert(0, PathBuf::from("/usr/bin"));
    nightlies
}

/// The minor number of `rustc 1.minor.patch ...`; `None` where there is none, which is the smallest.
fn minor_version(version: &str) -> Option<u32> {
    version.strip_prefix("rustc 1.")?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// What `rustc` prints.
fn say(rustc: &Path, args: &[&str]) -> Result<String, String> {
    let call = || format!("{} {}", rustc.display(), args.join(" "));
    let output = clean_command(rustc).args(args).output().map_err(|error| format!("{}: {error}", call()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}: {}", call(), output.status, complaint.lines().next().unwrap_or_default()))
}

/// A call of `rustc` that sees nothing of what the build outside set: flags, wrappers, folders, another toolchain.
fn clean_command(rustc: &Path) -> Command {
    let mut command = Command::new(rustc);
    for (name, _) in env::vars_os() {
        let bytes = name.as_encoded_bytes();
        let is_of_the_build = bytes.starts_with(b"CARGO") || bytes.starts_with(b"RUST");
        // Where rustup's own `rustc` finds its toolchains.
        let is_wanted = name == "CARGO_HOME" || name == "RUSTUP_HOME";
        if is_of_the_build && !is_wanted {
            command.env_remove(name);
        }
    }
    // Opens the unstable features that the GPU target still needs.
    command.env("RUSTC_BOOTSTRAP", "1");
    command
}
