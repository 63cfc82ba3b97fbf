//! The codes that this engine reports: the system's, as an engine over a network would.

use rustix::io::Errno;

/// The peer is dead.
pub(super) const RESET: i64 = Errno::CONNRESET.raw_os_error() as i64;
/// The peer refuses connections.
pub(super) const REFUSED: i64 = Errno::CONNREFUSED.raw_os_error() as i64;
/// A destination outside the peer's registered memory.
pub(super) const FAULT: i64 = Errno::FAULT.raw_os_error() as i64;
/// A failure that was asked for.
pub(super) const IO: i64 = Errno::IO.raw_os_error() as i64;
