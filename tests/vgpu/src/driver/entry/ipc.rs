//! Memory of other processes: see `driver/ipc.rs` for what each case answers.

use std::ffi::c_uint;

use super::out::Out;
use crate::driver::Code;
use crate::driver::current;
use crate::driver::ipc::{self, IpcHandle};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag there is.
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

entries! {
    /// Makes a handle of the allocation that holds an address.
    fn cuIpcGetMemHandle(handle: Out<IpcHandle>, address: u64) {
        let (driver, context) = current::working()?;
        handle.set(ipc::export(driver, &context, address)?)
    }

    /// Opens a handle of another process.
    fn cuIpcOpenMemHandle_v2(address: Out<u64>, handle: IpcHandle, flags: c_uint) {
        let (driver, context) = current::working()?;
        driver.captures.refuse_unsafe()?;
        address.wanted()?;
        if flags != LAZY_ENABLE_PEER_ACCESS {
            return Err(Code::InvalidValue);
        }
        address.set(ipc::open_handle(driver, &context, &handle)?.start)
    }

    /// Closes what was opened, after all work of the context.
    fn cuIpcCloseMemHandle(address: u64) {
        let (driver, context) = current::working()?;
        driver.captures.refuse_unsafe()?;
        driver.wait("cuIpcCloseMemHandle", &context, &context.unfinished())?;
        ipc::release(driver, address).map(drop)
    }
}
