//! The shared library as the dynamic linker sees it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;

use cpkv_vgpu as _;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const NOW: c_int = 2;

/// The shared library that cargo built beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let name = "libcpkv_vgpu.so";
    let found =
        [folder.join(name), folder.parent().unwrap().join(name)].into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("no {name} near {}", test.display()))
}

#[test]
fn the_library_has_the_name_that_programs_link_with() {
    // The dynamic section names the library by a string in its string table.
    let bytes = std::fs::read(library()).unwrap();
    let name = b"\0libcuda.so.1\0";
    assert!(bytes.windows(name.len()).any(|window| window == name));
}

#[test]
fn symbols_of_every_kind_are_exported_and_stubs_say_not_supported() {
    let path = CString::new(library().to_str().unwrap()).unwrap();
    // SAFETY: a library of this workspace, whose loading runs no code of its own.
    let handle = unsafe { dlopen(path.as_ptr(), NOW) };
    assert!(!handle.is_null());
    let find = |name: &CStr| {
        // SAFETY: the handle is open.
        unsafe { dlsym(handle, name.as_ptr()) }
    };
    for name in
        [c"cuInit", c"cuMemAlloc_v2", c"cuIpcOpenMemHandle_v2", c"cuGetProcAddress_v2", c"cuLaunchKernel"]
    {
        assert!(!find(name).is_null(), "{name:?}");
    }
    let stub = find(c"cuTexRefCreate");
    assert!(!stub.is_null());
    // SAFETY: the symbol is a C function that takes no notice of arguments and returns an int.
    let stub = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(stub) };
    // SAFETY: as above.
    assert_eq!(unsafe { stub() }, 801);
}
