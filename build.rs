//! Compiles the kernels to PTX and hands it to the library, where the feature `cuda` asks for it; else does nothing.
//!
//! The library finds the PTX's path in `CPKV_PTX` and the compiler's version in `CPKV_PTX_COMPILER`.

#[path = "build/nvptx.rs"]
mod nvptx;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Once a build script names files, nothing else makes it run again.
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return ExitCode::SUCCESS;
    }
    println!("cargo::rerun-if-changed=kernels/src");
    println!("cargo::rerun-if-changed=kernels/Cargo.toml");
    for variable in [nvptx::TOOLCHAIN_VARIABLE, nvptx::ARCH_VARIABLE] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    match embed() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            for line in message.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Compiles, and tells cargo where the PTX is.
fn embed() -> Result<(), String> {
    let out_dir = env::var_os("OUT_DIR").map(PathBuf::from).ok_or("cargo set no OUT_DIR")?;
    let kernels_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let toolchain = nvptx::find_toolchain()?;
    let arch = nvptx::Arch::from_variable()?;
    let ptx = nvptx::compile(&toolchain, &kernels_dir, &out_dir, &arch)?;
    println!("cargo::rustc-env=CPKV_PTX={}", ptx.display());
    // Beside the programs of this profile, for tests of other packages.
    if let Some(profile_dir) = out_dir.ancestors().nth(3) {
        let copy = profile_dir.join("cpkv.ptx");
        std::fs::copy(&ptx, &copy).map_err(|error| format!("cannot write {}: {error}", copy.display()))?;
    }
    println!("cargo::rustc-env=CPKV_PTX_COMPILER={}", toolchain.version());
    Ok(())
}
