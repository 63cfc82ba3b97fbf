//! Generic addresses: where shared, local and parameter space lie among them.

use crate::ptx::types::Space;

/// The first byte of a block's shared memory: address 0 is nobody's. As on sm_90, the first KiB is the system's.
pub(crate) const SHARED_BASE: u64 = 1024;

/// Bits of an address below the window's number.
const WINDOW_BITS: u32 = 56;
const SHARED_WINDOW: u64 = 0xF1 << WINDOW_BITS;
const LOCAL_WINDOW: u64 = 0xF2 << WINDOW_BITS;
const PARAM_WINDOW: u64 = 0xF3 << WINDOW_BITS;

const fn window(space: Space) -> u64 {
    match space {
        Space::Generic | Space::Global => 0,
        Space::Shared => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Param => PARAM_WINDOW,
    }
}

/// The generic address of `address` in `space`.
pub(crate) const fn to_generic(space: Space, address: u64) -> u64 {
    address.wrapping_add(window(space))
}

/// The address in `space` of generic `address`; one that does not belong there is out of all bounds.
pub(crate) const fn from_generic(space: Space, address: u64) -> u64 {
    address.wrapping_sub(window(space))
}

/// The space and address that `address` in `space` means.
pub(crate) const fn resolve(space: Space, address: u64) -> (Space, u64) {
    if !matches!(space, Space::Generic) {
        return (space, address);
    }
    let space = match address & !0 << WINDOW_BITS {
        SHARED_WINDOW => Space::Shared,
        LOCAL_WINDOW => Space::Local,
        PARAM_WINDOW => Space::Param,
        _ => Space::Global,
    };
    (space, from_generic(space, address))
}
