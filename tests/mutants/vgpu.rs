//! The virtual GPU's driver, built and put where the loader looks for `libcuda.so.1`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds the stand-in driver, optimised, and names it in `folder`. Returns that folder.
///
/// # Errors
/// It does not build.
pub(crate) fn prepare(folder: PathBuf) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let mut command = Command::new(&cargo);
    command.args(["build", "--locked", "--release", "--package", "cpkv-vgpu"]).current_dir(root);
    // In this checkout's own folder, wherever the tests themselves were built.
    let target = root.join("target");
    command.arg("--target-dir").arg(&target).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("cannot run {}: {error}", cargo.display()))?;
    if !output.status.success() {
        return Err(format!(
            "the virtual GPU does not build: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let library = target.join("release/libcpkv_vgpu.so");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    symlink(&library, folder.join("libcuda.so.1")).map_err(failed)?;
    symlink("libcuda.so.1", folder.join("libcuda.so")).map_err(failed)?;
    Ok(folder)
}
