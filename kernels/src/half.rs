//! The half of a double-buffered region that this epoch uses.

use core::ptr;

use crate::abi::{GroupState, HalfSelect};

impl HalfSelect {
    /// Offset of the selected half, in bytes.
    ///
    /// # Safety
    /// `state` is 0 or the address of this rank's [`GroupState`], which only the barrier on the same stream
    /// writes.
    pub(crate) unsafe fn offset(&self) -> u64 {
        if self.state == 0 {
            return 0;
        }
        let state = ptr::with_exposed_provenance::<GroupState>(self.state as usize);
        // SAFETY: valid, and written only by kernels that ran before on this stream.
        let epoch = unsafe { (*state).epoch };
        epoch.wrapping_sub(self.passed) % 2 * self.stride
    }
}
