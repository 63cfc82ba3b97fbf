//! NIXL's errors as ours: which call, which peer. NIXL has few codes, and its bindings keep fewer.

use nixl_sys::{
    NIXL_CAPI_ERROR_BACKEND, NIXL_CAPI_ERROR_INVALID_PARAM, NIXL_CAPI_ERROR_NO_TELEMETRY,
    NIXL_CAPI_ERROR_NOT_FOUND, NixlError,
};

use crate::transfer::engine::{EngineError, EngineProblem};

/// The engine's name.
pub(super) const NAME: &str = "nixl";

/// NIXL's code.
pub(super) fn code(error: &NixlError) -> i64 {
    i64::from(match error {
        NixlError::InvalidParam | NixlError::StringConversionError(_) | NixlError::IndexOutOfBounds => {
            NIXL_CAPI_ERROR_INVALID_PARAM
        }
        NixlError::NotFound => NIXL_CAPI_ERROR_NOT_FOUND,
        NixlError::NoTelemetry => NIXL_CAPI_ERROR_NO_TELEMETRY,
        // The bindings give these for every other code.
        NixlError::BackendError
        | NixlError::InvalidDataPointer
        | NixlError::FailedToCreateXferRequest
        | NixlError::RegDescListCreationFailed
        | NixlError::RegDescAddFailed
        | NixlError::FailedToCreateXferDlistHandle
        | NixlError::FailedToCreateBackend => NIXL_CAPI_ERROR_BACKEND,
    })
}

/// A call that failed for NIXL's own reason.
pub(super) fn foreign(call: &'static str, error: &NixlError) -> EngineError {
    problem(call, EngineProblem::Foreign { code: code(error), reason: error.to_string().into() })
}

/// A problem of ours.
pub(super) const fn problem(call: &'static str, problem: EngineProblem) -> EngineError {
    EngineError::new(NAME, call, problem)
}

/// The engine cannot be had.
pub(super) fn unavailable(call: &'static str, reason: String) -> EngineError {
    problem(call, EngineProblem::Unavailable { reason: reason.into() })
}
