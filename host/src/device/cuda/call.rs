//! From the driver's codes to errors.

use cust::error::CudaError;
use cust_raw::CUresult;

use super::context::Shared;
use crate::device::DeviceError;

/// Checks the result of a call of the driver on `shared`'s GPU.
pub(crate) fn checked(shared: &Shared, call: &'static str, result: CUresult) -> Result<(), DeviceError> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        result => Err(error(shared.info().short_name(), call, result as u32, format!("{result:?}"))),
    }
}

/// The error of a call of `cust` on the GPU called `device`.
pub(super) fn failed(device: impl ToString, call: &'static str) -> impl FnOnce(CudaError) -> DeviceError {
    let device = device.to_string();
    move |problem| error(device, call, problem as u32, format!("{problem:?}"))
}

fn error(device: impl ToString, call: &'static str, code: u32, name: String) -> DeviceError {
    DeviceError::Cuda { device: device.to_string().into(), call, code, name: name.into() }
}
