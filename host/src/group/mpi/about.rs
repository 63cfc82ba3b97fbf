//! What the MPI library says of itself: for reports.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use mpi::ffi;

use super::world::{LOCK_TIMEOUT, MpiWorld};
use crate::deadline::Deadline;

/// The MPI library's name and version, in one line; empty where it does not say.
pub fn mpi_library_version() -> String {
    // SAFETY: a constant of the MPI library, never written after it is loaded.
    let max_bytes = unsafe { ffi::RSMPI_MAX_LIBRARY_VERSION_STRING };
    let mut version = vec![0_u8; usize::try_from(max_bytes).unwrap_or(0) + 1];
    let mut len = 0;
    // SAFETY: allowed at any time; the buffer has the size that the standard asks for, and one byte more.
    let code = unsafe { ffi::MPI_Get_library_version(version.as_mut_ptr().cast::<c_char>(), &mut len) };
    version.truncate(if code == 0 { usize::try_from(len).unwrap_or(0) } else { 0 });
    let text = String::from_utf8_lossy(&version);
    text.lines().next().unwrap_or_default().trim_matches(['\0', ' ']).to_owned()
}

/// How this MPI copies large messages between ranks of one machine, as far as it can be found out:
/// `vader, single copy by CMA (process_vm_readv)`, `vader, copy in, copy out`, ..., `unknown`.
///
/// Open MPI is asked, after its start, through its tool interface: the value is then what it decided, not what it
/// was told. It does not try the system call itself, so this does.
pub fn same_host_copy(world: &MpiWorld) -> String {
    if !mpi_library_version().starts_with("Open MPI") {
        return "unknown".into();
    }
    let Some(_turn) = world.turn(Deadline::after(LOCK_TIMEOUT)) else {
        return "unknown".into();
    };
    let Some(tool) = Tool::start() else {
        return "unknown".into();
    };
    match tool.read_enum(c"btl_vader_single_copy_mechanism") {
        Some(mechanism) => describe(&mechanism, cma_refusal()),
        None => "unknown".into(),
    }
}

/// The words for a mechanism; `refusal` is the code of the kernel's answer to `process_vm_readv`.
fn describe(mechanism: &str, refusal: Option<i32>) -> String {
    match (mechanism, refusal) {
        ("cma", None) => "vader, single copy by CMA (process_vm_readv)".into(),
        ("cma", Some(code)) => {
            format!("vader, CMA chosen, but process_vm_readv is refused here (os error {code})")
        }
        ("none" | "emulated", _) => "vader, copy in, copy out".into(),
        (other, _) => format!("vader, single copy by {other}"),
    }
}

/// MPI's tool interface, started; ended when dropped.
struct Tool;

impl Tool {
    fn start() -> Option<Self> {
        // SAFETY: a constant of the MPI library, never written after it is loaded.
        let required = unsafe { ffi::RSMPI_THREAD_SERIALIZED };
        let mut provided = 0;
        // SAFETY: allowed at any time and any number of times; the result outlives the call.
        (unsafe { ffi::MPI_T_init_thread(required, &mut provided) } == 0).then_some(Self)
    }

    /// The name of the value that the control variable `name`, an enumeration, has now.
    fn read_enum(&self, name: &CStr) -> Option<String> {
        let mut index = 0;
        // SAFETY: the interface is started; the name ends with a zero; the result outlives the call.
        let code = unsafe { ffi::MPI_T_cvar_get_index(name.as_ptr(), &mut index) };
        (code == 0).then_some(())?;
        let names = self.enumeration(index)?;
        let value = self.read_int(index)?;
        self.item_name(names, value)
    }

    /// The enumeration of a variable; `None` where it is no number with names.
    fn enumeration(&self, index: c_int) -> Option<ffi::MPI_T_enum> {
        let mut names: ffi::MPI_T_enum = ptr::null_mut();
        let (mut name_len, mut desc_len, mut verbosity, mut bind, mut scope) = (0, 0, 0, 0, 0);
        // SAFETY: a constant of the MPI library, never written after it is loaded.
        let mut datatype = unsafe { ffi::RSMPI_DATATYPE_NULL };
        // SAFETY: the index comes from the interface; texts that are not asked for may be null; the results
        // outlive the call.
        let code = unsafe {
            ffi::MPI_T_cvar_get_info(
                index,
                ptr::null_mut(),
                &mut name_len,
                &mut verbosity,
                &mut datatype,
                &mut names,
                ptr::null_mut(),
                &mut desc_len,
                &mut bind,
                &mut scope,
            )
        };
        (code == 0 && !names.is_null()).then_some(names)
    }

    /// The value of a variable that is one number and bound to no object.
    fn read_int(&self, index: c_int) -> Option<c_int> {
        let mut handle: ffi::MPI_T_cvar_handle = ptr::null_mut();
        let mut count = 0;
        // SAFETY: the index comes from the interface; the results outlive the call.
        let code = unsafe { ffi::MPI_T_cvar_handle_alloc(index, ptr::null_mut(), &mut handle, &mut count) };
        (code == 0).then_some(())?;
        // Room for more than one number, should the library have one where its enumeration says otherwise.
        let mut value = [0 as c_int; 16];
        let read = count == 1 && {
            // SAFETY: the handle is valid, and an enumeration's value is one number.
            let code = unsafe { ffi::MPI_T_cvar_read(handle, value.as_mut_ptr().cast::<c_void>()) };
            code == 0
        };
        // SAFETY: the handle is valid and not used after this.
        let _ = unsafe { ffi::MPI_T_cvar_handle_free(&mut handle) };
        read.then_some(value[0])
    }

    fn item_name(&self, names: ffi::MPI_T_enum, value: c_int) -> Option<String> {
        const MAX_NAME_BYTES: usize = 64;
        // An enumeration of mechanisms is short; the first index past its end is an error.
        for index in 0..64 {
            let mut item_value = 0;
            let mut name = [0_u8; MAX_NAME_BYTES];
            let mut name_len = MAX_NAME_BYTES as c_int;
            let text = name.as_mut_ptr().cast::<c_char>();
            // SAFETY: the enumeration comes from the interface; the name has the room it says; all outlive the
            // call.
            let code =
                unsafe { ffi::MPI_T_enum_get_item(names, index, &mut item_value, text, &mut name_len) };
            if code != 0 {
                return None;
            }
            if item_value == value {
                let name = CStr::from_bytes_until_nul(&name).ok()?;
                return Some(name.to_string_lossy().into_owned());
            }
        }
        None
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // SAFETY: ends what `start` started.
        let _ = unsafe { ffi::MPI_T_finalize() };
    }
}

/// The kernel's `struct iovec`.
#[repr(C)]
struct Range {
    base: *mut c_void,
    bytes: usize,
}

unsafe extern "C" {
    fn process_vm_readv(
        process: c_int,
        local: *const Range,
        num_local: usize,
        remote: *const Range,
        num_remote: usize,
        flags: usize,
    ) -> isize;
}

/// The code with which the kernel refuses `process_vm_readv` to this process (a container's system call filter);
/// `None` where it works. A process may always read itself, so this says nothing of rules between processes,
/// which Open MPI looks at itself.
fn cma_refusal() -> Option<i32> {
    let (mut from, mut to) = (0x5a_u8, 0_u8);
    let remote = Range { base: (&raw mut from).cast(), bytes: 1 };
    let local = Range { base: (&raw mut to).cast(), bytes: 1 };
    let me = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: both ranges are one byte of this function's own, and outlive the call.
    let num_bytes = unsafe { process_vm_readv(me, &local, 1, &remote, 1, 0) };
    match num_bytes {
        1 => None,
        _ => Some(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_names_itself() {
        assert!(!mpi_library_version().is_empty());
        assert!(!mpi_library_version().contains('\n'));
    }

    #[test]
    fn a_refused_system_call_is_not_called_a_single_copy() {
        assert_eq!(describe("cma", None), "vader, single copy by CMA (process_vm_readv)");
        assert!(describe("cma", Some(1)).contains("refused"));
        assert_eq!(describe("none", Some(1)), "vader, copy in, copy out");
        assert_eq!(describe("xpmem", None), "vader, single copy by xpmem");
    }
}
