//! Compiles copies of the kernels, as the build script compiles the originals.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::fault::Fault;
use crate::nvptx::{self, Arch, Toolchain, find_toolchain};

/// A compiler of one copy at a time: rustc leaves files of passing names in the folder it is started in.
pub(crate) struct Compiler {
    toolchain: Toolchain,
    arch: Arch,
    folder: Mutex<PathBuf>,
}

impl Compiler {
    /// One that works in `folder`, which is empty.
    pub(crate) fn new(folder: PathBuf) -> Result<Self, String> {
        let out_dir = folder.join("out");
        fs::create_dir_all(&out_dir).map_err(|error| format!("{}: {error}", out_dir.display()))?;
        // What the build script made of `core` serves here as well. Its stamp says what it was made by and for: one of
        // another kind is made again.
        if let Some(made) = Path::new(env!("CPKV_PTX")).parent().map(|built| built.join("nvptx-core"))
            && made.is_dir()
        {
            copy_tree(&made, &out_dir.join("nvptx-core"))?;
        }
        Ok(Self { toolchain: find_toolchain()?, arch: Arch::from_variable()?, folder: Mutex::new(folder) })
    }

    /// Writes the PTX of the sources with `fault`, or as they are, to `ptx`.
    pub(crate) fn compile(&self, fault: Option<&Fault>, ptx: &Path) -> Result<(), String> {
        let folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        let kernels_dir = folder.join("kernels");
        let failed = |error: std::io::Error| format!("{}: {error}", kernels_dir.display());
        if kernels_dir.exists() {
            fs::remove_dir_all(&kernels_dir).map_err(failed)?;
        }
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/src");
        copy_tree(&sources, &kernels_dir.join("src"))?;
        if let Some(fault) = fault {
            fault.plant(&kernels_dir)?;
        }
        let made = nvptx::compile(&self.toolchain, &kernels_dir, &folder.join("out"), &self.arch)?;
        fs::rename(&made, ptx).map_err(|error| format!("{}: {error}", ptx.display()))
    }
}

fn copy_tree(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("copying {} to {}: {error}", from.display(), to.display());
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let place = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &place)?;
        } else {
            fs::copy(entry.path(), &place).map_err(failed)?;
        }
    }
    Ok(())
}
