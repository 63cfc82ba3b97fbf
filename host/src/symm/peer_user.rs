//! The user at the other end of a Unix socket.

use std::ffi::{c_int, c_void};
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

/// The kernel's `struct ucred`. The process is 0 where it is not visible from here (another container of the
/// same pod), so it must not have a type that excludes 0.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PeerCredentials {
    process: c_int,
    user: u32,
    group: u32,
}

const _: () = assert!(mem::size_of::<PeerCredentials>() == 12);

const SOL_SOCKET: c_int = 1;
const SO_PEERCRED: c_int = 17;

unsafe extern "C" {
    fn getsockopt(
        socket: c_int,
        level: c_int,
        option: c_int,
        value: *mut c_void,
        value_bytes: *mut u32,
    ) -> c_int;
}

/// Whether the other end of `socket` (as it was at connect or listen) runs as the same user as this process.
pub(crate) fn runs_as_this_user(socket: &OwnedFd) -> bool {
    let mut peer = PeerCredentials::default();
    let mut peer_bytes = mem::size_of::<PeerCredentials>() as u32;
    let value = (&raw mut peer).cast::<c_void>();
    // SAFETY: `value` points to `peer_bytes` writable bytes that any content is valid for, and both outlive the call.
    let outcome = unsafe { getsockopt(socket.as_raw_fd(), SOL_SOCKET, SO_PEERCRED, value, &mut peer_bytes) };
    outcome == 0
        && peer_bytes as usize == mem::size_of::<PeerCredentials>()
        && peer.user == rustix::process::geteuid().as_raw()
}
