//! Peer access between the devices of one process.

use std::ffi::{c_int, c_uint};

use super::out::Out;
use crate::driver::Code;
use crate::driver::current;
use crate::driver::driver::{Driver, driver};
use crate::driver::staged::Fault;

/// Whether the driver says that a device reaches another one's memory.
fn says_yes(driver: &Driver, device: c_int, peer: c_int) -> Result<bool, Code> {
    let (device, peer) = (driver.device(device)?, driver.device(peer)?);
    let staged = &driver.options.staged;
    let off = staged.is(Fault::PeerOff, device.physical) || staged.is(Fault::PeerOff, peer.physical);
    Ok(device.physical != peer.physical && !off)
}

entries! {
    /// Whether a device reaches another one's memory.
    fn cuDeviceCanAccessPeer(can: Out<c_int>, device: c_int, peer: c_int) {
        can.set(c_int::from(says_yes(driver()?, device, peer)?))
    }

    /// An attribute of the link between two devices: rank of speed, access, atomics, arrays.
    fn cuDeviceGetP2PAttribute(value: Out<c_int>, attribute: c_int, device: c_int, peer: c_int) {
        let yes = says_yes(driver()?, device, peer)?;
        if device == peer {
            return Err(Code::InvalidDevice);
        }
        match attribute {
            1 => value.set(0),
            2 | 3 => value.set(c_int::from(yes)),
            4 => value.set(0),
            _ => Err(Code::InvalidValue),
        }
    }

    /// Lets the current context reach the memory of another context.
    fn cuCtxEnablePeerAccess(peer: u64, flags: c_uint) {
        let (driver, context) = current::working()?;
        if flags != 0 {
            return Err(Code::InvalidValue);
        }
        let peer = driver.contexts.get(peer)?;
        if peer.number == context.number || peer.device.physical == context.device.physical {
            return Err(Code::InvalidDevice);
        }
        let staged = &driver.options.staged;
        let refused = |device| staged.is(Fault::PeerOff, device) || staged.is(Fault::PeerLies, device);
        if refused(context.device.physical) || refused(peer.device.physical) {
            return Err(Code::PeerAccessUnsupported);
        }
        if !context.enable_peer(peer.number) {
            return Err(Code::PeerAccessAlreadyEnabled);
        }
        driver.space.changed();
        Ok(())
    }

    /// Ends that, after all work of the current context.
    fn cuCtxDisablePeerAccess(peer: u64) {
        let (driver, context) = current::working()?;
        driver.wait("cuCtxDisablePeerAccess", &context, &context.unfinished())?;
        if !context.disable_peer(peer) {
            return Err(Code::PeerAccessNotEnabled);
        }
        driver.space.changed();
        Ok(())
    }
}
