//! NIXL's library: where it is, and whether it is one. A missing library makes the bindings end the process, so it is
//! looked for, loaded and checked here before they do anything.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Names the library where no option does.
pub const LIBRARY_VARIABLE: &str = "CPKV_NIXL_LIBRARY";

/// The name by which the bindings load it: what is loaded under this name already is what they get.
const SONAME: &str = "libnixl_capi.so";

/// `RTLD_NOLOAD` of Linux: only what is loaded already.
const RTLD_NOLOAD: i32 = 4;

/// The functions that are used here. Where one is missing, the bindings end the process when it is called.
const SYMBOLS: [&str; 27] = [
    "nixl_capi_create_configured_agent",
    "nixl_capi_create_backend",
    "nixl_capi_create_opt_args",
    "nixl_capi_create_reg_dlist",
    "nixl_capi_create_xfer_dlist",
    "nixl_capi_create_xfer_req",
    "nixl_capi_deregister_mem",
    "nixl_capi_destroy_agent",
    "nixl_capi_destroy_backend",
    "nixl_capi_destroy_mem_list",
    "nixl_capi_destroy_opt_args",
    "nixl_capi_destroy_params",
    "nixl_capi_destroy_reg_dlist",
    "nixl_capi_destroy_xfer_dlist",
    "nixl_capi_destroy_xfer_req",
    "nixl_capi_get_local_md",
    "nixl_capi_get_plugin_params",
    "nixl_capi_get_xfer_status",
    "nixl_capi_invalidate_remote_md",
    "nixl_capi_load_remote_md",
    "nixl_capi_post_xfer_req",
    "nixl_capi_register_mem",
    "nixl_capi_release_xfer_req",
    "nixl_capi_reg_dlist_add_desc",
    "nixl_capi_reg_dlist_clear",
    "nixl_capi_xfer_dlist_add_desc",
    "nixl_capi_xfer_dlist_clear",
];

/// The library that this process uses. It stays loaded to the end.
static LOADED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Loads the library that `option` names, else the environment, and returns its path. A process has one: the first.
///
/// # Errors
/// What is wrong, and what to do.
pub(super) fn load(option: Option<&Path>) -> Result<PathBuf, String> {
    let from_environment = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty());
    let Some(path) = option.map(Path::to_path_buf).or_else(|| from_environment.map(PathBuf::from)) else {
        return Err(format!(
            "no NIXL library is named: run scripts/setup, which fetches one, and read .cpkv/env, or set \
             {LIBRARY_VARIABLE} to the path of a {SONAME}"
        ));
    };
    let path = path.canonicalize().map_err(|problem| {
        format!("{}: {problem}. Run scripts/setup, or set {LIBRARY_VARIABLE} to a {SONAME}", path.display())
    })?;
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    match &*loaded {
        Some(before) if *before == path => return Ok(path),
        Some(before) => {
            return Err(format!("{} is loaded already: a process uses one NIXL library", before.display()));
        }
        None => {}
    }
    let library = check(&path)?;
    // Never unloaded: its threads and exit handlers run code of it.
    std::mem::forget(library);
    if nixl_sys::is_stub() {
        return Err(format!("the bindings do not find {SONAME}: they were used before it was loaded"));
    }
    *loaded = Some(path.clone());
    Ok(path)
}

/// The library at `path`, with all its functions, under the name that the bindings look for.
fn check(path: &Path) -> Result<Library, String> {
    let other = |detail: String| {
        format!(
            "{} is not a NIXL library of version 1.5: {detail}. Run scripts/setup for one",
            path.display()
        )
    };
    // SAFETY: loading runs the library's initialisers, which this process trusts, as it was told to use it.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|problem| other(problem.to_string()))?;
    for symbol in SYMBOLS {
        // SAFETY: only looked for, never called through this type.
        let found = unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) };
        found.map_err(|_| other(format!("it lacks {symbol}")))?;
    }
    // SAFETY: loads nothing, so nothing is run.
    let named = unsafe { Library::open(Some(SONAME), RTLD_NOW | RTLD_NOLOAD) };
    named.map_err(|_| other(format!("its name (SONAME) is not {SONAME}")))?;
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_nixl_library_is_refused_by_its_path_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("libnixl_capi.so");
        std::fs::write(&text, "not a library").unwrap();
        let missing = folder.path().join("none.so");
        let libc = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = libc.split_whitespace().find(|word| word.ends_with("/libc.so.6")).unwrap();
        for (path, words) in [
            (text.as_path(), "is not a NIXL library"),
            (missing.as_path(), "No such file"),
            (Path::new(libc), "it lacks nixl_capi_create_configured_agent"),
        ] {
            let reason = load(Some(path)).unwrap_err();
            assert!(reason.contains(words) && reason.contains("scripts/setup"), "{reason}");
            assert!(reason.contains(path.to_str().unwrap()), "{reason}");
        }
        assert!(LOADED.lock().unwrap().is_none());
    }
}
