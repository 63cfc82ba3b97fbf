//! What a call answers.
//!
//! `cust_raw` declares `CUresult` as a Rust enum of CUDA 11.4's codes, so an unknown number in it would be undefined
//! behaviour in the caller. Entry points therefore return this enum, which has exactly those codes.

use std::ffi::CStr;

macro_rules! codes {
    ($($variant:ident = $number:literal, $name:literal, $text:literal;)*) => {
        /// A result of the driver API, by CUDA's numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Code {
            $(#[doc = $text] $variant = $number,)*
        }

        impl Code {
            /// The code with this number; `None` where CUDA 11.4 has none.
            pub fn from_number(number: i32) -> Option<Code> {
                match number {
                    $($number => Some(Code::$variant),)*
                    _ => None,
                }
            }

            /// Its name, as `cuGetErrorName` gives it.
            pub fn name(self) -> &'static CStr {
                match self {
                    $(Code::$variant => $name,)*
                }
            }

            /// What it means, as `cuGetErrorString` gives it.
            pub fn text(self) -> &'static CStr {
                match self {
                    $(Code::$variant => const { c_text(concat!($text, "\0")) },)*
                }
            }
        }
    };
}

const fn c_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"unknown error",
    }
}

codes! {
    Success = 0, c"CUDA_SUCCESS", "no error";
    InvalidValue = 1, c"CUDA_ERROR_INVALID_VALUE", "invalid argument";
    OutOfMemory = 2, c"CUDA_ERROR_OUT_OF_MEMORY", "out of memory";
    NotInitialized = 3, c"CUDA_ERROR_NOT_INITIALIZED", "initialization error";
    Deinitialized = 4, c"CUDA_ERROR_DEINITIALIZED", "deinitialized";
    ProfilerDisabled = 5, c"CUDA_ERROR_PROFILER_DISABLED", "profiler disabled";
    ProfilerNotInitialized = 6, c"CUDA_ERROR_PROFILER_NOT_INITIALIZED", "profiler not initialized";
    ProfilerAlreadyStarted = 7, c"CUDA_ERROR_PROFILER_ALREADY_STARTED", "profiler already started";
    ProfilerAlreadyStopped = 8, c"CUDA_ERROR_PROFILER_ALREADY_STOPPED", "profiler already stopped";
    StubLibrary = 34, c"CUDA_ERROR_STUB_LIBRARY", "stub library";
    NoDevice = 100, c"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected";
    InvalidDevice = 101, c"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal";
    DeviceNotLicensed = 102, c"CUDA_ERROR_DEVICE_NOT_LICENSED", "device not licensed";
    InvalidImage = 200, c"CUDA_ERROR_INVALID_IMAGE", "invalid image";
    InvalidContext = 201, c"CUDA_ERROR_INVALID_CONTEXT", "invalid device context";
    ContextAlreadyCurrent = 202, c"CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "context already current";
    MapFailed = 205, c"CUDA_ERROR_MAP_FAILED", "map failed";
    UnmapFailed = 206, c"CUDA_ERROR_UNMAP_FAILED", "unmap failed";
    ArrayIsMapped = 207, c"CUDA_ERROR_ARRAY_IS_MAPPED", "array is mapped";
    AlreadyMapped = 208, c"CUDA_ERROR_ALREADY_MAPPED", "already mapped";
    NoBinaryForGpu = 209, c"CUDA_ERROR_NO_BINARY_FOR_GPU", "no binary for gpu";
    AlreadyAcquired = 210, c"CUDA_ERROR_ALREADY_ACQUIRED", "already acquired";
    NotMapped = 211, c"CUDA_ERROR_NOT_MAPPED", "not mapped";
    NotMappedAsArray = 212, c"CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "not mapped as array";
    NotMappedAsPointer = 213, c"CUDA_ERROR_NOT_MAPPED_AS_POINTER", "not mapped as pointer";
    EccUncorrectable = 214, c"CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered";
    UnsupportedLimit = 215, c"CUDA_ERROR_UNSUPPORTED_LIMIT", "unsupported limit";
    ContextAlreadyInUse = 216, c"CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "context already in use";
    PeerAccessUnsupported = 217, c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access unsupported";
    InvalidPtx = 218, c"CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed";
    InvalidGraphicsContext = 219, c"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "invalid graphics context";
    NvlinkUncorrectable = 220, c"CUDA_ERROR_NVLINK_UNCORRECTABLE", "nvlink uncorrectable";
    JitCompilerNotFound = 221, c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "jit compiler not found";
    UnsupportedPtxVersion = 222, c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "unsupported ptx version";
    JitCompilationDisabled = 223, c"CUDA_ERROR_JIT_COMPILATION_DISABLED", "jit compilation disabled";
    UnsupportedExecAffinity = 224, c"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "unsupported exec affinity";
    InvalidSource = 300, c"CUDA_ERROR_INVALID_SOURCE", "invalid source";
    FileNotFound = 301, c"CUDA_ERROR_FILE_NOT_FOUND", "file not found";
    SharedObjectSymbolNotFound = 302, c"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "shared object symbol not found";
    SharedObjectInitFailed = 303, c"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "shared object init failed";
    OperatingSystem = 304, c"CUDA_ERROR_OPERATING_SYSTEM", "operating system";
    InvalidHandle = 400, c"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle";
    IllegalState = 401, c"CUDA_ERROR_ILLEGAL_STATE", "illegal state";
    NotFound = 500, c"CUDA_ERROR_NOT_FOUND", "named symbol not found";
    NotReady = 600, c"CUDA_ERROR_NOT_READY", "device not ready";
    IllegalAddress = 700, c"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered";
    LaunchOutOfResources = 701, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch";
    LaunchTimeout = 702, c"CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated";
    LaunchIncompatibleTexturing = 703, c"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "launch incompatible texturing";
    PeerAccessAlreadyEnabled = 704, c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access already enabled";
    PeerAccessNotEnabled = 705, c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access not enabled";
    PrimaryContextActive = 708, c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "primary context active";
    ContextIsDestroyed = 709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed";
    Assert = 710, c"CUDA_ERROR_ASSERT", "assert";
    TooManyPeers = 711, c"CUDA_ERROR_TOO_MANY_PEERS", "too many peers";
    HostMemoryAlreadyRegistered = 712, c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "host memory already registered";
    HostMemoryNotRegistered = 713, c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "host memory not registered";
    HardwareStackError = 714, c"CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error";
    IllegalInstruction = 715, c"CUDA_ERROR_ILLEGAL_INSTRUCTION", "illegal instruction";
    MisalignedAddress = 716, c"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address";
    InvalidAddressSpace = 717, c"CUDA_ERROR_INVALID_ADDRESS_SPACE", "invalid address space";
    InvalidPc = 718, c"CUDA_ERROR_INVALID_PC", "invalid pc";
    LaunchFailed = 719, c"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure";
    CooperativeLaunchTooLarge = 720, c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "cooperative launch too large";
    NotPermitted = 800, c"CUDA_ERROR_NOT_PERMITTED", "operation not permitted";
    NotSupported = 801, c"CUDA_ERROR_NOT_SUPPORTED", "operation not supported";
    SystemNotReady = 802, c"CUDA_ERROR_SYSTEM_NOT_READY", "system not ready";
    SystemDriverMismatch = 803, c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system driver mismatch";
    CompatNotSupportedOnDevice = 804, c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "compat not supported on device";
    MpsConnectionFailed = 805, c"CUDA_ERROR_MPS_CONNECTION_FAILED", "mps connection failed";
    MpsRpcFailure = 806, c"CUDA_ERROR_MPS_RPC_FAILURE", "mps rpc failure";
    MpsServerNotReady = 807, c"CUDA_ERROR_MPS_SERVER_NOT_READY", "mps server not ready";
    MpsMaxClientsReached = 808, c"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "mps max clients reached";
    MpsMaxConnectionsReached = 809, c"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "mps max connections reached";
    StreamCaptureUnsupported = 900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing";
    StreamCaptureInvalidated = 901, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture";
    StreamCaptureMerge = 902, c"CUDA_ERROR_STREAM_CAPTURE_MERGE", "stream capture merge";
    StreamCaptureUnmatched = 903, c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "stream capture unmatched";
    StreamCaptureUnjoined = 904, c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "stream capture unjoined";
    StreamCaptureIsolation = 905, c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "stream capture isolation";
    StreamCaptureImplicit = 906, c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "stream capture implicit";
    CapturedEvent = 907, c"CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream";
    StreamCaptureWrongThread = 908, c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "stream capture wrong thread";
    Timeout = 909, c"CUDA_ERROR_TIMEOUT", "timeout";
    GraphExecUpdateFailure = 910, c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "graph exec update failure";
    ExternalDevice = 911, c"CUDA_ERROR_EXTERNAL_DEVICE", "external device";
    Unknown = 999, c"CUDA_ERROR_UNKNOWN", "unknown error";
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn a_number_and_its_code_go_back_and_forth() {
        for number in -1..1100 {
            if let Some(code) = Code::from_number(number) {
                assert_eq!(code as i32, number);
                assert!(code.name().to_bytes().starts_with(b"CUDA_"));
                assert!(!code.text().to_bytes().is_empty());
            }
        }
        assert_eq!(Code::from_number(702), Some(Code::LaunchTimeout));
        assert_eq!(Code::from_number(26), None);
    }
}
