//! NCCL's library: found when first asked for, its functions taken by name.
//!
//! `cudarc` loads it and has its types. Its functions are not used: they panic where the library lacks one, and they
//! return an enumeration, which a later library's codes need not be in. Here codes are numbers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::sync::LazyLock;

use cudarc::nccl::sys::{self, cudaStream_t, ncclComm_t, ncclUniqueId};

use super::error::NcclError;

/// The oldest version that is used: its configuration is the one handed over here, and later ones take it too.
pub const MIN_VERSION: Version = Version(21800);

/// An operation is done.
pub(super) const SUCCESS: i32 = 0;
/// An operation goes on.
pub(super) const IN_PROGRESS: i32 = 7;
/// `ncclUint8`.
const BYTES: c_int = 1;
/// `ncclSum`.
const SUM: c_int = 0;

/// A version of NCCL, in its own encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Version(pub i32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Up to 2.8 a digit less.
        let thousands = if self.0 < 10_000 { 1_000 } else { 10_000 };
        let (major, minor, patch) = (self.0 / thousands, self.0 % thousands / 100, self.0 % 100);
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// What `ncclCommInitRankConfig` is told: the configuration of 2.18, which its version says. Later versions read as many
/// bytes as its size says and take defaults for the rest.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    /// Padding in 2.18, a field later: it says that it is not set.
    unset: c_int,
}

impl Config {
    /// Calls do not wait; all else is NCCL's default.
    pub(super) const fn non_blocking() -> Self {
        /// `NCCL_CONFIG_UNDEF_INT`.
        const UNSET: c_int = c_int::MIN;
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: MIN_VERSION.0 as u32,
            blocking: 0,
            cga_cluster_size: UNSET,
            min_ctas: UNSET,
            max_ctas: UNSET,
            net_name: std::ptr::null(),
            split_share: UNSET,
            unset: UNSET,
        }
    }
}

type OnComm = unsafe extern "C" fn(ncclComm_t) -> c_int;
type Start = unsafe extern "C" fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int, *mut Config) -> c_int;
type AllReduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, ncclComm_t, cudaStream_t) -> c_int;

/// The library and the functions of it that are used.
#[derive(Debug)]
pub struct Library {
    version: Version,
    get_unique_id: unsafe extern "C" fn(*mut ncclUniqueId) -> c_int,
    pub(super) start: Start,
    pub(super) get_async_error: unsafe extern "C" fn(ncclComm_t, *mut c_int) -> c_int,
    all_reduce: AllReduce,
    pub(super) finalize: OnComm,
    pub(super) destroy: OnComm,
    pub(super) abort: OnComm,
    get_error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    get_last_error: unsafe extern "C" fn(ncclComm_t) -> *const c_char,
}

/// Function `symbol` of the library.
///
/// # Safety
/// `F` is a pointer to a function of that function's type, and the library is present.
unsafe fn function<F: Copy>(symbol: &'static str) -> Result<F, NcclError> {
    // SAFETY: the library is present, so this finds it; it stays loaded.
    let library = unsafe { sys::culib() };
    // SAFETY: the type is the caller's promise.
    let found = unsafe { library.get::<F>(symbol.as_bytes()) };
    found.map(|found| *found).map_err(|problem| NcclError::NoSymbol { symbol, detail: problem.to_string() })
}

impl Library {
    /// The library of this process; found, or not, by the first call.
    ///
    /// # Errors
    /// [`NcclError::NotFound`], [`NcclError::NoSymbol`], [`NcclError::TooOld`], [`NcclError::Blocking`].
    pub fn get() -> Result<&'static Self, NcclError> {
        static LIBRARY: LazyLock<Result<Library, NcclError>> = LazyLock::new(Library::load);
        LIBRARY.as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, NcclError> {
        // SAFETY: loading runs NCCL's initialisers, which this process trusts as it does the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(NcclError::NotFound);
        }
        type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
        // SAFETY: the function's type, as NCCL's header has it.
        let get_version: GetVersion = unsafe { function("ncclGetVersion") }?;
        let mut found = 0;
        // SAFETY: `found` is writable.
        let code = unsafe { get_version(&mut found) };
        let version = Version(if code == SUCCESS { found } else { 0 });
        if version < MIN_VERSION {
            return Err(NcclError::TooOld { found: version });
        }
        if std::env::var_os("NCCL_COMM_BLOCKING").is_some_and(|value| value != "0") {
            return Err(NcclError::Blocking);
        }
        Ok(Self {
            version,
            // SAFETY: the function's type, as NCCL's header has it; here and in the eight below.
            get_unique_id: unsafe { function("ncclGetUniqueId") }?,
            // SAFETY: as above.
            start: unsafe { function("ncclCommInitRankConfig") }?,
            // SAFETY: as above.
            get_async_error: unsafe { function("ncclCommGetAsyncError") }?,
            // SAFETY: as above.
            all_reduce: unsafe { function("ncclAllReduce") }?,
            // SAFETY: as above.
            finalize: unsafe { function("ncclCommFinalize") }?,
            // SAFETY: as above.
            destroy: unsafe { function("ncclCommDestroy") }?,
            // SAFETY: as above.
            abort: unsafe { function("ncclCommAbort") }?,
            // SAFETY: as above.
            get_error_string: unsafe { function("ncclGetErrorString") }?,
            // SAFETY: as above.
            get_last_error: unsafe { function("ncclGetLastError") }?,
        })
    }

    /// Its version.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// A new communicator's name, for rank 0 to give to the others.
    ///
    /// # Errors
    /// [`NcclError::Call`].
    pub fn unique_id(&self) -> Result<UniqueId, NcclError> {
        let mut id = ncclUniqueId { internal: [0; UNIQUE_ID_BYTES] };
        // SAFETY: `id` is writable.
        let code = unsafe { (self.get_unique_id)(&mut id) };
        self.check("ncclGetUniqueId", code)?;
        Ok(UniqueId(id.internal.map(|byte| byte as u8)))
    }

    /// Queues the byte-wise sum of `bytes` bytes at `addr` on `stream`, in place, and returns NCCL's code.
    ///
    /// # Safety
    /// `comm` is alive and nobody else uses it, `stream` is one of its GPU; the bytes are its GPU's memory, which nothing
    /// else touches until the work has run.
    pub(super) unsafe fn all_reduce_sum(
        &self,
        comm: ncclComm_t,
        addr: u64,
        bytes: u64,
        stream: *mut c_void,
    ) -> c_int {
        let memory = std::ptr::with_exposed_provenance_mut::<c_void>(addr as usize);
        // SAFETY: the caller's promise.
        unsafe { (self.all_reduce)(memory, memory, bytes as usize, BYTES, SUM, comm, stream.cast()) }
    }

    /// The code of a call as a result; where the operation goes on, that is no error.
    pub(super) fn check(&self, call: &'static str, code: c_int) -> Result<(), NcclError> {
        if matches!(code, SUCCESS | IN_PROGRESS) {
            return Ok(());
        }
        // SAFETY: takes any code.
        let name = unsafe { (self.get_error_string)(code) };
        // SAFETY: NCCL does not use the communicator here, and says to give none.
        let detail = unsafe { (self.get_last_error)(std::ptr::null_mut()) };
        // SAFETY: null, or a text that NCCL keeps.
        let name = unsafe { text(name) };
        // SAFETY: as above.
        let detail = unsafe { text(detail) };
        Err(NcclError::Call { call, code, name, detail })
    }
}

/// A text of NCCL's.
///
/// # Safety
/// `pointer` is null, or points to a text that ends with 0.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return "nothing".to_owned();
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) }.to_string_lossy();
    if text.is_empty() { "nothing".to_owned() } else { text.into_owned() }
}

/// Bytes of a [`UniqueId`].
pub(super) const UNIQUE_ID_BYTES: usize = 128;

/// What a communicator's ranks find each other by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniqueId(pub [u8; UNIQUE_ID_BYTES]);

impl UniqueId {
    pub(super) fn raw(&self) -> ncclUniqueId {
        ncclUniqueId { internal: self.0.map(|byte| byte as c_char) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_printed_as_nvidia_writes_them() {
        for (code, text) in [(23203, "2.32.3"), (21800, "2.18.0"), (2804, "2.8.4")] {
            assert_eq!(Version(code).to_string(), text);
        }
        assert!(Version(2804) < MIN_VERSION);
    }

    #[test]
    fn the_configuration_is_laid_out_as_the_one_of_the_bindings() {
        use cudarc::nccl::sys::ncclConfig_t as Later;
        assert_eq!(std::mem::offset_of!(Config, blocking), std::mem::offset_of!(Later, blocking));
        assert_eq!(std::mem::offset_of!(Config, net_name), std::mem::offset_of!(Later, netName));
        assert_eq!(std::mem::offset_of!(Config, split_share), std::mem::offset_of!(Later, splitShare));
        assert_eq!(std::mem::offset_of!(Config, unset), std::mem::offset_of!(Later, trafficClass));
        assert_eq!(size_of::<Config>(), std::mem::offset_of!(Later, commName));
    }
}
