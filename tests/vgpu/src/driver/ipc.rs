//! Memory of other processes.
//!
//! A handle says where the exporter's memfd can be reopened (`/proc/<pid>/fd/<fd>`), and which inode it must have. What
//! CUDA leaves open, or documents and hardware does otherwise, is settled so:
//!
//! | case | answer |
//! |---|---|
//! | a handle of an address inside an allocation | it opens at the allocation's *first* byte; `cuMemGetAddressRange` tells the exporter the offset |
//! | opened in the exporting process | `InvalidContext` (201, what CUDA answers) |
//! | opened again in the same context | the same address; closed as often as opened |
//! | opened in a second context of the process while open in another | `AlreadyMapped` |
//! | the exporter has died, or freed the memory | `InvalidHandle` |
//! | flags other than `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS` | `InvalidValue` |
//! | freed by the exporter while open elsewhere | a fault; the exporter's context fails with `IllegalAddress`; the opener's mapping stays |
//! | the exporter's device is not visible to the opener | it opens, as with CUDA since 10.1 |

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags, fstat, open};

use super::block::Block;
use super::code::Code;
use super::context::Context;
use super::driver::Driver;
use super::lock;
use super::space::{Allocation, Kind};
use super::staged::Fault;

const MAGIC: u64 = u64::from_le_bytes(*b"vgpu-ipc");

/// Held while a handle is opened or closed: one handle has one mapping.
static OPENING: Mutex<()> = Mutex::new(());

/// `CUipcMemHandle`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct IpcHandle {
    /// The magic number, process, descriptor, inode, size, address and device, in this order; zeros behind.
    pub bytes: [u8; 64],
}

/// What a handle says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contents {
    process: u32,
    file: i32,
    inode: u64,
    bytes: u64,
    address: u64,
    physical: u32,
}

impl IpcHandle {
    fn new(contents: Contents) -> IpcHandle {
        let words = [
            MAGIC,
            u64::from(contents.process),
            contents.file as u64,
            contents.inode,
            contents.bytes,
            contents.address,
            u64::from(contents.physical),
            0,
        ];
        let mut bytes = [0; 64];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        IpcHandle { bytes }
    }

    /// What it says; `None`: it is no handle of this driver.
    fn contents(&self) -> Option<Contents> {
        let mut words = self.bytes.chunks_exact(8).map(|word| word.try_into().map(u64::from_le_bytes));
        let mut next = || words.next()?.ok();
        (next()? == MAGIC).then_some(())?;
        Some(Contents {
            process: next()?.try_into().ok()?,
            file: next()?.try_into().ok()?,
            inode: next()?,
            bytes: next()?,
            address: next()?,
            physical: next()?.try_into().ok()?,
        })
    }
}

/// Makes a handle of the allocation that holds an address.
///
/// # Errors
///
/// `InvalidValue` when that is no device memory that this process allocated, `MapFailed` when staged.
pub(super) fn export(driver: &Driver, context: &Context, address: u64) -> Result<IpcHandle, Code> {
    let (allocation, _) = driver.space.find(address).ok_or(Code::InvalidValue)?;
    if allocation.kind != Kind::Device {
        return Err(Code::InvalidValue);
    }
    if driver.options.staged.is(Fault::ExportFails, context.device.physical) {
        return Err(Code::MapFailed);
    }
    let (file, inode) = allocation.block.file().ok_or(Code::InvalidValue)?;
    allocation.exported.store(true, Ordering::Release);
    driver.space.changed();
    Ok(IpcHandle::new(Contents {
        process: std::process::id(),
        file,
        inode,
        bytes: allocation.bytes(),
        address: allocation.start,
        physical: allocation.physical,
    }))
}

/// Opens a handle in a context. See the table above.
pub(super) fn open_handle(
    driver: &Driver,
    context: &Context,
    handle: &IpcHandle,
) -> Result<Arc<Allocation>, Code> {
    let contents = handle.contents().ok_or(Code::InvalidHandle)?;
    if contents.process == std::process::id() {
        return Err(Code::InvalidContext);
    }
    let device = context.device.physical;
    let staged = &driver.options.staged;
    if staged.is(Fault::PeerLies, device) {
        return Err(Code::MapFailed);
    }
    if staged.is(Fault::PeerOff, device) && contents.physical != device {
        return Err(Code::PeerAccessUnsupported);
    }
    let key = contents.inode;
    let _opening = lock::mutex(&OPENING);
    let file = reopen(&contents).ok_or(Code::InvalidHandle)?;
    if let Some(opened) = driver.space.first(|other| other.kind == Kind::Opened { key }) {
        if opened.context != context.number {
            return Err(Code::AlreadyMapped);
        }
        opened.opened.fetch_add(1, Ordering::AcqRel);
        return Ok(opened);
    }
    let block = if staged.is(Fault::PeerGarbage, device) {
        Block::device(contents.bytes).map_err(|_| Code::OutOfMemory)?
    } else {
        let lossy = staged.is(Fault::LostAdds, device);
        Block::open(file, contents.bytes, lossy).map_err(|_| Code::InvalidHandle)?
    };
    driver.space.place(block, context.number, contents.physical, Kind::Opened { key })
}

/// Closes what was opened once; `true` when that was the last time.
///
/// # Errors
///
/// `InvalidValue` when nothing opened begins at the address.
pub(super) fn release(driver: &Driver, address: u64) -> Result<bool, Code> {
    let _opening = lock::mutex(&OPENING);
    let opened = driver.space.at(address).filter(|opened| matches!(opened.kind, Kind::Opened { .. }));
    let opened = opened.ok_or(Code::InvalidValue)?;
    let last = opened.opened.fetch_sub(1, Ordering::AcqRel) == 1;
    if last {
        driver.space.remove(address);
    }
    Ok(last)
}

/// The exporter's memfd, if it is still that one.
fn reopen(contents: &Contents) -> Option<OwnedFd> {
    let path = format!("/proc/{}/fd/{}", contents.process, contents.file);
    let file = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
    (fstat(&file).ok()?.st_ino == contents.inode).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_carries_its_contents_and_nothing_else_is_one() {
        let contents =
            Contents { process: 4711, file: 9, inode: 1 << 40, bytes: 5000, address: 1 << 62, physical: 3 };
        assert_eq!(IpcHandle::new(contents).contents(), Some(contents));
        assert_eq!(IpcHandle { bytes: [0; 64] }.contents(), None);
        assert_eq!(reopen(&Contents { process: std::process::id(), file: 0, ..contents }).map(drop), None);
    }
}
